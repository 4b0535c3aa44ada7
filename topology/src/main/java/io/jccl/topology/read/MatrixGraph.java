package io.jccl.topology.read;

import io.jccl.topology.Gpu;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.Warning;
import io.jccl.topology.read.NvlinkStatus.GpuLinks;
import io.jccl.topology.read.PathMatrix.GpuRow;
import io.jccl.topology.read.PathMatrix.NicRow;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * Infers the graph of a machine from its path matrix.
 *
 * <p>The codes from PIX to SYS are distances in a tree, so the tree is built by uniting devices
 * level by level. A pair on NVLinks hides its PCIe code: such GPUs are placed by the codes that
 * they have to other devices, else by their affinities.
 */
final class MatrixGraph {
    /** Levels of the tree: below one switch, cascaded switches, a host bridge, a NUMA node. */
    private static final int PIX = 0;

    private static final int PXB = 1;
    private static final int PHB = 2;
    private static final int NODE = 3;
    private static final int SYS = 4;

    /** No PCIe code: NVLinks hide it, or the text lacks it. */
    private static final int HIDDEN = 5;

    /** Up to this number all NUMA nodes are linked to each other, as in NCCL. */
    private static final int MAX_MESH = 16;

    private final PathMatrix matrix;
    private final ReadOptions options;
    private final int gpus;
    private final int size;
    private final Topology.Builder b;
    private final List<Warning> warnings = new ArrayList<>();
    private final Set<String> names = new HashSet<>();
    private final List<List<Integer>> fabrics;
    private final GpuGenerations generations;

    private MatrixGraph(PathMatrix matrix, ReadOptions options) {
        this.matrix = matrix;
        this.options = options;
        gpus = matrix.gpus().size();
        size = gpus + matrix.nics().size();
        b = new Topology.Builder(options.name());
        fabrics = fabrics();
        generations = new GpuGenerations(matrix, options, fabrics, this::warn);
    }

    static Topology build(PathMatrix matrix, ReadOptions options) {
        return new MatrixGraph(matrix, options).build();
    }

    private Topology build() {
        for (int i = 0; i < gpus; i++) {
            GpuRow row = matrix.gpus().get(i);
            names.add(row.name());
            b.add(
                    new Gpu(
                            i,
                            row.name(),
                            row.index(),
                            generations.model(i),
                            generations.sm(i),
                            generations.source(),
                            null,
                            row.cpuAffinity(),
                            row.numaAffinity(),
                            row.gpuNumaId()));
        }
        for (int i = gpus; i < size; i++) {
            NicRow row = matrix.nics().get(i - gpus);
            names.add(row.name());
            b.add(new Nic(i, row.name(), row.device(), options.nicGbps()));
        }
        for (int i = 0; i < size; i++) {
            for (int j = i + 1; j < size; j++) {
                if (!PathMatrix.isMissing(matrix.code(i, j))) {
                    b.code(i, j, matrix.code(i, j));
                }
            }
        }
        pcie();
        for (List<Integer> fabric : fabrics) {
            nvlink(fabric);
        }
        matrix.warnings().forEach(b::warn);
        NvlinkStatus status = options.nvlinks();
        if (status != null) {
            status.warnings().forEach(b::warn);
        }
        warnings.forEach(b::warn);
        return b.build();
    }

    private void warn(String message) {
        warnings.add(Warning.of(message));
    }

    private String name(int device) {
        return device < gpus
                ? matrix.gpus().get(device).name()
                : matrix.nics().get(device - gpus).name();
    }

    private String free(String wish) {
        String name = wish;
        while (!names.add(name)) {
            name += "'";
        }
        return name;
    }

    // ---- NVLink

    private int nv(int x, int y) {
        return x == y ? 0 : GpuModels.links(matrix.code(x, y));
    }

