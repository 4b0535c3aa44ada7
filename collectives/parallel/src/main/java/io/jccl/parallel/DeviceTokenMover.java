package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.compute.Layers;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.cuda.CudaDevice;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;

/**
 * Moves and sums rows in device memory by kernels and {@link ExpertAllToAll}, on the default
 * stream. The host reads the logits and the counts of a step through pinned memory, and writes
 * where rows go; it waits in {@link #readable}, {@link #gatherCounts} and {@link #routeBackward},
 * and nowhere else.
 *
 * <p>What is summed lies in one buffer: the block of the local experts, then the rows that other
 * ranks returned. So a row of an assignment has one number, and each movement is a product of a
 * sparse matrix with rows ({@link Layers#combineRows}). Rows of a rank's own experts are not
 * staged.
 */
final class DeviceTokenMover extends TokenMover {
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
    private static final ValueLayout.OfFloat FLOAT = ValueLayout.JAVA_FLOAT_UNALIGNED;

    private final int features;
    private final Compute compute;
    private final Layers layers;
    private final ExpertAllToAll exchange;

    /** Outputs of other ranks' experts for this rank's tokens, after those of the local experts. */
    private final Buffer returned;

    /** Rows for other ranks, or gradients from them, after those of the local experts. */
    private final Buffer staged;

    /** Counts of all ranks on the host and on the device, and this rank's part of them. */
    private final Buffer counts;

    private final Buffer ownCounts;
    private final Buffer deviceCounts;
    private final Buffer ownDeviceCounts;

    /** Logits on the host, later their gradients. */
    private final Buffer logits;

    /** The gradients of the weights, in the order of {@link Assignments#byToken}. */
    private final Buffer dots;

    private final Buffer hostDots;

    // The matrices of a step: written on the host, then copied.
    private final Buffer hostInts;
    private final Buffer hostFloats;
    private final Buffer ints;
    private final Buffer floats;

    /** Row of each assignment in {@link #outputRows}. */
    private final int[] rowOf;

    /** Rows of the blocks that a step writes, and rows staged. */
    private int blockRows;

    private int stagedRows;

    // Views of the matrices: by token, for each row of the block, for each staged row.
    private Buffer start;
    private Buffer place;
    private Buffer blockToken;
    private Buffer stagedToken;
    private Buffer weight;
    private Buffer blockWeight;
    private Buffer stagedWeight;

    DeviceTokenMover(
            Communicator comm,
            ExpertOptions options,
            ExpertRouter router,
            long maxRows,
            List<AutoCloseable> owned) {
        super(comm, options, router, maxRows, checkedAway(comm, options, maxRows), owned);
        features = options.features();
        RouterOptions r = options.router();
        int most = r.maxAssignments();
        long numbers = most + maxRows + away(comm, r);
        long indices = r.maxTokens() + 1L + numbers;
        compute = own(Compute.of(comm.device()));
        layers = compute.layers();
        returned = after(outputRows);
        staged = after(gradientRows);
        exchange = new ExpertAllToAll(comm, options, staged);
        counts = pinned(DataType.INT32, countsOfAll());
        ownCounts = ownCounts(counts);
        deviceCounts = onDevice(DataType.INT32, countsOfAll());
        ownDeviceCounts = ownCounts(deviceCounts);
        logits = pinned(DataType.FLOAT32, (long) r.maxTokens() * r.experts());
        dots = onDevice(DataType.FLOAT32, most);
        hostDots = pinned(DataType.FLOAT32, most);
        hostInts = pinned(DataType.INT32, indices);
        ints = onDevice(DataType.INT32, indices);
        hostFloats = pinned(DataType.FLOAT32, numbers);
        floats = onDevice(DataType.FLOAT32, numbers);
        rowOf = new int[most];
        start = ints;
        place = ints;
        blockToken = ints;
        stagedToken = ints;
        weight = floats;
        blockWeight = floats;
        stagedWeight = floats;
    }

    /** Rows that a rank sends to others. */
    private static int away(Communicator comm, RouterOptions options) {
        return comm.size() == 1 ? 0 : options.maxAssignments();
    }

    private static int checkedAway(Communicator comm, ExpertOptions options, long maxRows) {
        RouterOptions r = options.router();
        int away = away(comm, r);
        if (r.maxTokens() + 1L + r.maxAssignments() + maxRows + away > Integer.MAX_VALUE) {
            throw new IllegalArgumentException(
                    ("the experts of a rank may receive %s rows of %s tokens of each rank,"
                                    + " more than int32 indices can number; set a smaller"
                                    + " ExpertOptions.maxRows")
                            .formatted(maxRows, r.maxTokens()));
        }
        return away;
    }

    private Buffer onDevice(DataType type, long count) {
        return own(comm.device().allocate(type, count));
    }

    /** Belongs to the rank's device: freeing it waits for work of that device and no other. */
    private Buffer pinned(DataType type, long count) {
        return own(CudaDevice.of(comm.device()).current(() -> Cuda.pinned(type, count)));
    }

    /** The rows after those of a block. */
    private Buffer after(Buffer rows) {
        long from = maxRows * features;
        return rows.slice(from, rows.count() - from);
    }

    @Override
    Buffer counts() {
        return counts;
    }

