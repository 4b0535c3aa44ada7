package io.jccl.bench;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Communicator;
import io.jccl.bench.Shape.Layout;
import java.util.List;
import java.util.function.Function;
import java.util.function.IntToDoubleFunction;
import org.jspecify.annotations.Nullable;

/**
 * The operations that have their own command.
 *
 * <p>The factors that turn algorithm bandwidth into bus bandwidth are those that nccl-tests derives
 * in its {@code doc/PERFORMANCE.md}: the bytes over the busiest link if ranks formed a ring,
 * divided by the size of the operation.
 */
@SuppressWarnings("ImmutableEnumChecker") // the functions in the table hold no state
public enum Collective {
    /** {@code all_reduce}. */
    ALL_REDUCE(
            "all_reduce",
            "allReduce",
            Layout.FLAT,
            Needs.OP,
            n -> 2.0 * (n - 1) / n,
            x -> () -> x.comm().allReduce(x.send(), x.recv(), x.op(), x.stream()),
            x -> () -> x.comm().allReduce(x.recv(), x.op(), x.stream()),
            (rank, root, s, out) -> out.expect(0, s.recv(), Patterns.REDUCED, 0)),

    /** {@code all_gather}. */
    ALL_GATHER(
            "all_gather",
            "allGather",
            Layout.GATHERED,
            Needs.NOTHING,
            Collective::othersShare,
            x -> () -> x.comm().allGather(x.send(), x.recv(), x.stream()),
            x -> () -> x.comm().allGather(x.recv(), x.stream()),
            (rank, root, s, out) -> blocksOfAll(s, out)),

    /** {@code reduce_scatter}. */
    REDUCE_SCATTER(
            "reduce_scatter",
            "reduceScatter",
            Layout.SCATTERED,
            Needs.OP,
            Collective::othersShare,
            x -> () -> x.comm().reduceScatter(x.send(), x.recv(), x.op(), x.stream()),
            x -> () -> x.comm().reduceScatter(x.recv(), x.op(), x.stream()),
            (rank, root, s, out) -> out.expect(0, s.recv(), Patterns.REDUCED, rank * s.recv())),

    /** {@code broadcast}. */
    BROADCAST(
            "broadcast",
            "broadcast",
            Layout.FLAT,
            Needs.ROOT,
            n -> 1,
            x -> () -> x.comm().broadcast(x.sendOnRoot(), x.recv(), x.root(), x.stream()),
            x -> () -> x.comm().broadcast(x.recv(), x.root(), x.stream()),
            (rank, root, s, out) -> out.expect(0, s.recv(), root, 0)),

    /** {@code reduce}. */
    REDUCE(
            "reduce",
            "reduce",
            Layout.FLAT,
            Needs.OP_AND_ROOT,
            n -> 1,
            x -> () -> x.comm().reduce(x.send(), x.recvOnRoot(), x.op(), x.root(), x.stream()),
            x -> () -> x.comm().reduce(x.recv(), x.op(), x.root(), x.stream()),
            (rank, root, s, out) -> {
                if (rank == root) {
                    out.expect(0, s.recv(), Patterns.REDUCED, 0);
                }
            }),

    /** {@code scatter}. */
    SCATTER(
            "scatter",
            "scatter",
            Layout.SCATTERED,
            Needs.ROOT,
            Collective::othersShare,
            x -> () -> x.comm().scatter(x.sendOnRoot(), x.recv(), x.root(), x.stream()),
            x -> () -> x.comm().scatter(x.recv(), x.root(), x.stream()),
            (rank, root, s, out) -> out.expect(0, s.recv(), root, rank * s.recv())),

    /** {@code gather}. */
    GATHER(
            "gather",
            "gather",
            Layout.GATHERED,
            Needs.ROOT,
            Collective::othersShare,
            x -> () -> x.comm().gather(x.send(), x.recvOnRoot(), x.root(), x.stream()),
            x -> () -> x.comm().gather(x.recv(), x.root(), x.stream()),
            (rank, root, s, out) -> {
                if (rank == root) {
                    blocksOfAll(s, out);
                }
            }),

    /** {@code alltoall}. */
    ALL_TO_ALL(
            "alltoall",
            "allToAll",
            Layout.EXCHANGED,
            Needs.NOTHING,
            Collective::othersShare,
            x -> () -> x.comm().allToAll(x.send(), x.recv(), x.stream()),
            x -> () -> x.comm().allToAll(x.recv(), x.stream()),
            (rank, root, s, out) -> {
                for (int j = 0; j < s.ranks(); j++) {
                    out.expect(j * s.count(), s.count(), j, rank * s.count());
                }
            }),

