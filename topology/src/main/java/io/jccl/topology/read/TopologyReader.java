package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import io.jccl.topology.nccl.TopologyXml;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Reads the topology of a machine from a text: what {@code nvidia-smi topo -m}, {@code -mp}, {@code
 * -p2p} or {@code nvlink -s} printed, or NCCL's topology XML, with any text around it. Safe for use
 * by many threads.
 *
 * {@snippet class="snippets.Topologies" region="read"}
 */
public final class TopologyReader {
    /** A tool with similar output. */
    private record LookAlike(Pattern sign, String tool) {
        LookAlike(String sign, String tool) {
            this(Pattern.compile(sign), tool);
        }

        TopologyFormatException at(int line, int column) {
            return new TopologyFormatException(
                    line,
                    column,
                    "this is "
                            + tool
                            + ", which is not read here: expected nvidia-smi topo -m, -mp, -p2p or"
                            + " nvlink -s, or NCCL's topology XML");
        }
    }

    private static final LookAlike HWLOC =
            new LookAlike("<topology\\b|\\bhwloc2?\\.dtd", "XML of hwloc (lstopo)");

    /** Of tools that print a matrix too, which looks damaged here. */
    private static final List<LookAlike> MATRICES =
            List.of(
                    new LookAlike(
                            "ROCm System Management|(Weight|Hops|Link Type) between two GPUs"
                                    + "|\\bXGMI\\b",
                            "output of rocm-smi or amd-smi of AMD"),
                    new LookAlike(
                            "\\bICN\\d|\\bPPU\\d|ppu-smi", "output of ppu-smi of Alibaba's PPUs"));

    private static final List<LookAlike> LOOK_ALIKES =
            List.of(
                    HWLOC,
                    new LookAlike(
                            "^available: \\d+ nodes|^node distances:", "output of numactl -H"),
                    new LookAlike(
                            "=== System : maxBw|\\bNCCL (INFO|WARN|TRACE)\\b",
                            "NCCL's log (NCCL writes a topology that is read to the file that"
                                    + " NCCL_TOPO_DUMP_FILE names)"));

    private static final Pattern ICN = Pattern.compile("ICN\\d+");

    /** NCCL's XML; graphs are refused by name. */
    private static final Pattern XML = Pattern.compile("<(system|graphs)\\s+version=");

    private TopologyReader() {}

    /**
     * Reads the tables of nvidia-smi.
     *
     * @param text what was printed
     * @param options how to read it
     * @return the path matrix if there is one, else the p2p matrix, else the state of the NVLinks
     * @throws TopologyFormatException if the text has none of these, or is damaged
     */
    public static Dump dump(String text, ReadOptions options) {
        if (isXml(text, options)) {
            throw new TopologyFormatException(
                    1, 1, "found XML: expected output of nvidia-smi, which a table can be read of");
        }
        return dump(text, Text.lines(text), options);
    }

    private static Dump dump(String text, List<Text.Line> lines, ReadOptions options) {
        Dump matrix;
        try {
            matrix = MatrixParser.parse(lines, options.lenient());
        } catch (TopologyFormatException e) {
            TopologyFormatException other = lookAlike(MATRICES, lines);
            throw other != null ? other : e;
        }
        if (matrix != null) {
            return matrix;
        }
        NvlinkStatus status = NvlinkParser.parse(lines, options.lenient());
        if (status != null) {
            return status;
        }
        throw unknown(text, lines);
    }

    /**
     * Reads the graph of a machine.
     *
     * @param text what was printed, or XML
     * @param options how to read it
     * @return the graph, with warnings about what is damaged, guessed or left out
     * @throws TopologyFormatException if the text is none of the formats, or damaged
     */
    public static Topology topology(String text, ReadOptions options) {
        return read(text, options).topology();
    }

    /**
     * The content of a text.
     *
     * @param topology the graph of the machine
     * @param dump the table that it was inferred from; null if the text is XML
     */
    public record Reading(Topology topology, @Nullable Dump dump) {}

    /**
     * Reads the graph of a machine, and the table that it comes from.
     *
     * @param text what was printed, or XML
     * @param options how to read it
     * @return both
     * @throws TopologyFormatException if the text is none of the formats, or damaged
     */
    public static Reading read(String text, ReadOptions options) {
        if (isXml(text, options)) {
            return xml(text, options);
        }
        List<Text.Line> lines = Text.lines(text);
        if (options.format() == Format.AUTO
                && XML.matcher(text).find()
                && !MatrixParser.isIn(lines)) {
            return xml(text, options);
        }
        Dump dump = dump(text, lines, options);
        ReadOptions known = options;
        if (!(dump instanceof NvlinkStatus) && options.nvlinks() == null) {
            // A pasted session may also have the names and rates.
            known = options.withNvlinks(NvlinkParser.parse(lines, true));
        }
        return new Reading(topology(dump, known), dump);
    }