    @Override
    void gatherCounts() {
        stream.copy(ownCounts, ownDeviceCounts);
        comm.allGather(ownDeviceCounts, deviceCounts, stream);
        stream.copy(deviceCounts, counts);
        stream.synchronize();
    }

    @Override
    Buffer readable(Buffer logits, int tokens) {
        router.check(logits, tokens, "the logits");
        long count = (long) tokens * options.router().experts();
        if (count > 0) {
            stream.copy(logits.slice(0, count), this.logits.slice(0, count));
        }
        // Also with no tokens: the copies of the step before are then done.
        stream.synchronize();
        return this.logits;
    }

    /**
     * Numbers the rows and writes the matrices. Integers: {@link Assignments#tokenStart}, the rows
     * of assignments by token, then the token of each row of the block and of each staged row, -1
     * for rows of other ranks' tokens and padding. Floats: the weights of the last three.
     */
    @Override
    void layOut(DispatchPlan plan) {
        exchange.layOut(router, plan);
        Assignments table = router.table();
        int all = table.size();
        int first = comm.rank() * plan.local;
        int last = first + plan.local - 1;
        stagedRows = all - (router.start(last + 1) - router.start(first));
        blockRows =
                Math.toIntExact(
                        options.fixedBlocks() ? maxRows : plan.first(last) + plan.rows(last));
        for (int e = 0; e < plan.experts; e++) {
            long row =
                    e >= first && e <= last
                            ? plan.firstOf(comm.rank(), e)
                            : maxRows + exchange.stagedRow(router, e);
            for (int i = router.start(e); i < router.start(e + 1); i++) {
                rowOf[i] = (int) row++;
            }
        }
        int starts = router.tokens() + 1;
        int both = blockRows + stagedRows;
        MemorySegment toInts = hostInts.asSegment();
        MemorySegment toFloats = hostFloats.asSegment();
        MemorySegment.copy(table.tokenStart, 0, toInts, INT, 0, starts);
        for (int k = 0; k < all; k++) {
            int i = table.byToken[k];
            toInts.setAtIndex(INT, starts + k, rowOf[i]);
            toFloats.setAtIndex(FLOAT, k, table.weight[i]);
        }
        for (int row = 0; row < blockRows; row++) {
            toInts.setAtIndex(INT, starts + all + row, -1);
            toFloats.setAtIndex(FLOAT, all + row, 0);
        }
        for (int i = 0; i < all; i++) {
            // Staged rows follow the block's rows of this step.
            int at = all + (rowOf[i] < maxRows ? rowOf[i] : rowOf[i] - (int) maxRows + blockRows);
            toInts.setAtIndex(INT, starts + at, table.token[i]);
            toFloats.setAtIndex(FLOAT, at, table.weight[i]);
        }
        copy(hostInts, ints, starts + all + both);
        copy(hostFloats, floats, all + both);
        start = ints.slice(0, starts);
        place = ints.slice(starts, all);
        blockToken = ints.slice(starts + all, blockRows);
        stagedToken = ints.slice(starts + all + blockRows, stagedRows);
        weight = floats.slice(0, all);
        blockWeight = floats.slice(all, blockRows);
        stagedWeight = floats.slice(all + blockRows, stagedRows);
    }

    private void copy(Buffer from, Buffer to, int count) {
        if (count > 0) {
            stream.copy(from.slice(0, count), to.slice(0, count));
        }
    }

    @Override
    void dispatch(Buffer tokens) {
        Buffer from = rows(tokens, router.tokens());
        compute.gatherRows(from, features, blockToken, rows(inputs, blockRows), stream);
        compute.gatherRows(from, features, stagedToken, rows(staged, stagedRows), stream);
        exchange.move(staged, inputs, true);
    }

    @Override
    void combine(Buffer result) {
        exchange.move(outputs, returned, false);
        Buffer to = rows(result, router.tokens());
        layers.combineRows(outputRows, features, start, place, weight, to, stream);
    }

    @Override
    void combineBackward(Buffer resultGradient) {
        Buffer from = rows(resultGradient, router.tokens());
        int all = router.assignments();
        Buffer block = outputGradients;
        if (block == null) {
            throw new IllegalStateException("there is no backward pass");
        }
        layers.rowDots(from, features, start, place, outputRows, dots.slice(0, all), stream);
        copy(dots, hostDots, all);
        layers.combineRows(
                from, features, null, blockToken, blockWeight, rows(block, blockRows), stream);
        layers.combineRows(
                from, features, null, stagedToken, stagedWeight, rows(staged, stagedRows), stream);
        exchange.move(staged, block, true);
    }

    @Override
    void dispatchBackward(Buffer tokensGradient) {
        if (inputGradients != null) {
            exchange.move(inputGradients, staged, false);
        }
        Buffer to = rows(tokensGradient, router.tokens());
        layers.combineRows(gradientRows, features, start, place, null, to, stream);
    }

    @Override
    void routeBackward(Buffer logitsGradient, double balance, double z) {
        router.check(logitsGradient, router.tokens(), "the gradients of the logits");
        stream.synchronize();
        Assignments table = router.table();
        MemorySegment from = hostDots.asSegment();
        for (int k = 0; k < table.size(); k++) {
            table.weightGradient[table.byToken[k]] = from.getAtIndex(FLOAT, k);
        }
        router.backward(logits, balance, z);
        copy(logits, logitsGradient, router.tokens() * options.router().experts());
    }
}
