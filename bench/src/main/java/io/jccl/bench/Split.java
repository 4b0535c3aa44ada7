package io.jccl.bench;

import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntBinaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * How ranks form groups, according to {@code NCCL_TESTS_SPLIT} and {@code NCCL_TESTS_SPLIT_MASK}.
 *
 * @param text the requested split; empty for one group
 * @param operator computes a rank's group from the rank and the value
 * @param value second operand
 */
public record Split(String text, IntBinaryOperator operator, int value) {
    /** Operation and value. */
    public static final String VARIABLE = "NCCL_TESTS_SPLIT";

    /** The value of a bitwise and, in hexadecimal digits. */
    public static final String MASK = "NCCL_TESTS_SPLIT_MASK";

    /** One group. */
    public static final Split NONE = new Split("", (rank, value) -> 0, 0);

    private static final Pattern FORM =
            Pattern.compile("(AND|&|OR|\\||MOD|%|DIV|/)\\s*(\\w+)", Pattern.CASE_INSENSITIVE);

    /**
     * Reads the variables; the mask has precedence.
     *
     * @param environment variables
     * @return the split, {@link #NONE} without them
     * @throws IllegalArgumentException if one is malformed; the message suggests a remedy
     */
    public static Split of(Map<String, String> environment) {
        String mask = environment.get(MASK);
        String split = environment.get(VARIABLE);
        if (mask != null) {
            String digits = mask.strip().replaceFirst("^0[xX]", "");
            return new Split(
                    MASK + "=" + mask,
                    (rank, value) -> rank & value,
                    number(MASK, mask, digits, 16, "hexadecimal digits, such as 0x7"));
        }
        if (split == null) {
            return NONE;
        }
        String expected = "AND, OR, MOD or DIV (or &, |, %, /) and a number, such as MOD 2";
        Matcher m = FORM.matcher(split.strip());
        if (!m.matches()) {
            throw wrong(VARIABLE, split, expected);
        }
        String word = m.group(2).toLowerCase(Locale.ROOT);
        int radix =
                word.startsWith("0x")
                        ? 16
                        : word.startsWith("0b") ? 2 : word.matches("0\\d+") ? 8 : 10;
        String digits = word.substring(radix == 16 || radix == 2 ? 2 : 0);
        int value = number(VARIABLE, split, digits, radix, expected);
        String name = m.group(1).toUpperCase(Locale.ROOT);
        boolean divides = name.matches("MOD|%|DIV|/");
        if (divides && value == 0) {
            throw wrong(VARIABLE, split, "a number of at least 1 to divide by");
        }
        IntBinaryOperator operator =
                switch (name) {
                    case "AND", "&" -> (rank, v) -> rank & v;
                    case "OR", "|" -> (rank, v) -> rank | v;
                    case "MOD", "%" -> (rank, v) -> rank % v;
                    default -> (rank, v) -> rank / v;
                };
        return new Split(VARIABLE + "=" + split, operator, value);
    }

    private static int number(
            String variable, String text, String digits, int radix, String expected) {
        try {
            int value = Integer.parseInt(digits, radix);
            if (value >= 0) {
                return value;
            }
        } catch (NumberFormatException e) {
            // Reported below, with negative numbers.
        }
        throw wrong(variable, text, expected);
    }

    private static IllegalArgumentException wrong(String variable, String text, String expected) {
        return new IllegalArgumentException(
                variable + " is '" + text + "', expected " + expected + "; set it so, or unset it");
    }

    /** Whether there may be several groups. */
    public boolean isAsked() {
        return !text.isEmpty();
    }

    /**
     * The group of a rank.
     *
     * @param rank its number among all ranks
     * @return the colour of its group
     */
    public int group(int rank) {
        return operator.applyAsInt(rank, value);
    }

    /**
     * Sizes of the groups.
     *
     * @param ranks number of all ranks
     * @return one size per group, in no particular order
     */
    public int[] sizes(int ranks) {
        Map<Integer, Integer> sizes = new TreeMap<>();
        for (int rank = 0; rank < ranks; rank++) {
            sizes.merge(group(rank), 1, Integer::sum);
        }
        return sizes.values().stream().mapToInt(Integer::intValue).toArray();
    }
}
