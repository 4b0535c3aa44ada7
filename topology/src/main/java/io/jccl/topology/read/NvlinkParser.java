package io.jccl.topology.read;

import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import io.jccl.topology.read.NvlinkStatus.GpuLinks;
import io.jccl.topology.read.NvlinkStatus.Lane;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Reads {@code nvidia-smi nvlink -s}, and the names that {@code nvidia-smi -L} prints. */
final class NvlinkParser {
    private static final int MAX_GPUS = 1024;

    /** The name ends at the parenthesis of the UUID, if that is there. */
    private static final Pattern GPU = Pattern.compile("GPU (\\d{1,4}): (.{1,200})");

    private static final Pattern LINK = Pattern.compile("Link (\\d{1,3}): *(.{0,200})");
    private static final Pattern RATE =
            Pattern.compile("(\\d{1,6}(?:\\.\\d{1,9})?) ?([GM]B/s)(?:\\s.*)?");

    private NvlinkParser() {}

    /** Null if the text has nothing of the kind. */
    static @Nullable NvlinkStatus parse(List<Text.Line> lines, boolean lenient) {
        TreeMap<Integer, String> models = new TreeMap<>();
        TreeMap<Integer, List<Lane>> lanes = new TreeMap<>();
        List<Integer> order = new ArrayList<>();
        List<Warning> warnings = new ArrayList<>();
        int gpu = -1;
        for (Text.Line line : lines) {
            int start = line.start();
            if (!line.text().startsWith("GPU ", start) && !line.text().startsWith("Link ", start)) {
                continue;
            }
            String text = line.text().substring(start).strip();
            Matcher m = GPU.matcher(text);
            if (m.matches()) {
                gpu = Integer.parseInt(m.group(1));
                String model = model(m.group(2));
                String before = models.put(gpu, model);
                if (before == null) {
                    order.add(gpu);
                    if (order.size() > MAX_GPUS) {
                        throw new TopologyFormatException(
                                line.number(), 0, "more than " + MAX_GPUS + " GPUs");
                    }
                } else if (!before.equals(model)) {
                    problem(
                            lenient,
                            warnings,
                            line,
                            start,
                            "GPU " + gpu + " is called " + model + ", and further up " + before);
                }
                continue;
            }
            m = LINK.matcher(text);
            if (gpu < 0 || !m.matches()) {
                continue;
            }
            if (m.group(2).isEmpty() || isOtherAnswer(m.group(2))) {
                continue; // error counters (-e), remote ends (-R)
            }
            int link = Integer.parseInt(m.group(1));
            List<Lane> known = lanes.computeIfAbsent(gpu, g -> new ArrayList<>());
            if (known.stream().anyMatch(lane -> lane.index() == link)) {
                continue; // the command was run twice
            }
            double rate = rate(m.group(2).strip());
            if (rate < 0) {
                problem(
                        lenient,
                        warnings,
                        line,
                        start + m.start(2),
                        ("link %s of GPU %s has %s: expected a rate such as 26.562 GB/s, or"
                                        + " <inactive>")
                                .formatted(link, gpu, quote(m.group(2))));
            } else if (known.size() < 1000) {
                known.add(new Lane(link, rate));
            }
        }
        if (order.isEmpty()) {
            return null;
        }
        List<GpuLinks> gpus = new ArrayList<>();
        for (int index : order) {
            List<Lane> links = lanes.getOrDefault(index, List.of());
            int last = links.stream().mapToInt(Lane::index).max().orElse(-1);
            if (links.size() <= last && warnings.size() < 100) {
                warnings.add(
                        Warning.of(
                                "GPU %s has a link %s, but only %s of its links are in the text"
                                        .formatted(index, last, links.size())));
            }
            gpus.add(new GpuLinks(index, models.getOrDefault(index, ""), links));
        }
        return new NvlinkStatus(gpus, warnings);
    }

    private static boolean isOtherAnswer(String text) {
        return Character.isLetter(text.charAt(0)) && rate(text.strip()) < 0;
    }

    private static String model(String rest) {
        int paren = rest.indexOf(" (UUID");
        if (paren < 0) {
            paren = rest.indexOf(" (");
        }
        return (paren > 0 ? rest.substring(0, paren) : rest).strip();
    }

    /** GB/s; 0 if the link is down; negative if it is neither. */
    private static double rate(String text) {
        String lower = text.toLowerCase(Locale.ROOT);
        if (lower.contains("inactive") || lower.startsWith("n/a")) {
            return 0;
        }
        Matcher m = RATE.matcher(text);
        if (!m.matches()) {
            return -1;
        }
        double rate = Double.parseDouble(m.group(1)) * (m.group(2).equals("MB/s") ? 1e-3 : 1);
        return rate <= 10_000 ? rate : -1;
    }

    static String quote(String text) {
        String shown = text.length() <= 40 ? text : text.substring(0, 40) + "...";
        return "'" + shown + "'";
    }

    private static void problem(
            boolean lenient, List<Warning> warnings, Text.Line line, int at, String message) {
        if (!lenient) {
            throw new TopologyFormatException(line.number(), line.column(at), message);
        }
        if (warnings.size() < 100) {
            warnings.add(new Warning(line.number(), line.column(at), message));
        }
    }
}
