package io.jccl.cli.shell;

import java.math.BigDecimal;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Large numbers as people write them: bytes and parameters. */
public final class Amounts {
    private static final Pattern BYTES =
            Pattern.compile("(\\d+(?:\\.\\d+)?)(?:([KMGTP])(I?B)?|B)?");

    private static final Pattern COUNT = Pattern.compile("(\\d+(?:\\.\\d+)?(?:E\\d+)?)([KMBT])?");

    private static final BigDecimal MOST = BigDecimal.valueOf(Long.MAX_VALUE);

    private Amounts() {}

    /** Bytes of an option. */
    public static final class Bytes implements ITypeConverter<Long> {
        @Override
        public Long convert(String value) {
            return bytes(value);
        }
    }

    /** Parameters of an option. */
    public static final class Count implements ITypeConverter<Long> {
        @Override
        public Long convert(String value) {
            return count(value);
        }
    }

    /**
     * Parses a number of bytes.
     *
     * @param text such as {@code 16G} or {@code 16GiB} (powers of 1024), {@code 330GB} (of 1000) or
     *     {@code 1.5T}
     * @return bytes
     * @throws TypeConversionException if it is none
     */
    public static long bytes(String text) {
        Matcher m = BYTES.matcher(text.trim().toUpperCase(Locale.ROOT));
        if (m.matches()) {
            int power = m.group(2) == null ? 0 : 1 + "KMGTP".indexOf(m.group(2));
            BigDecimal base = BigDecimal.valueOf("B".equals(m.group(3)) ? 1000 : 1024);
            BigDecimal value = new BigDecimal(m.group(1)).multiply(base.pow(power));
            // A fraction needs a unit.
            if (value.compareTo(MOST) <= 0 && (power > 0 || value.scale() == 0)) {
                return value.longValue();
            }
        }
        throw new TypeConversionException(
                "'"
                        + text
                        + "' is not a number of bytes; give one with K, M, G, T or P (powers of 1024,"
                        + " as KiB and GiB are) or KB, GB, TB (powers of 1000), such as 64K, 330GB or"
                        + " 1.5T");
    }

    /**
     * Parses a number of parameters.
     *
     * @param text such as {@code 1.3B}, {@code 350M} or {@code 175e9}
     * @return how many
     * @throws TypeConversionException if it is none
     */
    public static long count(String text) {
        Matcher m = COUNT.matcher(text.trim().toUpperCase(Locale.ROOT));
        // Longer ones make numbers that take long to write out.
        if (text.length() <= 30 && m.matches()) {
            int power = m.group(2) == null ? 0 : 1 + "KMBT".indexOf(m.group(2));
            BigDecimal value = new BigDecimal(m.group(1)).scaleByPowerOfTen(3 * power);
            if (value.precision() - value.scale() <= 18) {
                return value.longValue();
            }
        }
        throw new TypeConversionException(
                "'"
                        + text
                        + "' is not a number of parameters; give one with K, M, B or T (powers of"
                        + " 1000), such as 350M, 1.3B or 1T");
    }

    /**
     * Bytes for people.
     *
     * @param bytes how many
     * @return such as {@code 2.79 TB}; three digits, powers of 1000
     */
    public static String text(double bytes) {
        return scaled(bytes, new String[] {" B", " kB", " MB", " GB", " TB", " PB", " EB"});
    }

    /**
     * Bytes for people.
     *
     * @param bytes how many
     * @return such as {@code 2.79 TB}; three digits, powers of 1000
     */
    public static String text(long bytes) {
        return text((double) bytes);
    }

    /**
     * Operations for people.
     *
     * @param flops how many
     * @return such as {@code 4.51 EFLOP}
     */
    public static String flops(double flops) {
        return scaled(
                        flops,
                        new String[] {
                            " ", " k", " M", " G", " T", " P", " E", " Z", " Y", " R", " Q"
                        })
                + "FLOP";
    }

    /**
     * Parameters for people.
     *
     * @param count how many
     * @return such as {@code 15.2B}
     */
    public static String parameters(long count) {
        return scaled((double) count, new String[] {"", "K", "M", "B", "T"});
    }

    private static String scaled(double value, String[] units) {
        double rest = value;
        int unit = 0;
        while (rest >= 999.5 && unit < units.length - 1) {
            rest /= 1000;
            unit++;
        }
        String digits;
        if (unit == 0 || rest >= 99.95) {
            digits = String.format(Locale.ROOT, "%.0f", rest);
        } else {
            digits = String.format(Locale.ROOT, rest >= 9.995 ? "%.1f" : "%.2f", rest);
        }
        return digits + units[unit];
    }
}