    /** Sets of GPUs that NVLinks join, of two or more. */
    private List<List<Integer>> fabrics() {
        DisjointSets union = new DisjointSets(gpus);
        for (int i = 0; i < gpus; i++) {
            for (int j = i + 1; j < gpus; j++) {
                if (nv(i, j) > 0) {
                    union.unite(i, j);
                }
            }
        }
        List<List<Integer>> fabrics = new ArrayList<>(union.groups(gpus).values());
        fabrics.removeIf(fabric -> fabric.size() < 2);
        return fabrics;
    }

    /** Switches if the codes claim more links than a GPU has; else from GPU to GPU. */
    private void nvlink(List<Integer> fabric) {
        Map<Integer, Integer> own = new HashMap<>();
        boolean tooMany = false;
        int limit = 0;
        for (int x : fabric) {
            int sum = 0;
            int most = 0;
            for (int y : fabric) {
                sum += nv(x, y);
                most = Math.max(most, nv(x, y));
            }
            own.put(x, most);
            tooMany |= sum > generations.maxLinks(x);
            limit = Math.max(limit, generations.maxLinks(x));
        }
        int pairs = 0;
        int fit = 0;
        for (int x : fabric) {
            for (int y : fabric) {
                if (x < y) {
                    pairs++;
                    int through = Math.min(own.getOrDefault(x, 0), own.getOrDefault(y, 0));
                    fit += nv(x, y) == through ? 1 : 0;
                }
            }
        }
        if (tooMany && fit == pairs) {
            int sw = b.addSwitch(free("nvswitch"), Switch.Kind.NVSWITCH);
            for (int x : fabric) {
                link(x, sw, own.getOrDefault(x, 1), x);
            }
            return;
        }
        if (tooMany) {
            warn(
                    ("the codes give GPUs around %s more NVLinks than the %s"
                                    + " that such a GPU has, but are not those of NVSwitches"
                                    + " either: links are drawn as printed")
                            .formatted(name(fabric.getFirst()), limit));
        }
        for (int x : fabric) {
            int sum = 0;
            for (int y : fabric) {
                sum += nv(x, y);
                if (x < y && nv(x, y) > 0) {
                    link(x, y, nv(x, y), y);
                }
            }
            GpuLinks links = generations.status(x);
            if (links != null && !links.links().isEmpty() && sum > links.active()) {
                warn(
                        ("%s has %s NVLinks in the matrix, and %s that are up according to"
                                        + " nvidia-smi nvlink -s")
                                .formatted(name(x), sum, links.active()));
            }
        }
    }

    private void link(int a, int to, int count, int other) {
        if (options.nvlinkGbps() > 0) {
            b.link(a, to, LinkKind.NVLINK, count, count * options.nvlinkGbps(), Source.USER);
            return;
        }
        double gbps = Math.min(generations.perLink(a), generations.perLink(other));
        Source source;
        if (generations.raw(a) > 0 && generations.raw(other) > 0) {
            source = Source.NVLINK_STATUS;
        } else if (generations.source() == Source.DEFAULT) {
            source = generations.sm(a) > 0 ? Source.NCCL_MODEL : Source.DEFAULT;
        } else {
            source = Source.GPU_MODEL;
        }
        b.link(a, to, LinkKind.NVLINK, count, count * gbps, source);
    }

    // ---- PCIe

    private int level(int x, int y) {
        return switch (matrix.code(x, y).kind()) {
            case PIX -> PIX;
            case PXB -> PXB;
            case PHB -> PHB;
            case NODE -> NODE;
            case SYS -> SYS;
            default -> HIDDEN;
        };
    }

    private void pcie() {
        DisjointSets[] at = new DisjointSets[SYS];
        for (int level = 0; level < SYS; level++) {
            at[level] = new DisjointSets(size);
        }
        BitSet[] sys = new BitSet[size];
        for (int i = 0; i < size; i++) {
            sys[i] = new BitSet(size);
            for (int j = 0; j < size; j++) {
                int level = i == j ? HIDDEN : level(i, j);
                if (level == SYS) {
                    sys[i].set(j);
                }
                for (int l = level; l < SYS; l++) {
                    at[l].unite(i, j);
                }
            }
        }
        contradictions(at);
        byAffinity(at[NODE], sys);
        draw(at);
    }

