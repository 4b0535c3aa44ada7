package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.lower;

import io.jccl.bench.PerfConfig;
import io.jccl.bench.PerfConfig.Timing;
import io.jccl.bench.Report;
import io.jccl.cli.shell.ClosedOutput;
import io.jccl.cli.shell.Sizes;
import io.jccl.cli.shell.Verdict;
import io.jccl.cli.shell.Version;
import java.io.IOException;
import java.io.PrintWriter;
import java.math.BigDecimal;
import java.math.MathContext;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/** The table of nccl-tests, column for column. */
final class TableReport implements Report {
    private static final List<String> CASE = List.of("size", "count", "type", "redop", "root");
    private static final List<String> CASE_UNITS = List.of("(B)", "(elements)", "", "", "");
    private static final int[] CASE_WIDTHS = {10, 12, 8, 6, 6};
    private static final List<String> TIMES_UNITS = List.of("(us)", "(GB/s)", "(GB/s)", "");
    private static final int[] TIMES_WIDTHS = {7, 6, 6, 6};
    private static final List<String> ITERATION = List.of("i_min", "i_max", "i_p99", "i_cv%");
    private static final List<String> ITERATION_UNITS = List.of("(us)", "(us)", "(us)", "(%)");
    private static final int[] ITERATION_WIDTHS = {7, 7, 7, 7};

    private static final DateTimeFormatter TIMESTAMP =
            DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss", Locale.ROOT);

    private final PrintWriter out;
    private final boolean alone;
    private boolean perIteration;
    private boolean cpuTime;
    private boolean timestamps;
    private int warmups;
    private String command = "";

    /** A table; {@code alone}: if nobody reads it, the run ends. */
    TableReport(PrintWriter out, boolean alone) {
        this.out = out;
        this.alone = alone;
    }

    @Override
    public void begin(PerfConfig config, String engine, List<RankInfo> ranks) {
        Timing timing = config.timing();
        perIteration = timing.perIteration();
        cpuTime = timing.cpuTime();
        timestamps = timing.timestamps();
        warmups = timing.warmups();
        command = "jccl " + config.collective().command();
        boolean factor = config.stepFactor() > 1;
        println("# jccl version " + Version.TEXT + " " + engine);
        println("# Collective test starting: " + command);
        println(
                format(
                        "# nThread %s nGpus %s nRanks %s minBytes %s maxBytes %s step: %s%s"
                                + " warmup iters: %s iters: %s agg iters: %s validation: %s"
                                + " graph: %s unalign: %s algorithm: %s",
                        config.threads(),
                        config.devices(),
                        ranks.size(),
                        config.minBytes(),
                        config.maxBytes(),
                        factor ? config.stepFactor() : config.stepBytes(),
                        factor ? "(factor)" : "(bytes)",
                        timing.warmups(),
                        timing.iterations(),
                        timing.aggregated(),
                        config.checks(),
                        timing.graphLaunches(),
                        config.buffers().unalign(),
                        algorithm(config)));
        switch (timing.blocking()) {
            case NONE -> {}
            case BARRIER ->
                    println(
                            "# Blocking Enabled: each iteration is waited for, and the other ranks,"
                                    + " within the time");
            case WAIT -> println("# Blocking Enabled: each iteration is waited for, no barrier");
            case BARRIER_APART ->
                    println(
                            "# Blocking Enabled: each iteration is waited for; then a barrier, which"
                                    + " is not in the time");
        }
        if (perIteration) {
            println(
                    "# Per-Iteration Report: i_* are of the slowest rank's time in each iteration"
                            + (timing.skipped() > 0 ? " but the first " + timing.skipped() : ""));
        }
        if (config.split().isAsked()) {
            println(
                    format(
                            "# Groups: %s by %s; times are those of all ranks, bandwidths those"
                                    + " of rank 0's group",
                            config.split().sizes(ranks.size()).length, config.split().text()));
        }
        println("# Time: " + times(timing));
        config.notes().forEach(note -> println("# " + note));
        println("#");
        println("# Using devices");
        for (RankInfo r : ranks) {
            println(
                    format(
                            "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s%s",
                            r.rank(),
                            r.group(),
                            r.pid(),
                            r.host(),
                            r.index(),
                            r.engine(),
                            r.model(),
                            r.cpus().isEmpty() ? "" : " CPUs " + r.cpus()));
        }
        println("#");
        out.flush();
    }

