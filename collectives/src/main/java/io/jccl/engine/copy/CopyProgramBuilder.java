package io.jccl.engine.copy;

import io.jccl.engine.copy.CopyProgram.Lane;
import io.jccl.engine.copy.CopyProgram.Place;
import io.jccl.topology.Operation;
import io.jccl.topology.plan.Channel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Splits an operation into copies. The data of one rank for one set of ranks is a flow: its bytes
 * are divided among the channels that lead there, each share is cut into chunks, and each chunk
 * passes along the channel's path or tree hop by hop.
 */
final class CopyProgramBuilder {
    /**
     * Cost of a copy in addition to its bytes, in microseconds: the hand-over from one lane to the
     * next by an event. An assumption of the order that CUDA's documentation and benchmarks of
     * small copies suggest; not measured on a GPU here.
     */
    private static final double STEP_MICROS = 10;

    /** Smaller chunks, or shares of a channel, consist of latency only. */
    private static final long SMALLEST = 64 << 10;

    /** Maximum chunks of one source's data that follow each other along a channel. */
    private static final int MOST_CHUNKS = 64;

    /**
     * The same if all ranks are sources: their blocks follow each other already, and a few chunks
     * hide the events between two lanes.
     */
    private static final int FEW_CHUNKS = 4;

    /** Alignment of chunks: whole cache lines of the GPUs. */
    private static final long ALIGN = 256;

    /**
     * Assumed bandwidth of copies within a GPU's own memory, in GB/s; only the order depends on it.
     */
    private static final double LOCAL_GBPS = 1000;

    private final Operation op;
    private final int root;
    private final List<Channel> channels;
    private final ChannelRoutes routes;
    private final int n;
    private final long block;
    private final boolean inPlace;
    private final long chunkBytes;

    private final List<Lane> lanes = new ArrayList<>();
    private final Map<Lane, Integer> laneIds = new HashMap<>();
    private final List<CopyTask> tasks = new ArrayList<>();
    private final long[] scratch;

    /** By rank: the copy that saves its send buffer before it is overwritten. */
    private final List<CopyTask> saved = new ArrayList<>();

    CopyProgramBuilder(
            Operation op,
            int root,
            List<Channel> channels,
            Map<Integer, Integer> rankOf,
            int n,
            long block,
            boolean inPlace,
            long chunkBytes) {
        this.op = op;
        this.root = root;
        this.channels = channels;
        routes = new ChannelRoutes(op, channels, rankOf, n);
        this.n = n;
        this.block = block;
        this.inPlace = inPlace;
        this.chunkBytes = chunkBytes;
        scratch = new long[n];
    }

    CopyProgram build() {
        if (block > 0) {
            switch (op) {
                case BROADCAST -> toAll(root, 0, 0);
                case ALL_GATHER -> {
                    for (int r = 0; r < n; r++) {
                        toAll(r, 0, r * block);
                    }
                }
                case SCATTER -> {
                    for (int r = 0; r < n; r++) {
                        toOne(root, r, r * block, 0);
                    }
                }
                case GATHER -> {
                    for (int r = 0; r < n; r++) {
                        toOne(r, root, 0, r * block);
                    }
                }
                case ALL_TO_ALL -> allToAll();
                default ->
                        throw new IllegalArgumentException(
                                op.command() + " reduces, which copies cannot do");
            }
        }
        CopySchedule schedule = new CopySchedule(lanes, tasks, n);
        return new CopyProgram(op, root, block, inPlace, lanes, schedule, scratch);
    }

    private void allToAll() {
        if (inPlace) {
            // A block could be overwritten before it is sent.
            for (int r = 0; r < n; r++) {
                saved.add(local(r, Place.SEND, 0, Place.SCRATCH, 0, n * block));
                scratch[r] = n * block;
            }
        }
        // Rank r begins with r + 1, so that not all of them begin with rank 0.
        for (int d = 0; d < n; d++) {
            for (int r = 0; r < n; r++) {
                int to = (r + d) % n;
                toOne(r, to, to * block, r * block);
            }
        }
    }

    private void toAll(int origin, long sendAt, long recvAt) {
        boolean[] targets = new boolean[n];
        Arrays.fill(targets, true);
        flow(origin, targets, sendAt, recvAt);
    }

    private void toOne(int origin, int target, long sendAt, long recvAt) {
        boolean[] targets = new boolean[n];
        targets[target] = true;
        flow(origin, targets, sendAt, recvAt);
    }

    private CopyTask local(
            int rank, Place source, long sourceAt, Place target, long targetAt, long bytes) {
        return task(
                new Lane(CopyProgram.LOCAL, rank, rank),
                source,
                sourceAt,
                target,
                targetAt,
                bytes,
                LOCAL_GBPS);
    }

    private CopyTask task(
            Lane lane,
            Place source,
            long sourceAt,
            Place target,
            long targetAt,
            long bytes,
            double gbps) {
        Integer id = laneIds.get(lane);
        if (id == null) {
            id = lanes.size();
            laneIds.put(lane, id);
            lanes.add(lane);
        }
        double micros = bytes / (gbps * 1e3) + STEP_MICROS;
        CopyTask made =
                new CopyTask(tasks.size(), id, source, sourceAt, target, targetAt, bytes, micros);
        tasks.add(made);
        return made;
    }

