package io.jccl.cli.shell;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** {@code --html FILE}, the same in every command that draws charts. */
public final class HtmlOption extends FileOption {
    /** The option in messages. */
    public static final String NAME = "--html";

    @Option(
            names = NAME,
            paramLabel = "<file>",
            description = "Write a page with charts and tables that needs nothing else.")
    private @Nullable Path file;

    /** Not requested, until picocli sets it. */
    public HtmlOption() {
        super(NAME);
    }

    @Override
    @Nullable String value() {
        return file == null ? null : file.toString();
    }

    /** A page is always a file; {@link OutputFiles} refuses {@code -}. */
    @Override
    public boolean isPrinted() {
        return false;
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
