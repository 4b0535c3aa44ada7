package io.jccl.contract;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part of a case: fills buffers, runs the collective several times with other data, and
 * compares all memory around and in them with what has to be there.
 */
public final class Scenario {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private final Communicator comm;
    private final Case c;
    private final Runnable meet;
    private final int n;
    private final int me;
    private final List<String> problems = new ArrayList<>();

    /** Whether any rank works in place in the call that is being planned. */
    private boolean symmetric;

    private Scenario(Communicator comm, Case c, Runnable meet) {
        this.comm = comm;
        this.c = c;
        this.meet = meet;
        this.n = comm.size();
        this.me = comm.rank();
    }

    /**
     * Runs one rank's part. All ranks of the communicator call it with the same case.
     *
     * @param comm this rank's end
     * @param c what to try
     * @param meet called by each rank as often when it has allocated, and before it frees
     * @throws AssertionError if something is wrong; the communicator is usable nevertheless
     */
    public static void run(Communicator comm, Case c, Runnable meet) {
        if (comm.size() != c.ranks()) {
            throw new IllegalArgumentException("size is " + comm.size() + " in case " + c);
        }
        Scenario scenario = new Scenario(comm, c, meet);
        Stream stream = c.async() ? comm.device().newStream() : comm.device().defaultStream();
        try (stream) {
            scenario.run(stream);
        }
        if (!scenario.problems.isEmpty()) {
            throw new AssertionError(String.join("; ", scenario.problems));
        }
    }

    private void run(Stream stream) {
        int rounds = c.count() <= 1100 ? 3 : 2;
        checkAlgorithm();
        switch (c.collective()) {
            case BARRIER -> barrier(stream);
            case GROUP -> group(stream, rounds);
            case SPLIT -> split(stream);
            default -> {
                try (Plan plan = plan(c, 0)) {
                    meet.run();
                    for (int round = 0; round < rounds; round++) {
                        plan.prepare(round);
                        skew(round);
                        plan.call(stream);
                        stream.synchronize(PATIENCE);
                        plan.verify();
                    }
                    meet.run();
                }
            }
        }
    }

    /** Now and then a rank comes late. */
    private void skew(int round) {
        long hash = Numbers.mix(c.seed(), 100L * round + me);
        if (Numbers.below(hash, 12) == 0) {
            LockSupport.parkNanos(50_000L * Numbers.below(hash * 31, 10));
        }
    }

    /** The algorithm asked for is used wherever it serves. */
    private void checkAlgorithm() {
        if (!comm.engine().startsWith("host")) {
            return;
        }
        switch (c.collective()) {
            case RING, CHAIN, EXCHANGE, GROUP, SPLIT -> {}
            default -> {
                String name = c.collective().label();
                Algorithm used = comm.algorithmFor(name, c.count() * c.type().size());
                boolean asked = n > 1 && c.collective().algorithms().contains(c.algorithm());
                if (used == Algorithm.AUTO || (asked && used != c.algorithm())) {
                    problems.add(
                            "algorithmFor(%s) is %s, expected %s"
                                    .formatted(
                                            name,
                                            used,
                                            asked ? c.algorithm() : "anything but AUTO"));
                }
            }
        }
    }

    /** Some elements of a buffer that hold a part of what a rank contributed, or of the result. */
    private record Region(long from, long count, int rank, long phase) {
        static final int REDUCED = -1;
    }

    /** Counts and places of the blocks of a v-variant, with gaps between them. */
    private static final class Blocks {
        final long[] counts;
        final long[] displs;
        final long extent;

        private Blocks(long[] counts, long[] displs, long extent) {
            this.counts = counts;
            this.displs = displs;
            this.extent = extent;
        }

        static Blocks spread(long[] counts, long seed) {
            SplittableRandom random = new SplittableRandom(seed);
            int n = counts.length;
            int[] order = new int[n];
            for (int i = 0; i < n; i++) {
                int j = random.nextInt(i + 1);
                order[i] = order[j];
                order[j] = i;
            }
            long[] displs = new long[n];
            long at = random.nextInt(4);
            for (int i : order) {
                displs[i] = at;
                at += counts[i] + random.nextInt(4);
            }
            return new Blocks(counts, displs, at);
        }

        static Blocks packed(long[] counts) {
            long[] displs = new long[counts.length];
            long at = 0;
            for (int i = 0; i < counts.length; i++) {
                displs[i] = at;
                at += counts[i];
            }
            return new Blocks(counts, displs, at);
        }
    }

