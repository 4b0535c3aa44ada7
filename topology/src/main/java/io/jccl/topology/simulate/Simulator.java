package io.jccl.topology.simulate;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Simulates a plan chunk by chunk. A GPU sends a chunk on once it has all of it, and, in a
 * reduction, once all contributions to be added have arrived. A hop moves one chunk at a time, over
 * all arcs of its route at once. Chunks that move at the same time share the arcs fairly, in
 * proportion to their channels' planned rates.
 *
 * <p>The data is checked: the contributions in every chunk of every rank.
 *
 * {@snippet class="snippets.Topologies" region="simulate"}
 *
 * <p>Deterministic. Safe for use by many threads.
 */
public final class Simulator {
    /** How many faults a {@link Simulation} lists at most. */
    public static final int MAX_FAULTS = 20;

    /** Up to this number of ranks every machine of a cluster is simulated. */
    public static final int FULL_RANKS = 64;

    private Simulator() {}

    /**
     * Simulates a plan, without latency.
     *
     * @param plan the plan, correct or not
     * @param bytes size as nccl-tests prints it: of the whole buffer, all ranks' parts together
     * @param chunkBytes largest chunk, that of the widest channel; the others have the same number
     *     of smaller chunks
     * @return time, link use and faults
     * @throws IllegalArgumentException if a number is wrong, a channel cannot carry the operation,
     *     or there would be too many chunks
     */
    public static Simulation run(Plan plan, long bytes, long chunkBytes) {
        return run(plan, bytes, chunkBytes, 0);
    }

    /**
     * Simulates a plan.
     *
     * @param plan the plan, correct or not
     * @param bytes size as nccl-tests prints it
     * @param chunkBytes largest chunk
     * @param hopUs time from a chunk's end at the sender to its use at the receiver, microseconds
     * @return time, link use and faults
     * @throws IllegalArgumentException if a number is wrong, a channel cannot carry the operation,
     *     or there would be too many chunks
     */
    public static Simulation run(Plan plan, long bytes, long chunkBytes, double hopUs) {
        Topology t = plan.topology();
        Map<Integer, Integer> rankOf = new HashMap<>();
        for (int r = 0; r < plan.gpus().size(); r++) {
            rankOf.put(plan.gpus().get(r), r);
        }
        double[] capacity = new double[2 * t.links().size()];
        List<String> names = new ArrayList<>();
        for (int arc = 0; arc < capacity.length; arc++) {
            capacity[arc] = t.capacity(arc);
            names.add(name(t, arc));
        }
        List<Schedule.Part> parts = new ArrayList<>();
        for (Channel c : plan.channels()) {
            parts.add(part(c, rankOf));
        }
        return play(
                plan.operation(),
                plan.gpus().size(),
                plan.root(),
                parts,
                capacity,
                names,
                bytes,
                chunkBytes,
                hopUs);
    }

    /**
     * Simulates a plan for a cluster, without latency. Up to {@value #FULL_RANKS} ranks every
     * machine is simulated. For more, symmetry is used:
     *
     * <ul>
     *   <li>allReduce, allGather and reduceScatter on rings: one machine is simulated for all,
     *       since at any time each does the same with other chunks.
     *   <li>Trees, and broadcast and reduce on rings: a pipeline. Some small clusters are simulated
     *       to find the time of one more chunk and of one more level or machine.
     *   <li>The data is checked on a small cluster; on the large one it is checked that rings and
     *       trees reach every machine once.
     * </ul>
     *
     * <p>The root of broadcast and reduce is rank 0.
     *
     * @param plan the plan
     * @param bytes size as nccl-tests prints it
     * @param chunkBytes largest chunk
     * @return time, faults, and use of the arcs: of every machine, or of one for all
     * @throws IllegalArgumentException if a number is wrong, a channel cannot carry the operation,
     *     or there would be too many chunks
     */
    public static Simulation run(ClusterPlan plan, long bytes, long chunkBytes) {
        ClusterSimulator simulator = new ClusterSimulator(plan, bytes, chunkBytes);
        return (long) plan.cluster().machines() * plan.gpus().size() <= FULL_RANKS
                ? simulator.full()
                : simulator.alike();
    }

    static String name(Topology t, int arc) {
        return t.nodes().get(t.tail(arc)).name() + " to " + t.nodes().get(t.head(arc)).name();
    }

    private static Schedule.Part part(Channel c, Map<Integer, Integer> rankOf) {
        int n = c.hops().size();
        int[] from = new int[n];
        int[] to = new int[n];
        int[][] paths = new int[n][];
        for (int i = 0; i < n; i++) {
            Hop hop = c.hops().get(i);
            from[i] = rank(hop.from(), rankOf);
            to[i] = rank(hop.to(), rankOf);
            paths[i] = hop.route().arcs().stream().mapToInt(Integer::intValue).toArray();
        }
        return switch (c) {
            case Channel.Ring r -> new Schedule.Ring(from, paths, r.gbps());
            case Channel.Tree tree ->
                    new Schedule.Tree(
                            rank(tree.root(), rankOf), from, to, paths, back(paths), tree.gbps());
            case Channel.Exchange e -> new Schedule.Exchange(from, to, paths, e.gbps());
        };
    }

    private static int rank(int gpu, Map<Integer, Integer> rankOf) {
        Integer rank = rankOf.get(gpu);
        if (rank == null) {
            throw new IllegalArgumentException(
                    "a channel passes GPU %s, which does not participate: %s"
                            .formatted(gpu, rankOf.keySet()));
        }
        return rank;
    }

    static int[][] back(int[][] paths) {
        int[][] back = new int[paths.length][];
        for (int i = 0; i < paths.length; i++) {
            int n = paths[i].length;
            back[i] = new int[n];
            for (int j = 0; j < n; j++) {
                back[i][j] = paths[i][n - 1 - j] ^ 1;
            }
        }
        return back;
    }

    static Simulation play(
            Operation op,
            int ranks,
            int root,
            List<Schedule.Part> parts,
            double[] capacity,
            List<String> names,
            long bytes,
            long chunkBytes,
            double hopUs) {
        check("size", bytes);
        check("chunk size", chunkBytes);
        if (!(hopUs >= 0) || Double.isInfinite(hopUs)) {
            throw new IllegalArgumentException(
                    "latency is " + hopUs + " us, expected a finite number, at least 0");
        }
        Schedule s = new Schedule(ranks);
        double total = 0;
        double most = 0;
        boolean tree = false;
        for (Schedule.Part part : parts) {
            total += part.gbps();
            most = Math.max(most, part.gbps());
            tree |= part instanceof Schedule.Tree;
        }
        double largest = total > 0 ? bytes * most / total : 0;
        // A tree moves its channel's share as one block.
        double block = tree ? largest : ScheduleBuilder.block(op, ranks, largest);
        ScheduleBuilder builder =
                new ScheduleBuilder(s, op, root, ScheduleBuilder.chunks(block, chunkBytes));
        if (parts.isEmpty() || total <= 0) {
            builder.expect(0);
        }
        for (int c = 0; c < parts.size(); c++) {
            builder.load(c, parts.get(c), total > 0 ? bytes * parts.get(c).gbps() / total : 0);
        }
        ChannelSimulator simulator = new ChannelSimulator(s, capacity, hopUs);
        Network.Outcome outcome = simulator.play(names);
        return Simulation.of(op, ranks, bytes, simulator.now, outcome);
    }

    static void check(String what, long bytes) {
        if (bytes < 1) {
            throw new IllegalArgumentException(what + " is " + bytes + ", expected at least 1");
        }
    }
}