    /** {@code alltoallv}: unequal counts, so it cannot run in place. */
    ALL_TO_ALL_V(
            "alltoallv",
            "allToAllv",
            Layout.UNEVEN,
            Needs.NOTHING,
            Collective::othersShare,
            Operands::allToAllv,
            null,
            (rank, root, s, out) -> {
                long[] counts = s.unevenCounts(rank, false);
                long[] starts = Shape.displacements(counts);
                for (int j = 0; j < s.ranks(); j++) {
                    long from = Shape.displacements(s.unevenCounts(j, true))[rank];
                    out.expect(starts[j], counts[j], j, from);
                }
            }),

    /** {@code all_gatherv}. */
    ALL_GATHER_V(
            "all_gatherv",
            "allGatherv",
            Layout.GATHERED_UNEVEN,
            Needs.NOTHING,
            Collective::othersShare,
            Operands::allGatherv,
            null,
            (rank, root, s, out) -> unevenBlocksOfAll(s, out)),

    /** {@code reduce_scatterv}. */
    REDUCE_SCATTER_V(
            "reduce_scatterv",
            "reduceScatterv",
            Layout.SCATTERED_UNEVEN,
            Needs.OP,
            Collective::othersShare,
            Operands::reduceScatterv,
            null,
            (rank, root, s, out) -> unevenBlockOf(rank, Patterns.REDUCED, s, out)),

    /** {@code scatterv}. */
    SCATTER_V(
            "scatterv",
            "scatterv",
            Layout.SCATTERED_UNEVEN,
            Needs.ROOT,
            Collective::othersShare,
            Operands::scatterv,
            null,
            (rank, root, s, out) -> unevenBlockOf(rank, root, s, out)),

    /** {@code gatherv}. */
    GATHER_V(
            "gatherv",
            "gatherv",
            Layout.GATHERED_UNEVEN,
            Needs.ROOT,
            Collective::othersShare,
            Operands::gatherv,
            null,
            (rank, root, s, out) -> {
                if (rank == root) {
                    unevenBlocksOfAll(s, out);
                }
            }),

    /**
     * {@code sendrecv}: each rank sends to the next and receives from the previous one. In place a
     * rank would overwrite data that it is still sending.
     */
    SEND_RECV(
            "sendrecv",
            "send",
            Layout.FLAT,
            Needs.NOTHING,
            n -> 1,
            Operands::sendRecv,
            null,
            (rank, root, s, out) -> out.expect(0, s.recv(), Math.floorMod(rank - 1, s.ranks()), 0)),

    /**
     * {@code hypercube}: an allGather of sends and receives, in which every rank doubles its data
     * in each step, with a partner twice as far away. The number of ranks must be a power of two.
     */
    HYPERCUBE(
            "hypercube",
            "send",
            Layout.GATHERED,
            Needs.NOTHING,
            n -> 1,
            x -> x.hypercube(false),
            x -> x.hypercube(true),
            (rank, root, s, out) -> blocksOfAll(s, out)),

    /** {@code barrier}. */
    BARRIER(
            "barrier",
            "barrier",
            Layout.NONE,
            Needs.NOTHING,
            n -> 0,
            x -> () -> x.comm().barrier(x.stream()),
            null,
            (rank, root, s, out) -> {});

    /** Arguments other than the buffers. */
    private enum Needs {
        NOTHING,
        OP,
        ROOT,
        OP_AND_ROOT
    }

    /** Receives the expected result of a rank, run by run. */
    @FunctionalInterface
    interface Expectation {
        /**
         * Describes a run of the expected result.
         *
         * @param at its start in the result, in elements
         * @param count number of elements
         * @param source the rank that sent the elements, or {@link Patterns#REDUCED}
         * @param from their index in the source's send buffer
         */
        void expect(long at, long count, int source, long from);
    }

    @FunctionalInterface
    private interface Result {
        void of(int rank, int root, Shape shape, Expectation out);
    }

    private final String command;
    private final String method;
    private final Layout layout;
    private final Needs needs;
    private final IntToDoubleFunction busFactor;
    private final Function<Operands, Runnable> outOfPlace;
    private final @Nullable Function<Operands, Runnable> inPlace;
    private final Result result;