    private interface Call {
        void run(Buffer send, Buffer recv, int round, Stream stream);
    }

    /** One collective call: its buffers, what is in them before and what has to be after. */
    private final class Plan implements AutoCloseable {
        final Case c;
        final @Nullable Mem send;
        final @Nullable Mem recv;
        final List<Region> before;
        final List<Region> after;
        final long inputLength;
        final Call call;
        final boolean inPlace;
        int round;
        Pattern @Nullable [] inputs;

        /**
         * Plans a call.
         *
         * @param sendCount elements of the send buffer, -1 for none; in place of the only one
         * @param recvCount elements of the receive buffer, -1 for none
         * @param inputLength elements that each rank contributes, at most
         */
        Plan(
                Case c,
                int which,
                long sendCount,
                long recvCount,
                long inputLength,
                List<Region> before,
                List<Region> after,
                Call call) {
            this.c = c;
            this.inPlace = c.inPlace();
            this.before = before;
            this.after = after;
            this.inputLength = inputLength;
            this.call = call;
            this.send = sendCount < 0 ? null : mem(2 * which + me, sendCount);
            this.recv = inPlace || recvCount < 0 ? null : mem(2 * which + me + 3, recvCount);
        }

        private Mem mem(int which, long count) {
            return Mem.allocate(comm.device(), c.memory(), which, c.type(), count);
        }

        void prepare(int newRound) {
            round = newRound;
            Pattern[] made = new Pattern[n];
            for (int r = 0; r < n; r++) {
                made[r] = Pattern.input(c, round, r, inputLength);
            }
            inputs = made;
            if (recv != null) {
                recv.poison();
            }
            if (send != null) {
                send.poison();
                for (Region region : before) {
                    send.fill(made[region.rank], region.from, region.count, region.phase);
                }
                send.push();
            }
            if (recv != null) {
                recv.push();
            }
        }

        void call(Stream stream) {
            call.run(bufferOf(send), bufferOf(recv), round, stream);
        }

        void verify() {
            Pattern[] made = Objects.requireNonNull(inputs);
            Pattern reduced =
                    after.stream().anyMatch(r -> r.rank == Region.REDUCED)
                            ? Pattern.reduced(c, made, c.algorithm() == Algorithm.DIRECT)
                            : null;
            if (inPlace) {
                verify("buffer", send, overlaid(before, after), made, reduced);
            } else {
                verify("send", send, before, made, reduced);
                verify("recv", recv, after, made, reduced);
            }
        }

        private void verify(
                String name,
                @Nullable Mem mem,
                List<Region> regions,
                Pattern[] made,
                @Nullable Pattern reduced) {
            if (mem == null) {
                return;
            }
            mem.pull();
            long at = 0;
            for (Region r : regions.stream().sorted(BY_PLACE).toList()) {
                report(name, "gap", mem.checkPoison(at, r.from - at));
                Pattern pattern =
                        r.rank == Region.REDUCED ? Objects.requireNonNull(reduced) : made[r.rank];
                String block =
                        (r.rank < 0 ? "result" : "block of rank " + r.rank) + " at " + r.from;
                report(name, block, mem.check(pattern, r.from, r.count, r.phase));
                at = r.from + r.count;
            }
            report(name, "gap", mem.checkPoison(at, mem.buffer().count() - at));
            report(name, "memory around it", mem.checkGuards());
        }

        private void report(String name, String part, @Nullable String problem) {
            if (problem != null && problems.size() < 3) {
                problems.add(
                        "rank %s round %s %s: %s, %s: %s"
                                .formatted(me, round, c.collective().label(), name, part, problem));
            }
        }

        @Override
        public void close() {
            if (send != null) {
                send.close();
            }
            if (recv != null) {
                recv.close();
            }
        }
    }

    private static final java.util.Comparator<Region> BY_PLACE =
            java.util.Comparator.comparingLong(Region::from).thenComparingLong(Region::count);

    /** What is there when the second list was written over the first. */
    private static List<Region> overlaid(List<Region> under, List<Region> over) {
        List<Region> all = new ArrayList<>(over.stream().filter(r -> r.count > 0).toList());
        for (Region u : under) {
            long at = u.from;
            for (Region o : over.stream().filter(r -> r.count > 0).sorted(BY_PLACE).toList()) {
                long to = Math.min(o.from, u.from + u.count);
                if (to > at) {
                    all.add(new Region(at, to - at, u.rank, u.phase + at - u.from));
                }
                at = Math.max(at, o.from + o.count);
            }
            long end = u.from + u.count;
            if (end > at) {
                all.add(new Region(at, end - at, u.rank, u.phase + at - u.from));
            }
        }
        return all;
    }

