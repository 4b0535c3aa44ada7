package io.jccl.cli.probe;

import static io.jccl.cli.shell.Text.count;
import static io.jccl.cli.shell.Text.format;

import io.jccl.bench.probe.Outcome;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.cli.doctor.Hardware;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Sizes;
import io.jccl.cli.shell.Verdict;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** A probe's result as aligned tables, a unit in every heading. */
final class ProbeText {
    private static final String NONE = "-";

    private final StringBuilder text = new StringBuilder();

    private ProbeText() {}

    static String of(ProbeResult r) {
        ProbeText t = new ProbeText();
        t.head(r);
        t.memory(r);
        t.elementwise(r);
        t.matmul(r);
        t.latency(r);
        t.copies(r);
        t.allReduce(r);
        t.layers(r);
        t.roofline(r);
        for (String fault : r.faults()) {
            t.line("# " + Verdict.bad("WRONG OR FAILED") + ": " + fault);
        }
        for (String warning : r.warnings()) {
            t.line("# WARNING: " + warning);
        }
        return t.text.toString();
    }

    private void line(String line) {
        text.append(line).append('\n');
    }

    private void head(ProbeResult r) {
        Hardware m = r.machine();
        line(
                "# jccl "
                        + r.jcclVersion()
                        + " probe of "
                        + (r.device().kind().equals("host")
                                ? "the host, " + count(r.device().threads(), "thread")
                                : "cuda:" + r.device().index()));
        line(
                "# "
                        + (m.cpu() == null ? "unknown CPU" : m.cpu())
                        + (m.cores() == null ? "" : ", " + count(m.cores(), "core"))
                        + ", "
                        + count(m.availableCpus(), "CPU")
                        + " usable"
                        + (m.memoryBytes() == null
                                ? ""
                                : ", " + Amounts.text(m.memoryBytes()) + " of memory")
                        + (Boolean.TRUE.equals(m.virtualMachine()) ? ", a virtual machine" : ""));
        String caches =
                m.caches().stream()
                        .filter(Hardware.Cache::holdsData)
                        .map(c -> "L" + c.level() + " " + Sizes.format(c.bytes()))
                        .collect(Collectors.joining(", "));
        line("# " + (caches.isEmpty() ? "caches unknown" : "data caches of a CPU: " + caches));
        for (ProbeResult.Gpu g : r.gpus()) {
            line(
                    format(
                            "# cuda:%s %s, %s, %s",
                            g.index(), g.model(), g.pci(), Amounts.text(g.memoryBytes())));
        }
        line(
                "# Java "
                        + m.java()
                        + (m.vectorApi() ? "" : " WITHOUT the Vector API: products are slow")
                        + m.libraries().entrySet().stream()
                                .map(e -> ", " + e.getKey() + " " + e.getValue())
                                .collect(Collectors.joining()));
        line(
                format(
                        "# %s, %.0f s, load %s before; medians of batches",
                        r.startTime(), r.seconds(), number(r.loadBefore())));
    }

    private void memory(ProbeResult r) {
        table(
                "Memory bandwidth by working set",
                "access|bytes|threads|in|GB/s",
                r.memory().stream()
                        .map(m ->
                                cells(
                                        m.outcome(),
                                        m.access(),
                                        Sizes.format(m.bytes()),
                                        m.threads(),
                                        m.level(),
                                        number(m.gigabytesPerSecond()))));
    }

    private void elementwise(ProbeResult r) {
        List<String[]> rows = new ArrayList<>();
        Double copy = largestCopy(r);
        for (ProbeResult.Elementwise e : r.elementwise()) {
            List<Object> values =
                    new ArrayList<>(
                            List.of(
                                    e.operation(),
                                    e.type(),
                                    Sizes.format(e.elements()),
                                    e.threads(),
                                    time(e.outcome()),
                                    number(e.gigabytesPerSecond())));
            if (copy != null) {
                Double rate = e.gigabytesPerSecond();
                values.add(number(rate == null ? null : Double.valueOf(rate / copy)));
            }
            rows.add(cells(e.outcome(), values.toArray()));
        }
        String heads = "operation|type|elements|threads|us|GB/s";
        table("Elementwise operations", copy == null ? heads : heads + "|of a copy", rows.stream());
    }

    /** GB/s of the largest copy within device memory; null if there is none. */
    private static @Nullable Double largestCopy(ProbeResult r) {
        return r.memory().stream()
                .filter(m -> m.access().equals("copy") && m.gigabytesPerSecond() != null)
                .max(Comparator.comparingLong(ProbeResult.Access::bytes))
                .map(ProbeResult.Access::gigabytesPerSecond)
                .orElse(null);
    }

    private void matmul(ProbeResult r) {
        table(
                "Products of n x n matrices",
                "type|n|us|TFLOP/s",
                r.matmul().stream()
                        .map(p ->
                                cells(
                                        p.outcome(),
                                        p.type(),
                                        p.size(),
                                        time(p.outcome()),
                                        number(p.teraflops()))));
    }

