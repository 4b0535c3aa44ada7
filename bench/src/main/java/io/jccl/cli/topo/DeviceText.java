package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.count;
import static io.jccl.cli.topo.TextLines.cut;
import static io.jccl.cli.topo.TextLines.ranges;
import static io.jccl.cli.topo.TextLines.rate;

import io.jccl.cli.shell.Output;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The part of the report about devices and the links between them. */
final class DeviceText {
    /** Further lines about devices are only counted. */
    private static final int DEVICES = 24;

    /** NICs at the shortest distance from a GPU. */
    record Near(int distance, String code, List<String> nics) {}

    private final Findings f;
    private final TextLines out;
    private final Map<String, Near> nearest;

    private DeviceText(Findings f, TextLines out) {
        this.f = f;
        this.out = out;
        nearest = near(f.links());
    }

    static void write(Findings f, TextLines out) {
        DeviceText text = new DeviceText(f, out);
        text.machine();
        text.links();
    }

    private void machine() {
        out.line(
                f.name()
                        + ": "
                        + count(f.gpus().size(), "GPU")
                        + (f.nics().isEmpty() ? "" : ", " + count(f.nics().size(), "NIC")));
        Map<String, List<Integer>> alike = new LinkedHashMap<>();
        for (int i = 0; i < f.gpus().size(); i++) {
            alike.computeIfAbsent(about(i), k -> new ArrayList<>()).add(f.index(i));
        }
        List<List<String>> rows = new ArrayList<>();
        alike.forEach((about, indices) -> {
            List<String> row = new ArrayList<>(List.of("  GPU" + ranges(indices)));
            row.addAll(List.of(about.split("\t", -1)));
            rows.add(row);
        });
        out.table(rows, DEVICES, "more kinds of GPUs", 0);
        StringBuilder b = new StringBuilder();
        for (Findings.NicRow nic : f.nics()) {
            Double gbps = nic.gbps();
            String device = nic.name().equals(nic.device()) ? null : nic.device();
            if (device == null && gbps == null) {
                continue;
            }
            String text =
                    Output.oneLine(nic.name())
                            + (device == null ? "" : " " + Output.oneLine(device))
                            + (gbps == null ? "" : " " + rate(gbps) + " GB/s");
            if (!b.isEmpty() && b.length() + text.length() + 2 > TextLines.WIDTH) {
                out.line(b.append(',').toString());
                b.setLength(0);
            }
            b.append(b.isEmpty() ? "  " : ", ").append(text);
        }
        if (!b.isEmpty()) {
            out.line(b.toString());
        }
    }

    /** Properties that the GPUs of one line have in common, in columns. */
    private String about(int place) {
        Findings.GpuRow gpu = f.gpus().get(place);
        List<String> columns = new ArrayList<>();
        columns.add(gpu.model() == null ? "" : Output.oneLine(gpu.model()));
        String cc = gpu.computeCapability();
        columns.add(cc == null ? "" : "compute " + cc);
        Integer links = gpu.nvlinks();
        Double rate = gpu.nvlinkGbps();
        columns.add(
                links == null
                        ? ""
                        : links + " NVLinks up" + (rate == null ? "" : ", " + rate + " GB/s raw"));
        columns.add(known("NUMA ", gpu.numaAffinity()));
        columns.add(known("CPUs ", gpu.cpuAffinity()));
        Near near = nearest.get(gpu.name());
        columns.add(
                near == null
                        ? ""
                        : "near " + cut(String.join(" ", near.nics), 40) + " (" + near.code + ")");
        return String.join("\t", columns);
    }

    private static String known(String label, @Nullable String value) {
        return value == null || value.isEmpty() || value.equals("N/A")
                ? ""
                : label + cut(Output.oneLine(value), 30);
    }

    /** The NICs that each GPU reaches by the shortest kind of path, in one pass over all pairs. */
    static Map<String, Near> near(List<Findings.Pair> pairs) {
        List<String> order = List.of("PIX", "PXB", "PHB", "NODE");
        Map<String, Near> all = new HashMap<>();
        for (Findings.Pair p : pairs) {
            int distance = p.toNic() ? order.indexOf(p.code()) : -1;
            if (distance < 0) {
                continue;
            }
            Near near = all.get(p.a());
            if (near == null || distance < near.distance) {
                near = new Near(distance, p.code(), new ArrayList<>());
                all.put(p.a(), near);
            }
            if (distance == near.distance) {
                near.nics.add(Output.oneLine(p.b()));
            }
        }
        return all;
    }

    private void links() {
        // By code and bandwidth, in order of first occurrence.
        record Sort(String code, String kind, @Nullable Double gbps) {}
        Map<Sort, List<Findings.Pair>> sorts = new LinkedHashMap<>();
        for (Findings.Pair p : f.links()) {
            if (!p.toNic()) {
                sorts.computeIfAbsent(
                                new Sort(p.code(), p.kind(), p.gbps()), k -> new ArrayList<>())
                        .add(p);
            }
        }
        if (sorts.isEmpty()) {
            return;
        }
        out.line("");
        out.line("Between GPUs (GB/s per direction, for a pair that has the path to itself)");
        List<List<String>> rows = new ArrayList<>();
        sorts.forEach((sort, pairs) ->
                rows.add(
                        List.of(
                                "  " + Output.oneLine(sort.code),
                                count(pairs.size(), "pair"),
                                sort.gbps == null ? "" : rate(sort.gbps) + " GB/s",
                                sort.kind.replace('_', ' '),
                                sorts.size() == 1 ? "every pair" : which(pairs))));
        out.table(rows, DEVICES, "more kinds of paths", 1 << 1 | 1 << 2);
    }

    /** As many pairs as a line can show. */
    private static String which(List<Findings.Pair> pairs) {
        StringBuilder b = new StringBuilder();
        for (Findings.Pair p : pairs) {
            b.append(b.isEmpty() ? "" : " ")
                    .append(number(p.a()))
                    .append('-')
                    .append(number(p.b()));
            if (b.length() > TextLines.WIDTH) {
                break;
            }
        }
        return b.toString();
    }

    private static String number(String name) {
        return Output.oneLine(name.startsWith("GPU") ? name.substring(3) : name);
    }
}