    /** A buffer that is there where none is needed: ranks must ignore it. */
    private static Buffer bufferOf(@Nullable Mem mem) {
        return mem == null ? UNRELATED : mem.buffer();
    }

    private static final Buffer UNRELATED =
            Buffer.wrap(java.lang.foreign.MemorySegment.ofArray(new byte[3]), DataType.UINT8);

    private static @Nullable Buffer ignored(Buffer buffer, int round) {
        return buffer == UNRELATED && round % 2 == 0 ? null : buffer;
    }

    /** In mixed memory some ranks work in place and others do not. */
    private boolean inPlaceHere(Case c) {
        boolean all = c.memory() != Case.Memory.MIXED;
        return c.inPlace() && (all || Numbers.below(Numbers.mix(c.seed(), me), 2) == 0);
    }

    private Plan plan(Case all, int which) {
        symmetric = all.inPlace();
        Case c = inPlaceIf(all, inPlaceHere(all));
        return switch (c.collective()) {
            case BROADCAST -> broadcast(c, which);
            case SCATTER -> scatter(c, which);
            case GATHER -> gather(c, which);
            case REDUCE -> reduce(c, which);
            case ALL_REDUCE -> allReduce(c, which);
            case ALL_GATHER -> allGather(c, which);
            case REDUCE_SCATTER -> reduceScatter(c, which);
            case ALL_TO_ALL -> allToAll(c, which);
            case GATHERV -> gatherv(c, which);
            case SCATTERV -> scatterv(c, which);
            case ALL_GATHERV -> allGatherv(c, which);
            case REDUCE_SCATTERV -> reduceScatterv(c, which);
            case ALL_TO_ALLV -> allToAllv(c, which);
            case RING -> ring(c, which);
            case CHAIN -> chain(c, which);
            case EXCHANGE -> exchange(c, which);
            case BARRIER, GROUP, SPLIT ->
                    throw new IllegalArgumentException(c.collective() + " is no single call");
        };
    }