    private static String times(Timing timing) {
        return "median of batches, "
                + switch (timing.average()) {
                    case RANK_0 -> "rank 0's";
                    case MEAN -> "mean of the ranks";
                    case MIN -> "the fastest rank's";
                    case MAX -> "the slowest rank's";
                }
                + (timing.isAutomatic(0)
                        ? "; below "
                                + Sizes.format(PerfConfig.AUTOMATIC_BELOW)
                                + " batches of about a millisecond, as there is no -n"
                        : "");
    }

    @Override
    public void warmed(WarmUp w) {
        println(
                warmups == 0
                        ? "# Warm-up: none (-w 0), so the first lines include what the JVM compiles"
                        : format(
                                "# Warm-up: %.2f s, %d operations a rank; windows agreed in %d of %d"
                                        + " paths (type, reduction)",
                                w.seconds(), w.operations(), w.steady(), w.paths()));
        println("#");
        String blank = format("# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
        int width = perIteration ? 67 : 31;
        println(blank + centred("out-of-place", width) + centred("in-place", width));
        List<String> times = List.of(cpuTime ? "cputime" : "time", "algbw", "busbw", "#wrong");
        String stamp = timestamps ? format("  %19s", "timestamp") : "";
        String form = timestamps ? format("  %19s", "%Y-%m-%d %H:%M:%S") : "";
        println("# " + headings(CASE, times, ITERATION) + stamp);
        println("# " + headings(CASE_UNITS, TIMES_UNITS, ITERATION_UNITS) + form);
        out.flush();
    }

    private static String algorithm(PerfConfig config) {
        return lower(config.options().algorithm()).replace('_', '-');
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
    public void line(Line line) throws IOException {
        println(
                format(
                                "%12d  %12d  %8s  %6s  %6d",
                                line.bytes(), line.count(), line.type(), line.op(), line.root())
                        + side(line.outOfPlace())
                        + side(line.inPlace())
                        + (timestamps ? "  " + line.time().format(TIMESTAMP) : ""));
        if (out.checkError() && alone) {
            throw ClosedOutput.error();
        }
    }

    private String side(@Nullable Measurement m) {
        List<String> times =
                m == null
                        ? List.of("N/A", "N/A", "N/A", "N/A")
                        : List.of(
                                number(cpuTime ? m.cpuMicros() : m.micros(), 7),
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
        println(
                format(
                        "# Out of bounds values : %s %s",
                        summary.outOfBounds(), Verdict.of(okay, "OK", "FAILED")));
        Boolean enough = summary.enough();
        println(
                "# Avg bus bandwidth    : "
                        + general(summary.busBw())
                        + " "
                        + (enough == null ? "" : Verdict.of(enough, "OK", "FAILED")));
        MemoryUse m = summary.memory();
        if (m != null) {
            String communicator = m.initialization() < 0 ? "" : bytes(m.initialization());
            println(
                    "# "
                            + (communicator.isEmpty()
                                    ? "Memory usage         : User-Allocated " + bytes(m.buffers())
                                    : format(
                                            "GPU memory usage     : Initialization %s |"
                                                    + " User-Allocated %s | Collective %s | Total"
                                                    + "  %s",
                                            communicator,
                                            bytes(m.buffers()),
                                            bytes(m.collective()),
                                            bytes(
                                                    m.initialization()
                                                            + m.buffers()
                                                            + m.collective()))));
        }
        if (summary.warning() != null) {
            println("# WARNING: " + summary.warning());
        }
        println("#");
        println("# Collective test concluded: " + command);
        println("#");
        out.flush();
    }

    /** As nccl-tests writes memory: three digits, powers of 1024. */
    static String bytes(long bytes) {
        String units = " KMG";
        double amount = bytes;
        int unit = 0;
        while (amount >= 1024 && unit < units.length() - 1) {
            amount /= 1024;
            unit++;
        }
        String pattern = amount < 10 ? "%.2f" : amount < 100 ? "%.1f" : "%.0f";
        return format(pattern, amount) + " " + (units.charAt(unit) + "B").strip();
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

    /** As C's {@code %g} writes it: six significant digits, no trailing zeros. */
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

    /** Lines end in the same way on every system, for the scripts that read them. */
    private void println(String line) {
        out.print(line + "\n");
    }
}
