package io.jccl.cli.shell;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Path;
import java.util.Map;
import java.util.Stack;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.IParameterPreprocessor;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** {@code --json[=FILE]}, the same in every command. */
public final class JsonOption {
    /** The option in messages. */
    public static final String NAME = "--json";

    private static final String STANDARD = "-";

    @Option(
            names = {"-J", NAME},
            arity = "0..1",
            fallbackValue = STANDARD,
            preprocessor = Attached.class,
            paramLabel = "<file>",
            description =
                    "Write JSON to a file as well; without one, or with -, print it instead of text.")
    private @Nullable String file;

    /** Where a command takes words of its own, only {@code --json=FILE} names a file. */
    static final class Attached implements IParameterPreprocessor {
        @Override
        @SuppressWarnings("JdkObsolete") // picocli's signature
        public boolean preprocess(
                Stack<String> args, CommandSpec spec, ArgSpec option, Map<String, Object> info) {
            if (spec.positionalParameters().isEmpty() || !" ".equals(info.get("separator"))) {
                return false;
            }
            option.setValue(STANDARD);
            return true;
        }
    }

    /** Whether JSON was asked for. */
    public boolean isAsked() {
        return file != null;
    }

    /** Whether JSON takes the place of the text. */
    public boolean isPrinted() {
        return STANDARD.equals(file);
    }

    /** The file that was named, or null. */
    public @Nullable Path file() {
        return file == null || isPrinted() ? null : Path.of(file);
    }

    /**
     * Where the text goes.
     *
     * @param out standard output
     * @return the same, or nowhere if JSON is printed
     */
    public PrintWriter text(PrintWriter out) {
        return isPrinted() ? new PrintWriter(Writer.nullWriter()) : out;
    }

    /**
     * Fails before the work rather than after it.
     *
     * @param line the command's
     * @throws ParameterException if the file cannot be written; the message says what to do
     */
    public void checkWritable(CommandLine line) {
        Path named = file();
        if (named != null) {
            try {
                Output.checkWritable(NAME, named);
            } catch (IOException e) {
                throw new ParameterException(line, e.getMessage(), e);
            }
        }
    }

    /**
     * Prints or writes the document, or does nothing if none was asked for.
     *
     * @param out standard output
     * @param document makes it
     * @throws IOException if the file cannot be written
     */
    public void write(PrintWriter out, Supplier<String> document) throws IOException {
        if (file == null) {
            return;
        }
        String text = document.get();
        String whole = text.endsWith("\n") ? text : text + "\n";
        Path named = file();
        if (named == null) {
            out.print(whole);
            out.flush();
        } else {
            Output.write(Map.of(named, whole));
        }
    }
}