    Collective(
            String command,
            String method,
            Layout layout,
            Needs needs,
            IntToDoubleFunction busFactor,
            Function<Operands, Runnable> outOfPlace,
            @Nullable Function<Operands, Runnable> inPlace,
            Result result) {
        this.command = command;
        this.method = method;
        this.layout = layout;
        this.needs = needs;
        this.busFactor = busFactor;
        this.outOfPlace = outOfPlace;
        this.inPlace = inPlace;
        this.result = result;
    }

    /** All operations, in the order in which help lists them. */
    public static final List<Collective> ALL = List.of(values());

    public String command() {
        return command;
    }

    /** The method of {@link Communicator} that it calls. */
    public String method() {
        return method;
    }

    Layout layout() {
        return layout;
    }

    public boolean reduces() {
        return needs == Needs.OP || needs == Needs.OP_AND_ROOT;
    }

    public boolean rooted() {
        return needs == Needs.ROOT || needs == Needs.OP_AND_ROOT;
    }

    public boolean worksInPlace() {
        return inPlace != null;
    }

    /** Whether a rank sends data. */
    boolean sends(int rank, int root) {
        return switch (this) {
            case BROADCAST, SCATTER, SCATTER_V -> rank == root;
            case BARRIER -> false;
            default -> true;
        };
    }

    /**
     * Whether several operations may form a group. The steps of a hypercube depend on earlier
     * steps, and operations of a group are not ordered.
     */
    public boolean isGrouped() {
        return this != HYPERCUBE;
    }

    /**
     * Description of the command in the help.
     *
     * @return one sentence
     */
    public String about() {
        return switch (this) {
            case BARRIER -> "Measure a barrier.";
            case HYPERCUBE -> "Measure and check an allGather by sends along a hypercube.";
            default -> "Measure and check " + method + ".";
        };
    }

    /**
     * Checks that the operation is defined for a number of ranks.
     *
     * @param n number of ranks
     * @throws IllegalArgumentException if it is not; the message suggests a remedy
     */
    public void checkRanks(int n) {
        if (this == HYPERCUBE && Integer.bitCount(n) != 1) {
            throw new IllegalArgumentException(
                    format(
                            "hypercube with %s ranks: expected a power of two, as each step"
                                    + " doubles what a rank has; start %s or %s ranks",
                            n, Integer.highestOneBit(n), 2 * Integer.highestOneBit(n)));
        }
    }

    /**
     * Ratio of algorithm bandwidth to size divided by time.
     *
     * @param n number of ranks
     * @return 1, or the fraction of the size that nccl-tests counts: for a hypercube only other
     *     ranks' blocks
     */
    double algFactor(int n) {
        return this == HYPERCUBE ? othersShare(n) : 1;
    }

    /**
     * Ratio of bus bandwidth to algorithm bandwidth.
     *
     * @param n number of ranks
     */
    double busFactor(int n) {
        return busFactor.applyAsDouble(n);
    }

    /**
     * Binds a rank's arguments, so that the timed loop only makes the call.
     *
     * @param here true for in place
     * @return one operation
     */
    Runnable bind(Operands operands, boolean here) {
        Function<Operands, Runnable> binder = here ? inPlace : outOfPlace;
        if (binder == null) {
            throw new IllegalArgumentException(command + " has no in-place form");
        }
        return binder.apply(operands);
    }

    /**
     * Describes the expected result of a rank.
     *
     * @param shape counts
     * @param out receives every run
     */
    void expected(int rank, int root, Shape shape, Expectation out) {
        result.of(rank, root, shape, out);
    }

    private static double othersShare(int n) {
        return (n - 1.0) / n;
    }

    private static void blocksOfAll(Shape s, Expectation out) {
        for (int j = 0; j < s.ranks(); j++) {
            out.expect(j * s.count(), s.count(), j, 0);
        }
    }

    private static void unevenBlocksOfAll(Shape s, Expectation out) {
        long[] counts = s.unevenBlocks();
        long[] starts = Shape.displacements(counts);
        for (int j = 0; j < s.ranks(); j++) {
            out.expect(starts[j], counts[j], j, 0);
        }
    }

    private static void unevenBlockOf(int rank, int source, Shape s, Expectation out) {
        long[] counts = s.unevenBlocks();
        out.expect(0, counts[rank], source, Shape.displacements(counts)[rank]);
    }
}