    /** Pairs whose code is farther than the codes to others allow. */
    private void contradictions(DisjointSets[] at) {
        int count = 0;
        String first = "";
        String[] level = {"PIX", "PXB", "PHB", "NODE"};
        for (int i = 0; i < size; i++) {
            for (int j = i + 1; j < size; j++) {
                int code = level(i, j);
                for (int l = 0; l < Math.min(code, SYS) && code != HIDDEN; l++) {
                    if (at[l].find(i) == at[l].find(j)) {
                        if (count++ == 0) {
                            first =
                                    "%s and %s print %s, but their codes to others join them by %s"
                                            .formatted(
                                                    name(i), name(j), matrix.code(i, j), level[l]);
                        }
                        break;
                    }
                }
            }
        }
        if (count > 0) {
            warn(
                    first
                            + (count > 1 ? " (and " + (count - 1) + " more such pairs)" : "")
                            + ": the matrix contradicts itself; the graph has them as near as"
                            + " in the others");
        }
    }

    /** The affinity of a GPU to a NUMA node; empty if unknown. */
    private String affinity(int gpu) {
        GpuRow row = matrix.gpus().get(gpu);
        for (String list : new @Nullable String[] {row.numaAffinity(), row.cpuAffinity()}) {
            if (list != null && !list.isEmpty() && !list.equals("N/A")) {
                return list;
            }
        }
        return "";
    }

    /** Unites GPUs whose place is not known from a PCIe code, unless a code between them is SYS. */
    private void byAffinity(DisjointSets node, BitSet[] sys) {
        Map<Integer, BitSet> members = new HashMap<>();
        Map<Integer, BitSet> apart = new HashMap<>();
        for (int i = 0; i < size; i++) {
            members.computeIfAbsent(node.find(i), k -> new BitSet()).set(i);
            apart.computeIfAbsent(node.find(i), k -> new BitSet()).or(sys[i]);
        }
        Map<String, List<Integer>> byAffinity = new LinkedHashMap<>();
        String conflict = "";
        for (int i = 0; i < gpus; i++) {
            List<Integer> roots = byAffinity.computeIfAbsent(affinity(i), k -> new ArrayList<>());
            boolean placed = false;
            for (int k = 0; k < roots.size() && !placed; k++) {
                int x = node.find(roots.get(k));
                int y = node.find(i);
                if (x == y) {
                    placed = true;
                } else if (!members.getOrDefault(x, NONE).intersects(apart.getOrDefault(y, NONE))
                        && !apart.getOrDefault(x, NONE).intersects(members.getOrDefault(y, NONE))) {
                    BitSet m = (BitSet) members.getOrDefault(x, NONE).clone();
                    m.or(members.getOrDefault(y, NONE));
                    BitSet a = (BitSet) apart.getOrDefault(x, NONE).clone();
                    a.or(apart.getOrDefault(y, NONE));
                    node.unite(x, y);
                    members.put(node.find(x), m);
                    apart.put(node.find(x), a);
                    placed = true;
                }
            }
            if (!placed) {
                if (!roots.isEmpty() && isNumber(affinity(i)) && conflict.isEmpty()) {
                    conflict = name(roots.getFirst()) + " and " + name(i);
                }
                roots.add(i);
            }
        }
        if (!conflict.isEmpty()) {
            warn(
                    conflict
                            + " have the same NUMA affinity, but codes of theirs are SYS, as virtual"
                            + " machines and job limits make them: they are taken as printed, for"
                            + " devices of two NUMA nodes");
        }
    }

    private static final BitSet NONE = new BitSet();

    private static boolean isNumber(String list) {
        return !list.isEmpty()
                && list.length() < 6
                && list.chars().allMatch(c -> c >= '0' && c <= '9');
    }

