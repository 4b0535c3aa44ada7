package io.jccl.engine.copy;

import io.jccl.topology.Operation;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * The copies of one operation of one size, in the order in which they are enqueued, and which waits
 * for which.
 *
 * <p>Data of one rank for one set of ranks is a flow. Its bytes are shared out over the channels
 * that lead there, each share is cut into chunks, and each chunk goes down the channel's path or
 * tree hop by hop. Every hop of a channel is a lane: copies of one lane run one after the other,
 * those of different lanes side by side.
 *
 * <p>A simulation with the channels' bandwidths gives the order: a lane takes what comes first. So
 * nothing waits in a lane behind a chunk that is still on its way. The order is a topological one:
 * whatever a copy waits for was enqueued before it, so nothing can hang.
 */
final class CopyProgram {
    /**
     * What a copy costs beside its bytes, in microseconds: the hand-over from one lane to the next
     * by an event. An assumption of the size that CUDA's documentation and benchmarks of small
     * copies suggest; not measured on a GPU here.
     */
    static final double STEP_MICROS = 10;

    /** Below this a chunk, or a channel's share, is all latency. */
    static final long SMALLEST = 64 << 10;

    /** Chunks of one source's data that follow each other down a channel. */
    private static final int MOST_CHUNKS = 64;

    /**
     * The same where all ranks are sources: their blocks follow each other already, and a few
     * chunks hide the events between two lanes.
     */
    private static final int FEW_CHUNKS = 4;

    /** Where chunks may begin: whole lines of the GPUs' memory. */
    private static final long ALIGN = 256;

    /**
     * A guess at what a GPU copies within its own memory, in GB/s; only the order depends on it.
     */
    private static final double LOCAL_GBPS = 1000;

    /** Channel number of copies within one GPU. */
    static final int LOCAL = -1;

    /** Whose memory of a rank is read or written. */
    enum Place {
        SEND,
        RECV,
        /** Memory of ours: blocks on their way to others, or kept from being overwritten. */
        SCRATCH
    }

    /** The hop of a channel. */
    record Lane(int channel, int from, int to) {
        @Override
        public String toString() {
            return channel == LOCAL ? "the local copy" : "channel " + channel;
        }
    }

    /**
     * One copy.
     *
     * @param lane place in {@link #lanes}
     * @param waits events to wait for first: places in the pool of the device of {@code waitsOn}
     * @param waitsOn ranks on whose devices these events are
     * @param record event to record afterwards, on the rank that sends; -1 for none
     */
    record Step(
            int lane,
            int from,
            int to,
            Place source,
            long sourceAt,
            Place target,
            long targetAt,
            long bytes,
            int[] waits,
            int[] waitsOn,
            int record) {}

    final Operation op;
    final int root;
    final long blockBytes;
    final boolean inPlace;
    final Lane[] lanes;
    final Step[] steps;

    /** By rank: bytes of scratch memory. */
    final long[] scratch;

    /** By rank: how many events its device needs. */
    final int[] events;

    /** Ranks that have a lane. */
    final boolean[] used;

    /** By lane: whether it writes scratch memory of the rank that it leads to. */
    final boolean[] writesScratch;

    private CopyProgram(Builder b) {
        op = b.op;
        root = b.root;
        blockBytes = b.block;
        inPlace = b.inPlace;
        lanes = b.lanes.toArray(Lane[]::new);
        steps = b.steps.toArray(Step[]::new);
        scratch = b.scratch;
        events = b.events;
        used = new boolean[b.n];
        for (Lane lane : lanes) {
            used[lane.from] = true;
            used[lane.to] = true;
        }
        writesScratch = new boolean[lanes.length];
        for (Step s : steps) {
            writesScratch[s.lane] |= s.target == Place.SCRATCH;
        }
    }

    boolean is(Operation op, int root, long blockBytes, boolean inPlace) {
        return this.op == op
                && this.root == root
                && this.blockBytes == blockBytes
                && this.inPlace == inPlace;
    }