    private Plan broadcast(Case c, int which) {
        long count = c.count();
        int root = c.root();
        List<Region> all = List.of(new Region(0, count, root, 0));
        List<Region> before = me == root ? all : List.of();
        boolean hasSend = c.inPlace() || me == root;
        return new Plan(
                c,
                which,
                hasSend ? count : -1,
                count,
                count,
                before,
                all,
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.broadcast(ignored(send, round), recv, root, stream);
                    } else if (round % 2 == 0) {
                        comm.broadcast(send, root, stream);
                    } else {
                        comm.broadcast(me == root ? send : null, send, root, stream);
                    }
                });
    }

    private Plan scatter(Case c, int which) {
        long count = c.count();
        int root = c.root();
        List<Region> before = me == root ? List.of(new Region(0, n * count, me, 0)) : List.of();
        long at = c.inPlace() ? me * count : 0;
        return new Plan(
                c,
                which,
                c.inPlace() || me == root ? n * count : -1,
                count,
                n * count,
                before,
                List.of(new Region(at, count, root, me * count)),
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.scatter(ignored(send, round), recv, root, stream);
                    } else if (round % 2 == 0) {
                        comm.scatter(send, root, stream);
                    } else {
                        Buffer block = send.slice(me * count, count);
                        comm.scatter(me == root ? send : null, block, root, stream);
                    }
                });
    }

    private List<Region> blocksOfAll(long count) {
        List<Region> regions = new ArrayList<>();
        for (int r = 0; r < n; r++) {
            regions.add(new Region(r * count, count, r, 0));
        }
        return regions;
    }

    private Plan gather(Case c, int which) {
        long count = c.count();
        int root = c.root();
        return new Plan(
                c,
                which,
                c.inPlace() ? n * count : count,
                me == root ? n * count : -1,
                count,
                List.of(new Region(c.inPlace() ? me * count : 0, count, me, 0)),
                me == root ? blocksOfAll(count) : List.of(),
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.gather(send, ignored(recv, round), root, stream);
                    } else if (round % 2 == 0) {
                        comm.gather(send, root, stream);
                    } else {
                        Buffer block = send.slice(me * count, count);
                        comm.gather(block, me == root ? send : null, root, stream);
                    }
                });
    }

    private Plan reduce(Case c, int which) {
        long count = c.count();
        int root = c.root();
        ReduceOp op = Numbers.reduceOp(c, me);
        List<Region> result = List.of(new Region(0, count, Region.REDUCED, 0));
        return new Plan(
                c,
                which,
                count,
                me == root ? count : -1,
                count,
                List.of(new Region(0, count, me, 0)),
                me == root ? result : List.of(),
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.reduce(send, ignored(recv, round), op, root, stream);
                    } else if (round % 2 == 0) {
                        comm.reduce(send, op, root, stream);
                    } else {
                        comm.reduce(send, me == root ? send : null, op, root, stream);
                    }
                });
    }

    private Plan allReduce(Case c, int which) {
        long count = c.count();
        ReduceOp op = Numbers.reduceOp(c, me);
        return new Plan(
                c,
                which,
                count,
                count,
                count,
                List.of(new Region(0, count, me, 0)),
                List.of(new Region(0, count, Region.REDUCED, 0)),
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.allReduce(send, recv, op, stream);
                    } else if (round % 2 == 0) {
                        comm.allReduce(send, op, stream);
                    } else {
                        comm.allReduce(send, send.slice(0, count), op, stream);
                    }
                });
    }

    private Plan allGather(Case c, int which) {
        long count = c.count();
        return new Plan(
                c,
                which,
                c.inPlace() ? n * count : count,
                n * count,
                count,
                List.of(new Region(c.inPlace() ? me * count : 0, count, me, 0)),
                blocksOfAll(count),
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.allGather(send, recv, stream);
                    } else if (round % 2 == 0) {
                        comm.allGather(send, stream);
                    } else {
                        comm.allGather(send.slice(me * count, count), send, stream);
                    }
                });
    }

    private Plan reduceScatter(Case c, int which) {
        long count = c.count();
        ReduceOp op = Numbers.reduceOp(c, me);
        long at = c.inPlace() ? me * count : 0;
        return new Plan(
                c,
                which,
                n * count,
                count,
                n * count,
                List.of(new Region(0, n * count, me, 0)),
                List.of(new Region(at, count, Region.REDUCED, me * count)),
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.reduceScatter(send, recv, op, stream);
                    } else if (round % 2 == 0) {
                        comm.reduceScatter(send, op, stream);
                    } else {
                        comm.reduceScatter(send, send.slice(me * count, count), op, stream);
                    }
                });
    }

    private Plan allToAll(Case c, int which) {
        long count = c.count();
        List<Region> after = new ArrayList<>();
        for (int r = 0; r < n; r++) {
            after.add(new Region(r * count, count, r, me * count));
        }
        return new Plan(
                c,
                which,
                n * count,
                n * count,
                n * count,
                List.of(new Region(0, n * count, me, 0)),
                after,
                (send, recv, round, stream) -> {
                    if (!c.inPlace()) {
                        comm.allToAll(send, recv, stream);
                    } else if (round % 2 == 0) {
                        comm.allToAll(send, stream);
                    } else {
                        comm.allToAll(send, send.slice(0, n * count), stream);
                    }
                });
    }

    /** Unequal counts, one of them often zero. */
    private long[] counts(Case c) {
        long[] counts = new long[n];
        for (int r = 0; r < n; r++) {
            counts[r] = unequal(c, r, 0);
        }
        return counts;
    }

    private static long unequal(Case c, int i, int j) {
        long hash = Numbers.mix(c.seed(), 1000L * i + j + 5);
        return switch (Numbers.below(hash, 5)) {
            case 0 -> 0;
            case 1 -> c.count();
            case 2 -> c.count() + 1;
            case 3 -> c.count() / 2;
            default -> c.count() + c.count() / 3;
        };
    }

    private static long largest(long[] counts) {
        long largest = 0;
        for (long count : counts) {
            largest = Math.max(largest, count);
        }
        return largest;
    }

    private static List<Region> regions(Blocks blocks) {
        List<Region> regions = new ArrayList<>();
        for (int r = 0; r < blocks.counts.length; r++) {
            regions.add(new Region(blocks.displs[r], blocks.counts[r], r, 0));
        }
        return regions;
    }

    private Plan gatherv(Case c, int which) {
        Blocks blocks = Blocks.spread(counts(c), c.seed());
        int root = c.root();
        long mine = blocks.counts[me];
        boolean shared = c.inPlace() && me == root;
        Region own = new Region(shared ? blocks.displs[me] : 0, mine, me, 0);
        Case placed = inPlaceIf(c, shared);
        return new Plan(
                placed,
                which,
                shared ? blocks.extent : mine,
                me == root ? blocks.extent : -1,
                largest(blocks.counts),
                List.of(own),
                me == root ? regions(blocks) : List.of(),
                (send, recv, round, stream) -> {
                    boolean tell = me == root || round % 2 == 1;
                    long[] counts = tell ? blocks.counts.clone() : null;
                    long[] displs = tell ? blocks.displs.clone() : null;
                    if (shared) {
                        Buffer block = send.slice(blocks.displs[me], mine);
                        comm.gatherv(block, send, counts, displs, root, stream);
                    } else {
                        Buffer to = ignored(recv, round);
                        comm.gatherv(send, to, counts, displs, root, stream);
                    }
                });
    }

    private static Case inPlaceIf(Case c, boolean inPlace) {
        return new Case(
                c.collective(),
                c.type(),
                c.op(),
                c.count(),
                c.ranks(),
                c.root(),
                inPlace,
                c.algorithm(),
                c.data(),
                c.memory(),
                c.async(),
                c.seed());
    }

    private Plan scatterv(Case c, int which) {
        Blocks blocks = Blocks.spread(counts(c), c.seed());
        int root = c.root();
        long mine = blocks.counts[me];
        boolean shared = c.inPlace() && me == root;
        List<Region> own = List.of(new Region(0, blocks.extent, me, 0));
        return new Plan(
                inPlaceIf(c, shared),
                which,
                me == root ? blocks.extent : -1,
                mine,
                blocks.extent,
                me == root ? own : List.of(),
                List.of(new Region(shared ? blocks.displs[me] : 0, mine, root, blocks.displs[me])),
                (send, recv, round, stream) -> {
                    boolean tell = me == root || round % 2 == 1;
                    long[] counts = tell ? blocks.counts.clone() : null;
                    long[] displs = tell ? blocks.displs.clone() : null;
                    Buffer to = shared ? send.slice(blocks.displs[me], mine) : recv;
                    comm.scatterv(ignored(send, round), counts, displs, to, root, stream);
                });
    }

    private Plan allGatherv(Case c, int which) {
        long[] counts = counts(c);
        long mine = counts[me];
        // displacements are each rank's own business
        Blocks blocks = Blocks.spread(counts, Numbers.mix(c.seed(), me));
        return new Plan(
                c,
                which,
                c.inPlace() ? blocks.extent : mine,
                blocks.extent,
                largest(counts),
                List.of(new Region(c.inPlace() ? blocks.displs[me] : 0, mine, me, 0)),
                regions(blocks),
                (send, recv, round, stream) -> {
                    Buffer from = c.inPlace() ? send.slice(blocks.displs[me], mine) : send;
                    Buffer to = c.inPlace() ? send : recv;
                    comm.allGatherv(from, to, blocks.counts, blocks.displs, stream);
                });
    }

    private Plan reduceScatterv(Case c, int which) {
        Blocks blocks = Blocks.packed(counts(c));
        long mine = blocks.counts[me];
        ReduceOp op = Numbers.reduceOp(c, me);
        long at = c.inPlace() ? blocks.displs[me] : 0;
        return new Plan(
                c,
                which,
                blocks.extent,
                mine,
                blocks.extent,
                List.of(new Region(0, blocks.extent, me, 0)),
                List.of(new Region(at, mine, Region.REDUCED, blocks.displs[me])),
                (send, recv, round, stream) -> {
                    Buffer to = c.inPlace() ? send.slice(blocks.displs[me], mine) : recv;
                    comm.reduceScatterv(send, to, blocks.counts, op, stream);
                });
    }

    /** Counts of what each rank sends to each; symmetric if any rank works in place. */
    private long pairCount(Case c, int from, int to) {
        return symmetric
                ? unequal(c, Math.min(from, to), Math.max(from, to))
                : unequal(c, from, to);
    }

    /** How a rank's send buffer is laid out, as its peers have to know to check what they get. */
    private Blocks sendBlocks(Case c, int rank) {
        long[] counts = new long[n];
        for (int to = 0; to < n; to++) {
            counts[to] = pairCount(c, rank, to);
        }
        return Blocks.spread(counts, Numbers.mix(c.seed(), rank));
    }

    private Blocks recvBlocks(Case c) {
        if (c.inPlace()) {
            return sendBlocks(c, me);
        }
        long[] counts = new long[n];
        for (int from = 0; from < n; from++) {
            counts[from] = pairCount(c, from, me);
        }
        return Blocks.spread(counts, Numbers.mix(c.seed(), me + 500));
    }

    private Plan allToAllv(Case c, int which) {
        Blocks from = sendBlocks(c, me);
        Blocks to = recvBlocks(c);
        return new Plan(
                c,
                which,
                from.extent,
                to.extent,
                longestSend(c),
                List.of(new Region(0, from.extent, me, 0)),
                received(c, to),
                (send, recv, round, stream) ->
                        comm.allToAllv(
                                send,
                                from.counts,
                                from.displs,
                                c.inPlace() ? send : recv,
                                to.counts,
                                to.displs,
                                stream));
    }

    private long longestSend(Case c) {
        long longest = 0;
        for (int r = 0; r < n; r++) {
            longest = Math.max(longest, sendBlocks(c, r).extent);
        }
        return longest;
    }

    private List<Region> received(Case c, Blocks to) {
        List<Region> after = new ArrayList<>();
        for (int r = 0; r < n; r++) {
            after.add(new Region(to.displs[r], to.counts[r], r, sendBlocks(c, r).displs[me]));
        }
        return after;
    }

    private Plan ring(Case c, int which) {
        long count = c.count();
        int next = (me + 1) % n;
        int previous = (me + n - 1) % n;
        return new Plan(
                c,
                which,
                count,
                count,
                count,
                List.of(new Region(0, count, me, 0)),
                List.of(new Region(0, count, previous, 0)),
                (send, recv, round, stream) ->
                        Group.run(
                                comm,
                                () -> {
                                    comm.send(send, next, stream);
                                    comm.recv(recv, previous, stream);
                                }));
    }

    private Plan chain(Case c, int which) {
        long count = c.count();
        return new Plan(
                c,
                which,
                me == 0 ? count : -1,
                me == 0 ? -1 : count,
                count,
                List.of(new Region(0, count, 0, 0)),
                List.of(new Region(0, count, 0, 0)),
                (send, recv, round, stream) -> {
                    if (me > 0) {
                        comm.recv(recv, me - 1, stream);
                    }
                    if (me < n - 1) {
                        comm.send(me == 0 ? send : recv, me + 1, stream);
                    }
                });
    }

    private Plan exchange(Case c, int which) {
        Blocks from = sendBlocks(c, me);
        Blocks to = recvBlocks(c);
        return new Plan(
                c,
                which,
                from.extent,
                to.extent,
                longestSend(c),
                List.of(new Region(0, from.extent, me, 0)),
                received(c, to),
                (send, recv, round, stream) ->
                        Group.run(
                                comm,
                                () -> {
                                    // each rank in another order; only messages of a pair keep
                                    // theirs
                                    for (int i = 0; i < n; i++) {
                                        int peer = (i * (me % 2 == 0 ? 1 : n - 1) + me) % n;
                                        peer = Math.floorMod(peer, n);
                                        sendHalves(send, from, peer, stream);
                                    }
                                    for (int peer = n - 1; peer >= 0; peer--) {
                                        recvHalves(recv, to, peer, stream);
                                    }
                                }));
    }

    private void sendHalves(Buffer send, Blocks from, int peer, Stream stream) {
        long count = from.counts[peer];
        long first = count / 3;
        comm.send(send.slice(from.displs[peer], first), peer, stream);
        comm.send(send.slice(from.displs[peer] + first, count - first), peer, stream);
    }

    private void recvHalves(Buffer recv, Blocks to, int peer, Stream stream) {
        long count = to.counts[peer];
        long first = count / 3;
        comm.recv(recv.slice(to.displs[peer], first), peer, stream);
        comm.recv(recv.slice(to.displs[peer] + first, count - first), peer, stream);
    }

    /** No rank leaves a barrier before the last one has come. */
    private void barrier(Stream stream) {
        try (Buffer mine = comm.device().allocate(DataType.INT64, 2);
                Buffer all = comm.device().allocate(DataType.INT64, 2L * n)) {
            meet.run();
            for (int round = 0; round < 5; round++) {
                if (me == (c.root() + round) % n) {
                    sleep(Numbers.below(Numbers.mix(c.seed(), round), 4));
                }
                mine.setLong(0, System.nanoTime());
                comm.barrier(stream);
                stream.synchronize(PATIENCE);
                mine.setLong(1, System.nanoTime());
                comm.allGather(mine, all, stream);
                stream.synchronize(PATIENCE);
                for (int in = 0; in < n; in++) {
                    for (int out = 0; out < n; out++) {
                        long early = all.getLong(2L * in) - all.getLong(2L * out + 1);
                        if (early > 0) {
                            problems.add(
                                    "round %s: rank %s left the barrier %s ns before rank %s came"
                                            .formatted(round, out, early, in));
                        }
                    }
                }
            }
            meet.run();
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static final Collective[] IN_A_GROUP = {
        Collective.ALL_REDUCE,
        Collective.BROADCAST,
        Collective.EXCHANGE,
        Collective.ALL_GATHER,
        Collective.REDUCE_SCATTER,
        Collective.SCATTER,
        Collective.RING,
        Collective.ALL_TO_ALLV,
        Collective.GATHERV,
        Collective.REDUCE
    };

    private void group(Stream stream, int rounds) {
        int count = 2 + Numbers.below(Numbers.mix(c.seed(), 3), 4);
        List<Plan> plans = new ArrayList<>();
        try {
            for (int i = 0; i < count; i++) {
                int kind = Numbers.below(Numbers.mix(c.seed(), 10 + i), IN_A_GROUP.length);
                plans.add(plan(c.with(IN_A_GROUP[kind], n), i));
            }
            meet.run();
            for (int round = 0; round < rounds; round++) {
                for (Plan plan : plans) {
                    plan.prepare(round);
                }
                skew(round);
                boolean withBarrier = round == 1;
                Group.run(
                        comm,
                        () -> {
                            for (Plan plan : plans) {
                                plan.call(stream);
                            }
                            if (withBarrier) {
                                comm.barrier(stream);
                            }
                        });
                stream.synchronize(PATIENCE);
                for (Plan plan : plans) {
                    plan.verify();
                }
            }
            meet.run();
        } finally {
            plans.forEach(Plan::close);
        }
    }

    /** Halves in reversed order, then the same without one rank. */
    private void split(Stream stream) {
        splitInGroup(stream);
        Communicator half = comm.split(me % 2, -me);
        int leaver = c.root();
        Communicator most = comm.split(me == leaver ? -1 : 7, 0);
        if (half == null || (most == null) != (me == leaver)) {
            problems.add("split gave " + half + " and " + most + ", colour -1 on rank " + leaver);
            return;
        }
        int halfSize = me % 2 == 0 ? (n + 1) / 2 : n / 2;
        int halfRank = (n - 1 - me) / 2;
        if (half.size() != halfSize || half.rank() != halfRank) {
            problems.add(
                    "rank %s is rank %s of %s after split, expected %s of %s"
                            .formatted(me, half.rank(), half.size(), halfRank, halfSize));
        }
        try (half) {
            within(half, Collective.ALL_REDUCE, stream);
            within(comm, Collective.REDUCE_SCATTER, stream);
            if (most != null) {
                within(most, Collective.ALL_REDUCE, stream);
                within(most, Collective.BROADCAST, stream);
            }
            within(half, Collective.ALL_GATHERV, stream);
            if (most != null) {
                most.close();
            }
        }
        within(comm, Collective.ALL_REDUCE, stream);
    }

    /** Is refused before anything runs, also what the group recorded before. */
    private void splitInGroup(Stream stream) {
        String name = "split inside a group";
        try (Buffer one = comm.device().allocate(DataType.INT32, 1)) {
            Runnable body =
                    () -> {
                        comm.allReduce(one, ReduceOp.SUM, stream);
                        comm.split(0, 0);
                    };
            try {
                Group.run(comm, body);
                problems.add(name + " was not refused");
            } catch (IllegalStateException e) {
                if (!String.valueOf(e.getMessage()).contains("Group.run")) {
                    problems.add(name + " is refused with " + e);
                }
            }
        }
    }

    private void within(Communicator part, Collective collective, Stream stream) {
        Scenario scenario = new Scenario(part, c.with(collective, part.size()), () -> {});
        scenario.run(stream);
        problems.addAll(scenario.problems);
    }
}
