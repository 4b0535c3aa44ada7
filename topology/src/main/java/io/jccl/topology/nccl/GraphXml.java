package io.jccl.topology.nccl;

import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * NCCL's graph XML, the file of {@code NCCL_GRAPH_FILE}: it makes NCCL use a plan's rings.
 *
 * <p>How NCCL uses it (2.30, src/graph/search.cc, {@code ncclTopoCompute}; src/init.cc): each graph
 * has an id, 0 for rings, 1 for trees, 2 to 4 for CollNet and NVLS. A graph in the file is used as
 * it is, unchecked; for the others NCCL searches as usual. NCCL then uses as many channels as the
 * ring graph or the tree graph has, whichever has fewer. Therefore both are written, with the same
 * orders: within a machine NCCL's tree is a chain, in the order of a ring. CollNet and NVLS are
 * left to NCCL.
 *
 * <p>All channels of a graph have one bandwidth, and NCCL gives each the same share of the data.
 * Channels of different bandwidths are written several times each, as nearly in proportion as
 * {@value #MAX_CHANNELS} channels allow, and left out where that gives more in all; the same is
 * done for a channel of more than {@value #MAX_CHANNEL_GBPS} GB/s, which one thread block cannot
 * saturate (NCCL duplicates such channels, {@code ncclTopoDupChannels}).
 *
 * <p>The file is for a job on exactly the plan's GPUs. Those of one machine are identified by
 * {@code dev}, their nvidia-smi index, so it does not matter which rank uses which GPU. Those of
 * several machines with NVLink between them have {@code dev} with the number of the machine in the
 * highest byte (search.cc, 913; topo.h, 93), and {@code rank}, which NCCL prefers (search.cc, 908):
 * there rank <i>i</i> of the communicator must use the plan's GPU <i>i</i>.
 *
 * <p><b>Not yet run on a GPU:</b> that NCCL accepts these files is known from its source only, and
 * the bandwidth it then reaches has not been measured.
 *
 * <p>Stateless, and safe for use by many threads.
 */
public final class GraphXml {
    /** Most channels of a graph: the limit of NCCL's ring search, which doubles them afterwards. */
    static final int MAX_CHANNELS = 32;

    /** See {@code ncclTopoDupChannels}. */
    static final double MAX_CHANNEL_GBPS = 25;

    /** No machine with NVSwitches and one operating system has more: DGX-2 has 16. */
    private static final int MOST_OF_A_MACHINE = 16;

    private static final int PATTERN_BALANCED_TREE = 1;
    private static final int PATTERN_TREE = 3;
    private static final int PATTERN_RING = 4;

    /** Path types of NCCL, from near to far. */
    private enum PathType {
        NVL,
        PIX,
        PXB,
        PHB,
        SYS
    }

    private GraphXml() {}

    /**
     * Writes a plan.
     *
     * @param plan rings; or trees that are chains from the root, which make a tree graph only
     * @return the XML
     * @throws IllegalArgumentException if the plan has too many channels, or channels without a
     *     counterpart in NCCL's graph XML, or if it is not known which machine each GPU is in
     */
    public static String write(Plan plan) {
        if (plan.channels().isEmpty()) {
            throw new IllegalArgumentException(
                    "the plan has no channels: NCCL's graph XML needs at least one");
        }
        checkMachines(plan.topology(), plan.gpus().size());
        boolean rings = plan.channels().getFirst() instanceof Channel.Ring;
        List<List<Integer>> orders = new ArrayList<>();
        for (Channel channel : plan.channels()) {
            List<Integer> order = order(channel);
            if (rings != channel instanceof Channel.Ring) {
                throw new IllegalArgumentException(
                        "the plan has rings and trees: write one kind at a time");
            }
            if (!new HashSet<>(order).equals(new HashSet<>(plan.gpus()))
                    || order.size() != plan.gpus().size()) {
                throw new IllegalArgumentException(
                        "a channel visits GPUs %s, but the plan has %s: each must be visited once"
                                .formatted(order, plan.gpus()));
            }
            orders.add(order);
        }
        double speed = speed(plan.channels());
        List<List<Integer>> channels = new ArrayList<>();
        int[] copies = plan.channels().stream().mapToInt(c -> copies(c.gbps(), speed)).toArray();
        PathType far = PathType.NVL;
        for (int c = 0; c < copies.length; c++) {
            if (copies[c] == 0) {
                continue;
            }
            for (Hop hop : plan.channels().get(c).hops()) {
                PathType type = type(plan.topology(), hop);
                far = type.compareTo(far) > 0 ? type : far;
            }
        }
        // Round by round, so that the copies of a channel are not all next to each other.
        for (int round = 0; round < Arrays.stream(copies).max().orElse(0); round++) {
            for (int c = 0; c < copies.length; c++) {
                if (round < copies[c]) {
                    channels.add(orders.get(c));
                }
            }
        }
        StringBuilder out = new StringBuilder("<graphs version=\"1\">\n");
        if (rings) {
            graph(out, plan, 0, PATTERN_RING, channels, speed, far);
        }
        int tree = plan.gpus().size() == 1 ? PATTERN_TREE : PATTERN_BALANCED_TREE;
        graph(out, plan, 1, tree, channels, speed, far);
        return out.append("</graphs>\n").toString();
    }

    /** What identifies each GPU to NCCL. */
    private static Map<Integer, String> gpus(Plan plan) {
        Topology t = plan.topology();
        // NCCL numbers the machines of a communicator in the order of their first rank.
        Map<Integer, Integer> systems = new HashMap<>();
        plan.gpus().forEach(gpu -> systems.putIfAbsent(t.machine(gpu), systems.size()));
        Map<Integer, String> all = new HashMap<>();
        for (int rank = 0; rank < plan.gpus().size(); rank++) {
            int gpu = plan.gpus().get(rank);
            // NCCL reads this number as a hexadecimal one, with the machine in the highest byte.
            long dev = ((long) Objects.requireNonNull(systems.get(t.machine(gpu))) << 56);
            dev += t.device(gpu);
            String text = "dev=\"0x" + Long.toHexString(dev) + "\"";
            all.put(gpu, systems.size() == 1 ? text : text + " rank=\"" + rank + "\"");
        }
        return all;
    }

    /**
     * Refuses GPUs in several machines that the source does not distinguish, as in the matrix of a
     * rack: neither of NCCL's files can then identify them.
     *
     * @param t a topology
     * @param gpus how many of its GPUs are used
     * @throws IllegalArgumentException if there are more on NVSwitches than a machine has
     */
    public static void checkMachines(Topology t, int gpus) {
        boolean switches = t.switches().stream().anyMatch(sw -> sw.kind() == Switch.Kind.NVSWITCH);
        if (t.machines().isEmpty() && switches && gpus > MOST_OF_A_MACHINE) {
            throw new IllegalArgumentException(
                    ("%s has %s GPUs on NVSwitches, more than one machine has, and"
                                    + " does not show which machine each is in: NCCL needs that in"
                                    + " its XML. Read the topology XML of the whole rack, which NCCL"
                                    + " writes to NCCL_TOPO_DUMP_FILE")
                            .formatted(t.name(), gpus));
        }
    }

    /** GPUs in the order of a channel. */
    private static List<Integer> order(Channel channel) {
        return switch (channel) {
            case Channel.Ring ring -> ring.order();
            case Channel.Tree tree -> {
                List<Integer> order = new ArrayList<>(List.of(tree.root()));
                for (Hop hop : tree.hops()) {
                    if (hop.from() != order.getLast()) {
                        throw new IllegalArgumentException(
                                ("the tree from GPU %s branches at %s: within a machine NCCL's graph"
                                                + " XML has chains only; plan rings instead")
                                        .formatted(tree.root(), hop.from()));
                    }
                    order.add(hop.to());
                }
                yield order;
            }
            case Channel.Exchange ignored ->
                    throw new IllegalArgumentException(
                            "the plan is a direct exchange, which NCCL does without a graph: plan"
                                    + " rings instead");
        };
    }

    /** The bandwidth of each channel with which all together carry the most. */
    private static double speed(List<Channel> channels) {
        if (channels.size() > MAX_CHANNELS) {
            throw new IllegalArgumentException(
                    "the plan has %s channels: NCCL takes at most %s"
                            .formatted(channels.size(), MAX_CHANNELS));
        }
        double best = 0;
        double bestTotal = 0;
        for (Channel channel : channels) {
            for (int k = 1; k <= MAX_CHANNELS; k++) {
                double speed = channel.gbps() / k;
                int n = 0;
                for (Channel c : channels) {
                    n += copies(c.gbps(), speed);
                }
                if (n > MAX_CHANNELS) {
                    continue;
                }
                // Bandwidth that a thread block cannot carry does not count.
                double total = n * Math.min(speed, MAX_CHANNEL_GBPS);
                if (total > bestTotal * (1 + 1e-9)
                        || (total > bestTotal * (1 - 1e-9) && speed > best)) {
                    best = speed;
                    bestTotal = Math.max(total, bestTotal);
                }
            }
        }
        return best;
    }

    /** How often a channel is written; 0 if it is narrower than that. */
    private static int copies(double gbps, double speed) {
        return (int) Math.min(gbps / speed + 1e-6, 2 * MAX_CHANNELS);
    }

    /** NCCL's path type of a hop. */
    private static PathType type(Topology t, Hop hop) {
        int switches = 0;
        PathType type = PathType.PIX;
        for (int arc : hop.route().arcs()) {
            LinkKind kind = t.links().get(arc >> 1).kind();
            if (kind == LinkKind.NVLINK && type == PathType.PIX) {
                type = PathType.NVL;
            }
            if (t.nodes().get(t.head(arc)) instanceof Switch sw) {
                switches += sw.kind() == Switch.Kind.PCIE_SWITCH ? 1 : 0;
                if (sw.kind() == Switch.Kind.NUMA || sw.kind() == Switch.Kind.HOST_BRIDGE) {
                    type = type == PathType.SYS ? type : PathType.PHB;
                }
            }
            if (kind == LinkKind.SMP) {
                type = PathType.SYS;
            }
        }
        return type == PathType.PIX && switches > 1 ? PathType.PXB : type;
    }

    private static void graph(
            StringBuilder out,
            Plan plan,
            int id,
            int pattern,
            List<List<Integer>> channels,
            double speed,
            PathType far) {
        Set<List<Integer>> different = new HashSet<>(channels);
        // speedinter and typeinter are of the network: without one NCCL itself writes these.
        out.append(
                String.format(
                        Locale.ROOT,
                        "  <graph id=\"%d\" pattern=\"%d\" crossnic=\"0\" nchannels=\"%d\""
                                + " speedintra=\"%.6g\" speedinter=\"%.6g\" latencyinter=\"0\""
                                + " typeintra=\"%s\" typeinter=\"PIX\" samechannels=\"%d\">\n",
                        id,
                        pattern,
                        channels.size(),
                        Math.min(speed, LinkModel.LOCAL),
                        Math.min(speed, LinkModel.LOCAL),
                        far,
                        different.size() == 1 ? 1 : 0));
        Map<Integer, String> gpus = gpus(plan);
        for (List<Integer> order : channels) {
            out.append("    <channel>\n");
            for (int place : order) {
                out.append("      <gpu ").append(gpus.get(place)).append("/>\n");
            }
            out.append("    </channel>\n");
        }
        out.append("  </graph>\n");
    }
}
