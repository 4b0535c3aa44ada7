package io.jccl.bench.report;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * An axis of a chart.
 *
 * @param label the quantity, with its unit
 * @param scale how values are spaced
 */
public record Axis(String label, Scale scale) {
    /** How values are spaced. */
    public enum Scale {
        /** Evenly. */
        LINEAR,
        /** Equal factors are equally long; labels are powers of ten. */
        DECADES,
        /** Equal factors are equally long; labels are powers of two, in bytes. */
        BYTES
    }

    private static final String[] BINARY = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    private static final String[] DECIMAL = {"", "K", "M", "G", "T", "P"};

    /** Maximum labels along an axis of sizes. */
    private static final int MOST_SIZES = 9;

    /** Whether 0 cannot be shown on it. */
    boolean isLogarithmic() {
        return scale != Scale.LINEAR;
    }

    /** The coordinate of a value, before it is fitted into the plot. */
    double place(double value) {
        return isLogarithmic() ? Math.log10(value) : value;
    }

    /** Whether a value can be drawn. */
    boolean holds(double value) {
        return Double.isFinite(value) && (!isLogarithmic() || value > 0);
    }

    /** Values to label between two coordinates, at most the given number. */
    List<Double> ticks(double least, double most, int count) {
        return switch (scale) {
            case LINEAR -> linear(least, most, count);
            case DECADES -> decades(least, most, count);
            case BYTES -> sizes(least, most, Math.min(count, MOST_SIZES));
        };
    }

    private static List<Double> linear(double least, double most, int count) {
        double rough = Math.max((most - least) / count, Double.MIN_NORMAL);
        double decade = Math.pow(10, Math.floor(Math.log10(rough)));
        double step = decade * (rough > 5 * decade ? 10 : rough > 2 * decade ? 5 : 2);
        List<Double> all = new ArrayList<>();
        for (long i = (long) Math.ceil(least / step); i * step <= most; i++) {
            all.add(i * step);
        }
        return all;
    }

    private static List<Double> decades(double least, double most, int count) {
        int first = (int) Math.floor(least);
        int stride = Math.max(1, Math.ceilDiv((int) Math.ceil(most) - first, count));
        // With few decades the lines between them are labelled too.
        int[] digits = most - least < count / 3.0 ? new int[] {1, 2, 5} : new int[] {1};
        List<Double> all = new ArrayList<>();
        for (int e = first; e <= most; e += stride) {
            for (int d : digits) {
                double place = e + Math.log10(d);
                if (place >= least && place <= most) {
                    all.add(d * Math.pow(10, e));
                }
            }
        }
        return all.size() < 2 ? between(least, most, count) : all;
    }

    /** Labels of a range that holds fewer than two of 1, 2, 5, 10... */
    private static List<Double> between(double least, double most, int count) {
        return linear(Math.pow(10, least), Math.pow(10, most), count);
    }

    private static List<Double> sizes(double least, double most, int count) {
        int first = (int) Math.ceil(least / Math.log10(2) - 1e-9);
        int last = (int) Math.floor(most / Math.log10(2) + 1e-9);
        int stride = Math.max(1, Math.ceilDiv(last - first + 1, count));
        List<Double> all = new ArrayList<>();
        for (int e = Math.ceilDiv(first, stride) * stride; e <= last; e += stride) {
            all.add(Math.pow(2, e));
        }
        return all.isEmpty() ? List.of(Math.pow(10, (least + most) / 2)) : all;
    }

    /** The label of a value. */
    String text(double value) {
        return scale == Scale.BYTES ? bytes(value) : number(value);
    }

    /**
     * A size.
     *
     * @param bytes 0 or more
     * @return with a binary unit, such as 64 KiB
     */
    public static String bytes(double bytes) {
        int unit = 0;
        double rest = bytes;
        while (rest >= 1023.5 && unit < BINARY.length - 1) {
            rest /= 1024;
            unit++;
        }
        return plain(rest) + " " + BINARY[unit];
    }

    /**
     * A number of three significant digits.
     *
     * @param value any
     * @return with K, M, G... from ten thousand on; - if the value is not finite
     */
    public static String number(double value) {
        if (!Double.isFinite(value)) {
            return "-";
        }
        double size = Math.abs(value);
        if (size != 0 && size < 1e-3) {
            return String.format(Locale.ROOT, "%.1e", value).replace(".0e", "e");
        }
        int unit = 0;
        double rest = value;
        while (Math.abs(rest) >= (unit == 0 ? 9999.5 : 999.5) && unit < DECIMAL.length - 1) {
            rest /= 1000;
            unit++;
        }
        return plain(rest) + DECIMAL[unit];
    }

    /** Three significant digits, without trailing zeros. */
    private static String plain(double value) {
        double size = Math.abs(value);
        if (size == 0) {
            return "0";
        }
        int decimals = Math.clamp(2 - (int) Math.floor(Math.log10(size)), 0, 5);
        String text = String.format(Locale.ROOT, "%." + decimals + "f", value);
        return decimals == 0 ? text : text.replaceFirst("\\.?0+$", "");
    }
}
