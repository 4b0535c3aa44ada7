package io.jccl.cli.shell;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** {@code --html FILE}, the same in every command that draws charts. */
public final class HtmlOption {
    /** The option in messages. */
    public static final String NAME = "--html";

    @Option(
            names = NAME,
            paramLabel = "<file>",
            description = "Write a page with charts and tables that needs nothing else.")
    private @Nullable Path file;

    /** Whether a page was requested. */
    public boolean isAsked() {
        return file != null;
    }

    /** The file that was named, or null. */
    public @Nullable Path file() {
        return file;
    }

    /**
     * Fails before the work rather than after it.
     *
     * @param line the command's
     * @throws ParameterException if the file cannot be written; the message suggests a remedy
     */
    public void checkWritable(CommandLine line) {
        if (file != null) {
            try {
                Output.checkWritable(NAME, file);
            } catch (IOException e) {
                throw new ParameterException(line, e.getMessage(), e);
            }
        }
    }

    /**
     * Writes the page, or does nothing if none was requested.
     *
     * @param page makes it
     * @throws IOException if the file cannot be written
     */
    public void write(Supplier<String> page) throws IOException {
        if (file != null) {
            Output.write(Map.of(file, page.get()));
        }
    }
}