    private void latency(ProbeResult r) {
        table(
                "Latency, one way between cores",
                "from|to|what|ns",
                r.latency().stream()
                        .map(l ->
                                cells(
                                        l.outcome(),
                                        l.from(),
                                        l.to(),
                                        l.how(),
                                        number(l.nanoseconds()))));
    }

    private void copies(ProbeResult r) {
        table(
                "Copies, as jccl bandwidth names them",
                "case|from|to|bytes|GB/s",
                r.copies().stream()
                        .map(c ->
                                cells(
                                        c.outcome(),
                                        c.name(),
                                        c.from(),
                                        c.to(),
                                        Sizes.format(c.bytes()),
                                        number(c.gigabytesPerSecond()))));
    }

    private void allReduce(ProbeResult r) {
        table(
                "allReduce of float32",
                "engine|ranks|bytes|algorithm|us|busbw GB/s",
                r.allReduce().stream()
                        .map(a ->
                                cells(
                                        a.outcome(),
                                        a.engine(),
                                        a.ranks(),
                                        Sizes.format(a.bytes()),
                                        a.algorithm() == null ? NONE : a.algorithm(),
                                        time(a.outcome()),
                                        number(a.busGigabytesPerSecond()))));
    }

    private void layers(ProbeResult r) {
        table(
                "A Transformer layer, float32",
                "part|hidden|heads|tokens|forward us|TFLOP/s|backward us|TFLOP/s",
                r.layers().stream()
                        .map(l ->
                                cells(
                                        l.forward(),
                                        l.part(),
                                        l.hidden(),
                                        l.heads(),
                                        l.sequences() + " x " + l.context(),
                                        time(l.forward()),
                                        number(l.forwardTeraflops()),
                                        time(l.backward()),
                                        number(l.backwardTeraflops()))));
    }

    private void roofline(ProbeResult r) {
        List<String[]> rows = new ArrayList<>();
        for (ProbeResult.Roofline.Compute c : r.roofline().compute()) {
            for (ProbeResult.Roofline.Bandwidth b : r.roofline().bandwidth()) {
                rows.add(
                        new String[] {
                            c.type(),
                            number(c.teraflops()),
                            b.level(),
                            number(b.gigabytesPerSecond()),
                            number(c.teraflops() * 1e3 / b.gigabytesPerSecond()),
                            ""
                        });
            }
        }
        table(
                "Roofline: below that many operations per byte memory is the limit",
                "type|TFLOP/s|from|GB/s|FLOP/B",
                rows.stream());
    }

    private static String[] cells(Outcome outcome, Object... values) {
        String[] cells =
                Arrays.copyOf(
                        Arrays.stream(values).map(String::valueOf).toArray(String[]::new),
                        values.length + 1);
        String note = outcome.note();
        boolean measured = outcome.status() == Outcome.Status.MEASURED;
        cells[values.length] =
                (measured ? "" : outcome.status().toString())
                        + (measured || note == null ? "" : ": ")
                        + (note == null ? "" : note);
        return cells;
    }

    private static String time(Outcome outcome) {
        return outcome.timing() == null ? NONE : number(outcome.timing().medianSeconds() * 1e6);
    }

    /** Three digits that count. */
    private static String number(@Nullable Double value) {
        if (value == null) {
            return NONE;
        }
        int before = value == 0 ? 1 : 1 + (int) Math.floor(Math.log10(Math.abs(value)));
        int decimals = Math.clamp(3 - before, 0, 6);
        return format("%." + decimals + "f", value);
    }

    /** Words aligned left, numbers right, remarks last. */
    private void table(String title, String heads, Stream<String[]> content) {
        List<String[]> rows = content.toList();
        if (rows.isEmpty()) {
            return;
        }
        String[] head = heads.split("\\|");
        int[] width = new int[head.length];
        boolean[] words = new boolean[head.length];
        for (int i = 0; i < head.length; i++) {
            width[i] = head[i].length();
            for (String[] row : rows) {
                width[i] = Math.max(width[i], row[i].length());
                words[i] |= !row[i].matches("[-0-9.]+[KMGT]?");
            }
        }
        line("");
        line("# " + title);
        line(joined(head, width, words, "#"));
        for (String[] row : rows) {
            line(joined(row, width, words, " "));
        }
    }

    private static String joined(String[] cells, int[] width, boolean[] words, String first) {
        StringBuilder b = new StringBuilder(first);
        for (int i = 0; i < width.length; i++) {
            String pad = " ".repeat(width[i] - cells[i].length());
            b.append(i == 0 ? " " : "  ").append(words[i] ? cells[i] + pad : pad + cells[i]);
        }
        if (cells.length > width.length && !cells[width.length].isEmpty()) {
            b.append("  ").append(cells[width.length]);
        }
        return b.toString().stripTrailing();
    }
}
