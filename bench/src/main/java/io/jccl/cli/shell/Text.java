package io.jccl.cli.shell;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/** Pieces of messages and tables, the same in every language of the system. */
public final class Text {
    private Text() {}

    /** As {@link String#format(Locale, String, Object...)} without a language. */
    @SuppressWarnings("AnnotateFormatMethod") // the annotation would be a dependency
    public static String format(String pattern, @Nullable Object... values) {
        return String.format(Locale.ROOT, pattern, values);
    }

    /** A number of things, such as {@code 1 GPU} or {@code 2 GPUs}. */
    public static String count(int number, String noun) {
        return number + " " + noun + (number == 1 ? "" : "s");
    }

    /** What an error is; the message of one of a file is no more than its name. */
    public static String message(Throwable error) {
        if (error instanceof UncheckedIOException && error.getCause() instanceof IOException e) {
            String said = String.valueOf(error.getMessage());
            String why = reason(e);
            return said.equals(e.toString())
                    ? message(e)
                    : said + (said.contains(why) ? "" : ": " + why);
        }
        if (error instanceof FileSystemException e && e.getFile() != null) {
            return e.getFile() + ": " + reason(e);
        }
        if (error instanceof OutOfMemoryError) {
            String what = String.valueOf(error.getMessage());
            return what
                    + (what.contains("thread")
                            ? "; raise ulimit -u, and a container's limit of processes"
                            : "; give the JVM more, such as JCCL_JAVA_OPTS=-Xmx8g");
        }
        String message = error.getMessage();
        return message == null ? error.toString() : message;
    }

    /** Why a file cannot be read or written, without its name. */
    public static String reason(IOException error) {
        if (error instanceof NoSuchFileException) {
            return "no such file or folder";
        }
        if (error instanceof AccessDeniedException) {
            return "permission denied";
        }
        if (error instanceof FileAlreadyExistsException) {
            return "a file of this name exists";
        }
        if (error instanceof CharacterCodingException) {
            return "it is not UTF-8";
        }
        String reason =
                error instanceof FileSystemException e && e.getReason() != null
                        ? e.getReason()
                        : error.getMessage();
        return reason == null ? error.toString() : reason;
    }

    /** The words of a line. */
    public static List<String> words(String line) {
        return List.of(line.split(" ", -1));
    }

    /** The name of a constant in lower case. */
    public static String lower(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }
}