    /** Adds the copies that send a block of one rank to others. */
    private void flow(int origin, boolean[] targets, long sendAt, long recvAt) {
        boolean away = false;
        for (int r = 0; r < n; r++) {
            away |= targets[r] && r != origin;
        }
        if (targets[origin] && !inPlace) {
            local(origin, Place.SEND, sendAt, Place.RECV, recvAt, block);
        }
        if (!away) {
            return;
        }
        List<Integer> leading = new ArrayList<>();
        for (int c = 0; c < channels.size(); c++) {
            if (channels.get(c).gbps() > 0 && routes.reachesAll(c, origin, targets)) {
                leading.add(c);
            }
        }
        if (leading.isEmpty()) {
            throw new IllegalArgumentException(
                    "the plan for "
                            + op.command()
                            + " has no channel that brings data of rank "
                            + origin
                            + " to "
                            + (op == Operation.BROADCAST || op == Operation.ALL_GATHER
                                    ? "all other ranks"
                                    : "rank " + firstOf(targets))
                            + "; make it with Planner.plan for this operation, these GPUs and"
                            + " this root");
        }
        // A channel that would get less than a chunk's worth is not worth its hops.
        leading.sort(Comparator.comparingDouble((Integer c) -> channels.get(c).gbps()).reversed());
        int worth = Math.clamp(block / SMALLEST, 1, leading.size());
        List<Integer> sharing = leading.subList(0, worth);
        double all = 0;
        for (int c : sharing) {
            all += channels.get(c).gbps();
        }
        double sum = 0;
        long at = 0;
        for (int i = 0; i < sharing.size(); i++) {
            int c = sharing.get(i);
            sum += channels.get(c).gbps();
            long end =
                    i == sharing.size() - 1
                            ? block
                            : Math.min(block, (long) (block * (sum / all)) / ALIGN * ALIGN);
            if (end > at) {
                share(c, origin, targets, sendAt + at, recvAt + at, end - at);
                at = end;
            }
        }
    }

    private static int firstOf(boolean[] targets) {
        int r = 0;
        while (!targets[r]) {
            r++;
        }
        return r;
    }

    /** Adds the copies of one channel's share of a flow. */
    private void share(
            int channel, int origin, boolean[] targets, long sendAt, long recvAt, long bytes) {
        int[] parent = routes.parents(channel, origin);
        List<Integer> order = routes.receivers(parent, origin, targets);
        int[] depth = new int[n];
        int hops = 0;
        long[] kept = new long[n];
        for (int v : order) {
            depth[v] = depth[parent[v]] + 1;
            hops = Math.max(hops, depth[v]);
            if (!targets[v]) {
                kept[v] = scratch[v];
                scratch[v] += (bytes + ALIGN - 1) / ALIGN * ALIGN;
            }
        }
        double gbps = channels.get(channel).gbps();
        int most = op == Operation.BROADCAST ? MOST_CHUNKS : FEW_CHUNKS;
        long m = chunkBytes > 0 ? Math.ceilDiv(bytes, chunkBytes) : chunks(hops, bytes, gbps, most);
        long size = chunkBytes > 0 ? chunkBytes : Math.ceilDiv(bytes, m);
        if (size > ALIGN && chunkBytes == 0) {
            size = Math.ceilDiv(size, ALIGN) * ALIGN;
        }
        Map<Integer, CopyTask> arrived = new HashMap<>();
        for (long c = 0; c < bytes; c += size) {
            long length = Math.min(size, bytes - c);
            arrived.clear();
            for (int v : order) {
                int u = parent[v];
                boolean save = u == origin && !saved.isEmpty();
                Place source =
                        save
                                ? Place.SCRATCH
                                : u == origin
                                        ? Place.SEND
                                        : targets[u] ? Place.RECV : Place.SCRATCH;
                long sourceAt = u == origin ? sendAt : targets[u] ? recvAt : kept[u];
                CopyTask t =
                        task(
                                new Lane(channel, u, v),
                                source,
                                sourceAt + c,
                                targets[v] ? Place.RECV : Place.SCRATCH,
                                (targets[v] ? recvAt : kept[v]) + c,
                                length,
                                gbps);
                CopyTask before = arrived.get(u);
                if (before != null) {
                    t.after(before);
                } else if (save) {
                    t.after(saved.get(u));
                }
                if (!saved.isEmpty() && targets[v]) {
                    t.after(saved.get(v));
                }
                arrived.put(v, t);
            }
        }
    }

    /**
     * Number of chunks for a path of {@code hops} and {@code bytes} at {@code gbps}. With m chunks
     * the path takes (hops + m - 1) steps of bytes / m / gbps + {@link #STEP_MICROS}, which is
     * least at m = sqrt((hops - 1) * bytes / gbps / STEP_MICROS), the usual trade-off of a
     * pipelined broadcast.
     */
    static int chunks(int hops, long bytes, double gbps, int most) {
        double micros = bytes / (gbps * 1e3);
        long best = Math.round(Math.sqrt(Math.max(hops - 1, 0) * micros / STEP_MICROS));
        long fitting = Math.max(1, bytes / SMALLEST);
        return Math.clamp(Math.min(best, fitting), 1, most);
    }
}