    /**
     * Infers the graph of a machine from a table.
     *
     * @param dump the table
     * @param options additional facts about the machine
     * @return the graph, with warnings about what is damaged, guessed or left out
     */
    public static Topology topology(Dump dump, ReadOptions options) {
        return switch (dump) {
            case PathMatrix m -> refuseLookAlike(m, options);
            case P2pMatrix m ->
                    MatrixGraph.build(
                            alone(
                                    m.gpus(),
                                    m.codes(),
                                    m.warnings(),
                                    "-p2p shows which GPUs reach each other, not by which links:"
                                            + " read nvidia-smi topo -m for these"),
                            options);
            case NvlinkStatus s ->
                    MatrixGraph.build(
                            alone(
                                    s.gpus().stream().map(gpu -> "GPU" + gpu.index()).toList(),
                                    List.of(),
                                    s.warnings(),
                                    "nvlink -s shows the links of each GPU, not where they lead:"
                                            + " read nvidia-smi topo -m as well"),
                            options.withNvlinks(s));
        };
    }

    private static Topology refuseLookAlike(PathMatrix matrix, ReadOptions options) {
        for (List<PathCode> row : matrix.codes()) {
            for (PathCode code : row) {
                if (!options.lenient() && ICN.matcher(code.text()).matches()) {
                    throw new TopologyFormatException(
                            0,
                            0,
                            "found the code "
                                    + code
                                    + ", which ppu-smi of Alibaba's PPUs prints: expected the"
                                    + " output of nvidia-smi topo -m");
                }
            }
        }
        return MatrixGraph.build(matrix, options);
    }

    /** GPUs without paths. */
    private static PathMatrix alone(
            List<String> names, List<List<PathCode>> codes, List<Warning> warnings, String why) {
        List<PathMatrix.GpuRow> gpus = new ArrayList<>();
        List<List<PathCode>> cells = new ArrayList<>();
        for (int i = 0; i < names.size(); i++) {
            String name = names.get(i);
            int index = Integer.parseInt(name.substring(3));
            gpus.add(new PathMatrix.GpuRow(name, index, null, null, null));
            List<PathCode> row = new ArrayList<>();
            for (int j = 0; j < names.size(); j++) {
                row.add(
                        i == j
                                ? PathCode.SELF
                                : codes.isEmpty() ? PathMatrix.MISSING : codes.get(i).get(j));
            }
            cells.add(row);
        }
        List<Warning> all = new ArrayList<>(warnings);
        all.add(Warning.of(why));
        return new PathMatrix(gpus, List.of(), cells, all);
    }

    /** Of several topologies the first; lines keep their numbers. */
    private static Reading xml(String text, ReadOptions options) {
        String xml = text;
        Matcher start = XML.matcher(text);
        if (start.find()) {
            int from = start.start();
            String head = text.substring(0, from);
            String last = "</" + start.group(1) + ">";
            int end = text.indexOf(last, from);
            if (startsAsXml(text)) {
                // A comment at its head may have another.
                end = text.lastIndexOf(last);
            } else {
                head = "\n".repeat((int) head.chars().filter(c -> c == '\n').count());
            }
            xml = head + text.substring(from, end < from ? text.length() : end + last.length());
        }
        Topology read;
        try {
            read = TopologyXml.read(xml, options.lenient(), options.name());
        } catch (TopologyFormatException e) {
            boolean hwloc = HWLOC.sign.matcher(text).find() && !XML.matcher(text).find();
            throw hwloc ? HWLOC.at(0, 0) : e;
        }
        return new Reading(TopologyOverrides.of(read, options, List.of()), null);
    }

    private static boolean isXml(String text, ReadOptions options) {
        return options.format() == Format.AUTO
                ? startsAsXml(text)
                : options.format() == Format.NCCL_XML;
    }

    private static boolean startsAsXml(String text) {
        int i = 0;
        while (i < text.length()
                && (Character.isWhitespace(text.charAt(i)) || text.charAt(i) == '\ufeff')) {
            i++;
        }
        for (String tag : new String[] {"<?xml", "<!--", "<!DOCTYPE", "<system", "<graphs"}) {
            if (text.startsWith(tag, i)) {
                return true;
            }
        }
        return false;
    }

    private static @Nullable TopologyFormatException lookAlike(
            List<LookAlike> others, List<Text.Line> lines) {
        for (LookAlike other : others) {
            for (Text.Line line : lines) {
                if (other.sign.matcher(line.text()).find()) {
                    return other.at(line.number(), line.column(line.start()));
                }
            }
        }
        return null;
    }

    private static TopologyFormatException unknown(String text, List<Text.Line> lines) {
        for (List<LookAlike> others : List.of(MATRICES, LOOK_ALIKES)) {
            TopologyFormatException other = lookAlike(others, lines);
            if (other != null) {
                return other;
            }
        }
        return new TopologyFormatException(
                0,
                0,
                ("no topology found in %s lines (%s characters): expected the"
                                + " output of nvidia-smi topo -m, whose header starts with GPU0"
                                + " and whose rows start with GPU0, GPU1, ..., that of nvidia-smi"
                                + " topo -p2p or nvlink -s, or NCCL's topology XML")
                        .formatted(lines.size(), text.length()));
    }
}
