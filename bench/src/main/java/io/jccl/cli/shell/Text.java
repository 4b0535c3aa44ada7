package io.jccl.cli.shell;

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

    /** The words of a line. */
    public static List<String> words(String line) {
        return List.of(line.split(" ", -1));
    }

    /** The name of a constant in lower case. */
    public static String lower(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }
}
