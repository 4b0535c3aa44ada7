package io.jccl.cli.shell;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** An option for results in another form, in addition to the text or instead of it. */
public abstract class FileOption {
    /** Names standard output. */
    static final String STANDARD = "-";

    private final String name;

    FileOption(String name) {
        this.name = name;
    }

    /**
     * An option that a command has itself.
     *
     * @param name the option in messages
     * @param file what it was given, or null
     */
    public static FileOption of(String name, @Nullable Path file) {
        return new FileOption(name) {
            @Override
            @Nullable String value() {
                return file == null ? null : file.toString();
            }
        };
    }

    /** The option in messages. */
    public String name() {
        return name;
    }

    /** What the option was given, or null. */
    abstract @Nullable String value();

    /** Whether it was requested. */
    public boolean isAsked() {
        return value() != null;
    }

    /** Whether it takes the place of the text. */
    public boolean isPrinted() {
        return STANDARD.equals(value());
    }

    /** The file that was named, or null. */
    public @Nullable Path file() {
        String value = value();
        return value == null || isPrinted() ? null : Path.of(value);
    }

    /**
     * Where the text goes.
     *
     * @param out standard output
     * @return the same, or nowhere if this is printed
     */
    public PrintWriter text(PrintWriter out) {
        return isPrinted() ? new PrintWriter(Writer.nullWriter()) : out;
    }

    /**
     * Prints or writes the document, or does nothing if none was requested.
     *
     * @param out standard output
     * @param document makes it
     * @throws IOException if the file cannot be written
     */
    public void write(PrintWriter out, Supplier<String> document) throws IOException {
        if (value() == null) {
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
