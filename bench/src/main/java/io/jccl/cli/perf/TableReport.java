package io.jccl.cli.perf;

import io.jccl.bench.PerfConfig;
import io.jccl.bench.Report;
import io.jccl.cli.shell.Version;
import java.io.PrintWriter;
import java.math.BigDecimal;
import java.math.MathContext;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/** The table of nccl-tests, column for column. */
final class TableReport implements Report {
    private static final List<String> CASE = List.of("size", "count", "type", "redop", "root");
    private static final List<String> CASE_UNITS = List.of("(B)", "(elements)", "", "", "");
    private static final int[] CASE_WIDTHS = {10, 12, 8, 6, 6};
    private static final List<String> TIMES = List.of("time", "algbw", "busbw", "#wrong");
    private static final List<String> TIMES_UNITS = List.of("(us)", "(GB/s)", "(GB/s)", "");
    private static final int[] TIMES_WIDTHS = {7, 6, 6, 6};
    private static final List<String> ITERATION = List.of("i_min", "i_max", "i_p99", "i_cv%");
    private static final List<String> ITERATION_UNITS = List.of("(us)", "(us)", "(us)", "(%)");
    private static final int[] ITERATION_WIDTHS = {7, 7, 7, 7};

    private final PrintWriter out;
    private boolean perIteration;
    private String command = "";

    TableReport(PrintWriter out) {
        this.out = out;
    }

    @Override
    public void begin(PerfConfig config, String engine, List<RankInfo> ranks) {
        perIteration = config.perIteration();
        command = "jccl " + config.collective().command();
        boolean factor = config.stepFactor() > 1;
        println("# jccl version " + Version.TEXT + " " + engine);
        println("# Collective test starting: " + command);
        println(
                "# nThread "
                        + config.threads()
                        + " nGpus "
                        + config.devices()
                        + " nRanks "
                        + ranks.size()
                        + " minBytes "
                        + config.minBytes()
                        + " maxBytes "
                        + config.maxBytes()
                        + " step: "
                        + (factor ? config.stepFactor() : config.stepBytes())
                        + (factor ? "(factor)" : "(bytes)")
                        + " warmup iters: "
                        + config.warmups()
                        + " iters: "
                        + config.iterations()
                        + " agg iters: "
                        + config.aggregated()
                        + " validation: "
                        + config.checks()
                        + " algorithm: "
                        + algorithm(config));
        if (config.blocking()) {
            println("# Blocking Enabled: barrier after each iteration, within the time");
        }
        if (perIteration) {
            println("# Per-Iteration Report: i_* are of the slowest rank's time in each iteration");
        }
        println("#");
        println("# Using devices");
        for (RankInfo r : ranks) {
            println(
                    format(
                            "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s",
                            r.rank(), 0, r.pid(), r.host(), r.index(), r.engine(), r.model()));
        }
        println("#");
        String blank = format("# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
        int width = perIteration ? 67 : 31;
        println(blank + centred("out-of-place", width) + centred("in-place", width));
        println("# " + headings(CASE, TIMES, ITERATION));
        println("# " + headings(CASE_UNITS, TIMES_UNITS, ITERATION_UNITS));
        out.flush();
    }

    private static String algorithm(PerfConfig config) {
        return config.options().algorithm().name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    private String headings(List<String> line, List<String> times, List<String> iteration) {
        StringBuilder text = new StringBuilder(columns(line, CASE_WIDTHS));
        for (int side = 0; side < 2; side++) {
            text.append("  ").append(columns(times, TIMES_WIDTHS));
            if (perIteration) {
                text.append("  ").append(columns(iteration, ITERATION_WIDTHS));
            }
        }
        return text.toString();
    }

    @Override
    public void line(Line line) {
        println(
                format(
                                "%12d  %12d  %8s  %6s  %6d",
                                line.bytes(), line.count(), line.type(), line.op(), line.root())
                        + side(line.outOfPlace())
                        + side(line.inPlace()));
        out.flush();
    }

    private String side(@Nullable Measurement m) {
        List<String> times =
                m == null
                        ? List.of("N/A", "N/A", "N/A", "N/A")
                        : List.of(
                                number(m.micros(), 7),
                                number(m.algBw(), 6),
                                number(m.busBw(), 6),
                                m.wrong() < 0 ? "N/A" : general((double) m.wrong()));
        String text = "  " + columns(times, TIMES_WIDTHS);
        if (!perIteration) {
            return text;
        }
        Iterations i = m == null ? null : m.iterations();
        List<String> single =
                i == null
                        ? List.of("N/A", "N/A", "N/A", "N/A")
                        : List.of(
                                number(i.min(), 7),
                                number(i.max(), 7),
                                number(i.p99(), 7),
                                number(i.cv(), 7));
        return text + "  " + columns(single, ITERATION_WIDTHS);
    }

    @Override
    public void end(Summary summary) {
        boolean okay = summary.outOfBounds() == 0;
        println("# Out of bounds values : " + summary.outOfBounds() + (okay ? " OK" : " FAILED"));
        println("# Avg bus bandwidth    : " + general(summary.busBw()) + " ");
        println("#");
        println("# Collective test concluded: " + command);
        println("#");
        out.flush();
    }

    /** As many decimals as fit the width, two at most. */
    static String number(double value, int width) {
        for (String pattern : List.of("%.2f", "%.1f", "%.0f")) {
            String text = format(pattern, value);
            if (text.length() <= width) {
                return text;
            }
        }
        return format(width >= 7 ? "%.1e" : "%.0e", value);
    }

    /** As C's {@code %g} writes it: six significant digits, no zeros behind them. */
    static String general(double value) {
        if (value == 0 || !Double.isFinite(value)) {
            return value == 0 ? "0" : Double.toString(value);
        }
        BigDecimal rounded = new BigDecimal(value).round(new MathContext(6)).stripTrailingZeros();
        int exponent = rounded.precision() - rounded.scale() - 1;
        if (exponent >= -4 && exponent < 6) {
            return rounded.toPlainString();
        }
        String digits = rounded.unscaledValue().abs().toString();
        return (rounded.signum() < 0 ? "-" : "")
                + digits.charAt(0)
                + (digits.length() > 1 ? "." + digits.substring(1) : "")
                + format("e%s%02d", exponent < 0 ? "-" : "+", Math.abs(exponent));
    }

    private static String columns(List<String> texts, int[] widths) {
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < widths.length; i++) {
            line.append(i == 0 ? "" : "  ");
            line.repeat(' ', Math.max(0, widths[i] - texts.get(i).length())).append(texts.get(i));
        }
        return line.toString();
    }

    private static String centred(String text, int width) {
        int before = (width - text.length()) / 2;
        return " ".repeat(before) + text + " ".repeat(width - text.length() - before);
    }

    @SuppressWarnings("AnnotateFormatMethod") // the annotation would be a dependency
    private static String format(String pattern, Object... values) {
        return String.format(Locale.ROOT, pattern, values);
    }

    /** Lines end alike everywhere, for the scripts that read them. */
    private void println(String line) {
        out.print(line + "\n");
    }
}