    /**
     * Makes the program of an operation.
     *
     * @param channels of the plan
     * @param rankOf ranks by the places of GPUs in the topology
     * @param n number of ranks
     * @param block bytes that one rank gives to or gets from another
     * @param inPlace whether a rank's own block is in its place
     * @param chunkBytes size of a chunk, 0 to choose it
     * @throws IllegalArgumentException if no channel leads from one rank to another that needs it
     */
    static CopyProgram of(
            Operation op,
            int root,
            List<Channel> channels,
            Map<Integer, Integer> rankOf,
            int n,
            long block,
            boolean inPlace,
            long chunkBytes) {
        return new Builder(op, root, channels, rankOf, n, block, inPlace, chunkBytes).build();
    }

    /**
     * How many chunks, for a path of {@code hops} and {@code bytes} at {@code gbps}: with m chunks
     * it takes (hops + m - 1) steps of bytes / m / gbps + {@link #STEP_MICROS}, which is least at m
     * = sqrt((hops - 1) * bytes / gbps / STEP_MICROS). The usual trade-off of a pipelined
     * broadcast.
     */
    static int chunks(int hops, long bytes, double gbps, int most) {
        double micros = bytes / (gbps * 1e3);
        long best = Math.round(Math.sqrt(Math.max(hops - 1, 0) * micros / STEP_MICROS));
        long fitting = Math.max(1, bytes / SMALLEST);
        return Math.clamp(Math.min(best, fitting), 1, most);
    }

    private static final class Task {
        final int lane;
        final Place source;
        final long sourceAt;
        final Place target;
        final long targetAt;
        final long bytes;
        final double micros;
        final int index;

        /** What it waits for. */
        final List<Task> needs = new ArrayList<>(2);

        /** What waits for it. */
        final List<Task> dependents = new ArrayList<>();

        int open;
        double ready;

        /** Dependents on other lanes that are not enqueued yet, and the event they wait for. */
        int waiters;

        int event = -1;

        Task(
                int index,
                int lane,
                Place source,
                long sourceAt,
                Place target,
                long targetAt,
                long bytes,
                double micros) {
            this.index = index;
            this.lane = lane;
            this.source = source;
            this.sourceAt = sourceAt;
            this.target = target;
            this.targetAt = targetAt;
            this.bytes = bytes;
            this.micros = micros;
        }

        void after(Task other) {
            needs.add(other);
            other.dependents.add(this);
            open++;
        }
    }

    private static final class Builder {
        private final Operation op;
        private final int root;
        private final List<Channel> channels;
        private final Map<Integer, Integer> rankOf;
        private final int n;
        private final long block;
        private final boolean inPlace;
        private final long chunkBytes;

        private final List<Lane> lanes = new ArrayList<>();
        private final Map<Lane, Integer> laneIds = new HashMap<>();
        private final List<Task> tasks = new ArrayList<>();
        private final List<Step> steps = new ArrayList<>();
        private final long[] scratch;
        private final int[] events;

        /** By channel and origin: where each rank gets the origin's data from, -1 if nowhere. */
        private final Map<Integer, int[]> parents = new HashMap<>();

        /** By rank: the copy that saves what is going to be overwritten. */
        private final List<Task> saved = new ArrayList<>();

        Builder(
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
            this.rankOf = rankOf;
            this.n = n;
            this.block = block;
            this.inPlace = inPlace;
            this.chunkBytes = chunkBytes;
            scratch = new long[n];
            events = new int[n];
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
                schedule();
            }
            return new CopyProgram(this);
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

        private Task local(
                int rank, Place source, long sourceAt, Place target, long targetAt, long bytes) {
            return task(
                    new Lane(LOCAL, rank, rank),
                    source,
                    sourceAt,
                    target,
                    targetAt,
                    bytes,
                    LOCAL_GBPS);
        }

        private Task task(
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
            Task made =
                    new Task(tasks.size(), id, source, sourceAt, target, targetAt, bytes, micros);
            tasks.add(made);
            return made;
        }