    private void draw(DisjointSets[] at) {
        double slot = LinkModel.pcieOf(generations.newestSm());
        Source source = generations.source() == Source.DEFAULT ? Source.DEFAULT : Source.NCCL_MODEL;
        List<Integer> numas = new ArrayList<>();
        Map<Integer, List<Integer>> nodes = at[NODE].groups(size);
        Map<Integer, String> called = numaNames(nodes);
        int[] number = new int[2];
        for (Map.Entry<Integer, List<Integer>> node : nodes.entrySet()) {
            int numa = b.addSwitch(called.getOrDefault(node.getKey(), "numa"), Switch.Kind.NUMA);
            numas.add(numa);
            for (List<Integer> bridged : at[PHB].groups(node.getValue()).values()) {
                int bridge =
                        b.addSwitch(free("host-bridge" + number[0]++), Switch.Kind.HOST_BRIDGE);
                b.link(bridge, numa, LinkKind.HOST_BRIDGE, 1, 2 * slot, Source.DEFAULT);
                for (List<Integer> cascade : at[PXB].groups(bridged).values()) {
                    cascade(cascade, at[PIX], bridge, slot, source, number);
                }
            }
            for (int device : node.getValue()) {
                if (device < gpus && generations.c2c(device) > 0) {
                    b.link(
                            device,
                            numa,
                            LinkKind.C2C,
                            1,
                            generations.c2c(device),
                            Source.GPU_MODEL);
                }
            }
        }
        for (int i = 0; i < numas.size(); i++) {
            for (int j = i + 1; j < numas.size() && (i == 0 || numas.size() <= MAX_MESH); j++) {
                b.link(
                        numas.get(i),
                        numas.get(j),
                        LinkKind.SMP,
                        1,
                        LinkModel.DEFAULT_SMP,
                        Source.DEFAULT);
            }
        }
        if (numas.size() > MAX_MESH) {
            warn(
                    "the codes make "
                            + numas.size()
                            + " NUMA nodes, which are drawn as a star: that many SYS mostly come"
                            + " from the limits of a container");
        }
    }

    private void cascade(
            List<Integer> devices,
            DisjointSets pix,
            int bridge,
            double slot,
            Source source,
            int[] number) {
        int above = bridge;
        Map<Integer, List<Integer>> below = pix.groups(devices);
        if (below.size() > 1) {
            above = b.addSwitch(free("pcie-switch" + number[1]++), Switch.Kind.PCIE_SWITCH);
            b.link(above, bridge, LinkKind.PCIE, 1, slot, source);
        }
        for (List<Integer> group : below.values()) {
            int port = above;
            if (group.size() > 1) {
                port = b.addSwitch(free("pcie-switch" + number[1]++), Switch.Kind.PCIE_SWITCH);
                b.link(port, above, LinkKind.PCIE, 1, slot, source);
            }
            for (int device : group) {
                double own = device < gpus ? LinkModel.pcieOf(generations.sm(device)) : slot;
                b.link(device, port, LinkKind.PCIE, 1, own, source);
            }
        }
    }

    /** Names by the GPUs' affinity where they agree on one number, else by free numbers. */
    private Map<Integer, String> numaNames(Map<Integer, List<Integer>> nodes) {
        Map<Integer, String> called = new HashMap<>();
        for (Map.Entry<Integer, List<Integer>> node : nodes.entrySet()) {
            Set<String> lists = new TreeSet<>();
            for (int device : node.getValue()) {
                String numa = device < gpus ? matrix.gpus().get(device).numaAffinity() : null;
                if (numa != null && !numa.isEmpty()) {
                    lists.add(numa);
                }
            }
            String list = lists.size() == 1 ? lists.iterator().next() : "";
            if (isNumber(list) && names.add("numa" + list)) {
                called.put(node.getKey(), "numa" + list);
            }
        }
        int next = 0;
        for (int root : nodes.keySet()) {
            while (!called.containsKey(root)) {
                if (names.add("numa" + next)) {
                    called.put(root, "numa" + next);
                }
                next++;
            }
        }
        return called;
    }
}