        /** Adds the copies that bring a block of one rank to others. */
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
                if (channels.get(c).gbps() > 0 && reachesAll(c, origin, targets)) {
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
            leading.sort(
                    Comparator.comparingDouble((Integer c) -> channels.get(c).gbps()).reversed());
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

        /** Adds the copies of what one channel carries of a flow. */
        private void share(
                int channel, int origin, boolean[] targets, long sendAt, long recvAt, long bytes) {
            int[] parent = parents(channel, origin);
            List<Integer> order = onTheWay(parent, origin, targets);
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
            long m =
                    chunkBytes > 0
                            ? Math.ceilDiv(bytes, chunkBytes)
                            : chunks(hops, bytes, gbps, most);
            long size = chunkBytes > 0 ? chunkBytes : Math.ceilDiv(bytes, m);
            if (size > ALIGN && chunkBytes == 0) {
                size = Math.ceilDiv(size, ALIGN) * ALIGN;
            }
            Map<Integer, Task> arrived = new HashMap<>();
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
                    Task t =
                            task(
                                    new Lane(channel, u, v),
                                    source,
                                    sourceAt + c,
                                    targets[v] ? Place.RECV : Place.SCRATCH,
                                    (targets[v] ? recvAt : kept[v]) + c,
                                    length,
                                    gbps);
                    Task before = arrived.get(u);
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

        /** Ranks that get the data, or pass it on, parents first. */
        private List<Integer> onTheWay(int[] parent, int origin, boolean[] targets) {
            boolean[] needed = new boolean[n];
            for (int r = 0; r < n; r++) {
                for (int v = r; targets[r] && v != origin && !needed[v]; v = parent[v]) {
                    needed[v] = true;
                }
            }
            List<Integer> order = new ArrayList<>();
            Deque<Integer> queue = new ArrayDeque<>(List.of(origin));
            while (!queue.isEmpty()) {
                int u = queue.remove();
                for (int v = 0; v < n; v++) {
                    if (needed[v] && parent[v] == u) {
                        order.add(v);
                        queue.add(v);
                    }
                }
            }
            return order;
        }

        private boolean reachesAll(int channel, int origin, boolean[] targets) {
            int[] parent = parents(channel, origin);
            for (int r = 0; r < n; r++) {
                int v = r;
                for (int i = 0; targets[r] && v != origin; i++) {
                    v = parent[v];
                    if (v < 0 || i == n) {
                        return false;
                    }
                }
            }
            return true;
        }

        private int rank(int gpu) {
            Integer rank = rankOf.get(gpu);
            if (rank == null) {
                throw new IllegalArgumentException(
                        "the plan has a hop at GPU "
                                + gpu
                                + ", which is none of its GPUs "
                                + rankOf.keySet());
            }
            return rank;
        }

        private int[] parents(int channel, int origin) {
            return parents.computeIfAbsent(channel * n + origin, k -> lookUp(channel, origin));
        }

        /** How data of a rank goes along a channel. */
        private int[] lookUp(int channel, int origin) {
            int[] parent = new int[n];
            Arrays.fill(parent, -1);
            switch (channels.get(channel)) {
                case Channel.Ring ring -> {
                    for (Hop hop : ring.hops()) {
                        if (rank(hop.to()) != origin) {
                            parent[rank(hop.to())] = rank(hop.from());
                        }
                    }
                }
                case Channel.Exchange exchange -> {
                    for (Hop hop : exchange.hops()) {
                        if (rank(hop.from()) == origin) {
                            parent[rank(hop.to())] = origin;
                        }
                    }
                }
                case Channel.Tree tree -> {
                    if (op == Operation.GATHER) {
                        up(tree, origin, parent);
                    } else if (rank(tree.root()) == origin) {
                        for (Hop hop : tree.hops()) {
                            parent[rank(hop.to())] = rank(hop.from());
                        }
                    }
                }
            }
            return parent;
        }

        /** The way from a rank to the root of a tree. */
        private void up(Channel.Tree tree, int origin, int[] parent) {
            Map<Integer, Integer> above = new HashMap<>();
            for (Hop hop : tree.hops()) {
                above.put(rank(hop.to()), rank(hop.from()));
            }
            int v = origin;
            for (int i = 0; i < n && above.containsKey(v); i++) {
                int u = above.getOrDefault(v, -1);
                parent[u] = v;
                v = u;
            }
        }

        /** Puts the copies in the order in which they would start. */
        private void schedule() {
            record Entry(double time, int lane) {}
            Comparator<Task> first =
                    Comparator.comparingDouble((Task t) -> t.ready).thenComparing(t -> t.index);
            List<PriorityQueue<Task>> waiting = new ArrayList<>();
            double[] free = new double[lanes.size()];
            boolean[] queued = new boolean[lanes.size()];
            for (int i = 0; i < lanes.size(); i++) {
                waiting.add(new PriorityQueue<>(first));
            }
            PriorityQueue<Entry> next =
                    new PriorityQueue<>(
                            Comparator.comparingDouble(Entry::time).thenComparingInt(Entry::lane));
            for (Task t : tasks) {
                if (t.open == 0) {
                    waiting.get(t.lane).add(t);
                }
            }
            for (int i = 0; i < lanes.size(); i++) {
                if (!waiting.get(i).isEmpty()) {
                    next.add(new Entry(0, i));
                    queued[i] = true;
                }
            }
            List<Deque<Integer>> idle = new ArrayList<>();
            for (int r = 0; r < n; r++) {
                idle.add(new ArrayDeque<>());
            }
            while (!next.isEmpty()) {
                Entry entry = next.remove();
                int lane = entry.lane;
                Task t = waiting.get(lane).element();
                double start = Math.max(free[lane], t.ready);
                if (start > entry.time) {
                    next.add(new Entry(start, lane));
                    continue;
                }
                waiting.get(lane).remove();
                queued[lane] = false;
                emit(t, idle);
                free[lane] = start + t.micros;
                for (Task d : t.dependents) {
                    d.ready = Math.max(d.ready, free[lane]);
                    if (--d.open == 0) {
                        waiting.get(d.lane).add(d);
                        if (!queued[d.lane]) {
                            next.add(new Entry(Math.max(free[d.lane], d.ready), d.lane));
                            queued[d.lane] = true;
                        }
                    }
                }
                Task behind = waiting.get(lane).peek();
                if (behind != null && !queued[lane]) {
                    next.add(new Entry(Math.max(free[lane], behind.ready), lane));
                    queued[lane] = true;
                }
            }
            if (steps.size() != tasks.size()) {
                throw new IllegalStateException(
                        steps.size() + " of " + tasks.size() + " copies could be ordered");
            }
        }

        /**
         * Enqueues a copy. An event may be recorded anew as soon as all who wait for it have been
         * enqueued, since a wait means the recording before it.
         */
        private void emit(Task t, List<Deque<Integer>> idle) {
            Lane lane = lanes.get(t.lane);
            List<Task> others = t.needs.stream().filter(o -> o.lane != t.lane).toList();
            int[] waits = new int[others.size()];
            int[] waitsOn = new int[others.size()];
            for (int i = 0; i < waits.length; i++) {
                Task other = others.get(i);
                waits[i] = other.event;
                waitsOn[i] = lanes.get(other.lane).from;
                if (--other.waiters == 0) {
                    idle.get(waitsOn[i]).push(other.event);
                }
            }
            for (Task d : t.dependents) {
                t.waiters += d.lane == t.lane ? 0 : 1;
            }
            if (t.waiters > 0) {
                Integer reused = idle.get(lane.from).poll();
                t.event = reused != null ? reused : events[lane.from]++;
            }
            steps.add(
                    new Step(
                            t.lane,
                            lane.from,
                            lane.to,
                            t.source,
                            t.sourceAt,
                            t.target,
                            t.targetAt,
                            t.bytes,
                            waits,
                            waitsOn,
                            t.event));
        }
    }
}
