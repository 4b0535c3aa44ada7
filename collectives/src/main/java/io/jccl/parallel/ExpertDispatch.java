package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Expert parallelism: a layer's experts are spread over ranks, and every token travels to the ranks
 * of its experts and back (Lepikhin et al., "GShard", <a
 * href="https://arxiv.org/abs/2006.16668">arXiv 2006.16668</a>, section 3.1). Of E experts over n
 * ranks, rank r has those from {@code r E/n} on.
 *
 * <table>
 * <caption>A step. Calls are the same on all ranks, in this order; those of backward may be left
 * out</caption>
 * <tr><th>call</th><th>between ranks</th><th>effect</th></tr>
 * <tr><td>{@link #route}</td><td>allGather of the numbers of tokens</td><td>{@link ExpertRouter};
 * {@link #statistics}</td></tr>
 * <tr><td>{@link #dispatch}</td><td>allToAllv</td><td>tokens to {@link #inputs}, a block for each
 * local expert</td></tr>
 * <tr><td>the caller's experts</td><td></td><td>{@link #inputs} to {@link #outputs}</td></tr>
 * <tr><td>{@link #combine}</td><td>allToAllv</td><td>the weighted sum of a token's outputs; 0 if no
 * expert took it, so that only what goes round the layer remains</td></tr>
 * <tr><td>{@link #combineBackward}</td><td>allToAllv</td><td>{@link #outputGradients}, and the
 * gradients of the weights, which go to the router</td></tr>
 * <tr><td>the caller's experts</td><td></td><td>{@link #outputGradients} to {@link
 * #inputGradients}</td></tr>
 * <tr><td>{@link #dispatchBackward}</td><td>allToAllv</td><td>the gradients of the tokens</td></tr>
 * <tr><td>{@link #routeBackward}</td><td></td><td>the gradients of the logits</td></tr>
 * </table>
 *
 * <p>A token's gradient is the sum of what its way through the experts and the logits contribute;
 * the latter is the caller's, who made the logits from the tokens. Sums run in the order of the
 * experts, so that a result does not depend on the number of ranks.
 *
 * <p>All memory is made once, and steps allocate nothing. Everything is complete when a call
 * returns, and what is passed in must be complete before: synchronize other streams first. Host
 * memory only, since routing looks at the numbers.
 *
 * <p><b>Threads:</b> that of the communicator.
 */
public final class ExpertDispatch implements AutoCloseable {
    /** How far a step is. */
    private enum Phase {
        NOTHING("route"),
        ROUTED("dispatch"),
        DISPATCHED("combine"),
        COMBINED("combineBackward"),
        OUTPUTS_BACK("dispatchBackward or routeBackward"),
        INPUTS_BACK("routeBackward");

        final String next;

        Phase(String next) {
            this.next = next;
        }
    }

    // What a rank tells the others, as int32: tokens taken from it and first choices, of each
    // expert, and these.
    private static final int TOKENS = 0;
    private static final int UNTAKEN = 1;
    private static final int BAD = 2;
    private static final int NUMBERS = 3;

    private final Communicator comm;
    private final ExpertOptions options;
    private final Stream stream;
    private final int ranks;
    private final int experts;
    private final int local;
    private final ExpertRouter router;
    private final ExpertStatistics statistics;
    private final TokenRows rows;

    private final Buffer counts;
    private final int record;
    private final long maxRows;

    /** Rows to be sent to other ranks, or that came back from them, in the order of assignments. */
    private final Buffer staged;

    /** What other ranks' experts made of this rank's tokens, kept for backward. */
    private final Buffer returned;

    private final Buffer inputs;
    private final Buffer outputs;
    private final @Nullable Buffer outputGradients;
    private final @Nullable Buffer inputGradients;
    private final List<Buffer> owned = new ArrayList<>();

    private final long[] firstRow;
    private final long[] rowCount;
    private final Part[] parts;

    /** The row of each assignment: in the experts' blocks if they are of this rank, else staged. */
    private final long[] place;

    // The assignments to experts of this rank, whose rows do not travel.
    private int ownFrom;
    private int ownTo;

    // What the group in progress moves; fields, since a lambda that captures them is garbage.
    private final Runnable exchange = this::exchangeAll;
    private Buffer moved;
    private Buffer target;
    private boolean outward;
    private Phase phase = Phase.NOTHING;
    private boolean closed;

    /** The rows of one expert of each rank, in elements. */
    private static final class Part {
        final long[] sendCounts;
        final long[] sendDispls;
        final long[] recvCounts;
        final long[] recvDispls;

        Part(int ranks) {
            sendCounts = new long[ranks];
            sendDispls = new long[ranks];
            recvCounts = new long[ranks];
            recvDispls = new long[ranks];
        }
    }

    private ExpertDispatch(Communicator comm, ExpertOptions options) {
        this.comm = comm;
        this.options = options;
        RouterOptions r = options.router();
        stream = comm.device().defaultStream();
        ranks = comm.size();
        experts = r.experts();
        local = experts / ranks;
        router = ExpertRouter.create(r);
        statistics = new ExpertStatistics(r);
        rows = new TokenRows(options.features(), options.type());
        record = 2 * experts + NUMBERS;
        long worst =
                options.fixedBlocks()
                        ? Math.multiplyExact((long) local * ranks, r.capacity(r.maxTokens()))
                        : Math.multiplyExact(ranks, r.maxRowsTo(local));
        maxRows = options.maxRows() == 0 ? worst : Math.min(worst, options.maxRows());
        firstRow = new long[local];
        rowCount = new long[local];
        parts = new Part[local];
        place = new long[r.maxAssignments()];
        for (int l = 0; l < local; l++) {
            parts[l] = new Part(ranks);
            firstRow[l] = options.fixedBlocks() ? l * (maxRows / local) : 0;
        }
        try {
            counts = own(comm.device().allocate(DataType.INT32, (long) ranks * record));
            inputs = ownRows(maxRows);
            outputs = ownRows(maxRows);
            outputGradients = options.backward() ? ownRows(maxRows) : null;
            inputGradients = options.backward() ? ownRows(maxRows) : null;
            long travelling = ranks == 1 ? 0 : r.maxAssignments();
            staged = ownRows(travelling);
            returned = ownRows(travelling);
        } catch (RuntimeException | Error e) {
            Closing.all(owned);
            throw e;
        }
        moved = staged;
        target = inputs;
    }

    private Buffer ownRows(long count) {
        return own(
                comm.device()
                        .allocate(options.type(), Math.multiplyExact(count, options.features())));
    }

    private Buffer own(Buffer buffer) {
        owned.add(buffer);
        return buffer;
    }

    /**
     * Makes the memory of one layer, or of several that have no step in progress at the same time.
     * All ranks call it.
     *
     * @param comm the ranks that share the experts
     * @param options the same on all ranks
     * @return the object, which the caller closes before the communicator
     * @throws IllegalArgumentException if the number of experts is no multiple of that of ranks, or
     *     the ranks are GPUs
     * @throws io.jccl.CollectiveMismatchException if the ranks pass different options
     */
    public static ExpertDispatch create(Communicator comm, ExpertOptions options) {
        Objects.requireNonNull(options, "options");
        if (comm.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    "the ranks are on "
                            + comm.device()
                            + ", but tokens are routed and sorted in host memory; use a communicator"
                            + " of the host or MPI engine, and copy tokens and results by"
                            + " Stream.copy");
        }
        int experts = options.router().experts();
        if (experts % comm.size() != 0) {
            throw new IllegalArgumentException(
                    experts
                            + " experts do not spread evenly over "
                            + comm.size()
                            + " ranks, expected a multiple; use a Mesh whose expert axis divides"
                            + " them");
        }
        Agreement.check(comm, "the options of ExpertDispatch", List.of(options.toString()));
        return new ExpertDispatch(comm, options);
    }

    // ---- forward

    /**
     * Decides where this rank's tokens go, and tells the other ranks.
     *
     * @param logits tokens x experts of float32, row after row, in host memory
     * @param tokens of this rank in this step, 0 to {@link RouterOptions#maxTokens}; ranks may
     *     differ
     * @throws IllegalArgumentException if the buffer does not fit; on all ranks, if on some a logit
     *     is NaN or infinity
     * @throws IllegalStateException on all ranks, if one would get more tokens than {@link
     *     ExpertOptions#maxRows}; the ranks may go on with another step
     */
    public void route(Buffer logits, int tokens) {
        checkOpen();
        phase = Phase.NOTHING;
        int bad = router.tryRoute(logits, tokens);
        MemorySegment all = counts.asSegment();
        int at = comm.rank() * record;
        for (int e = 0; e < experts; e++) {
            setInt(all, at + e, router.count(e));
            setInt(all, at + experts + e, router.firstChoices(e));
        }
        at += 2 * experts;
        setInt(all, at + TOKENS, router.tokens());
        setInt(all, at + UNTAKEN, router.untaken());
        setInt(all, at + BAD, bad);
        comm.allGather(counts, stream);
        stream.synchronize();
        statistics.begin();
        for (int r = 0; r < ranks; r++) {
            int of = r * record;
            for (int e = 0; e < experts; e++) {
                statistics.addExpert(e, getInt(all, of + e), getInt(all, of + experts + e));
            }
            of += 2 * experts;
            if (getInt(all, of + BAD) >= 0) {
                throw new IllegalArgumentException(
                        "on rank " + r + " " + router.badLogit(getInt(all, of + BAD)));
            }
            statistics.addRank(getInt(all, of + TOKENS), getInt(all, of + UNTAKEN));
        }
        checkRows(all);
        layOut(all);
        phase = Phase.ROUTED;
    }

    private static int getInt(MemorySegment s, int index) {
        return s.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, index);
    }

    private static void setInt(MemorySegment s, int index, int value) {
        s.setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, index, value);
    }

    /** All ranks know all numbers, so that all of them notice. */
    private void checkRows(MemorySegment all) {
        if (options.fixedBlocks()) {
            return;
        }
        for (int to = 0; to < ranks; to++) {
            long sum = 0;
            for (int e = to * local; e < (to + 1) * local; e++) {
                sum += statistics.taken(e);
            }
            if (sum > maxRows) {
                throw new IllegalStateException(
                        "the experts of rank "
                                + to
                                + " would get "
                                + sum
                                + " tokens, more than the maxRows of "
                                + maxRows
                                + "; make the ExpertDispatch with at least as many, or 0 for the"
                                + " worst case, or limit experts by a capacity");
            }
        }
    }

    /** Which rows go where. */
    private void layOut(MemorySegment all) {
        int features = options.features();
        int own = comm.rank();
        ownFrom = router.start(own * local);
        ownTo = router.start((own + 1) * local);
        long next = 0;
        for (int l = 0; l < local; l++) {
            Part part = parts[l];
            long first = options.fixedBlocks() ? firstRow[l] : next;
            long row = first;
            for (int r = 0; r < ranks; r++) {
                int e = r * local + l;
                part.sendCounts[r] = (long) router.count(e) * features;
                part.sendDispls[r] = (long) router.start(e) * features;
                int n = getInt(all, r * record + own * local + l);
                part.recvCounts[r] = (long) n * features;
                part.recvDispls[r] = row * features;
                if (r == own) {
                    part.sendCounts[r] = 0;
                    part.recvCounts[r] = 0;
                    for (int i = 0; i < n; i++) {
                        place[router.start(e) + i] = row + i;
                    }
                }
                row += n;
            }
            firstRow[l] = first;
            rowCount[l] = row - first;
            next = row;
        }
        for (int i = 0; i < ownFrom; i++) {
            place[i] = i;
        }
        for (int i = ownTo; i < router.assignments(); i++) {
            place[i] = i;
        }
    }

    private boolean isOwn(int assignment) {
        return assignment >= ownFrom && assignment < ownTo;
    }

    /**
     * Sends tokens to their experts; afterwards they are in {@link #inputs} of the ranks that have
     * these.
     *
     * @param tokens as many as were routed x features, row after row, in host memory; not changed
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #route} has not been called
     */
    public void dispatch(Buffer tokens) {
        check(Phase.ROUTED, tokens, "the tokens");
        MemorySegment from = tokens.asSegment();
        MemorySegment away = staged.asSegment();
        MemorySegment here = inputs.asSegment();
        int[] token = router.tokenArray();
        int n = router.assignments();
        for (int i = 0; i < n; i++) {
            rows.copy(from, token[i], isOwn(i) ? here : away, place[i]);
        }
        move(staged, inputs, true);
        zeroRest(inputs);
        phase = Phase.DISPATCHED;
    }

    /**
     * Brings what the experts have written to {@link #outputs} back and adds it up. For backward
     * the outputs must stay as they are until {@link #combineBackward}.
     *
     * @param result as many tokens as were routed x features, overwritten; may be the buffer that
     *     was dispatched
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #dispatch} has not been called
     */
    public void combine(Buffer result) {
        check(Phase.DISPATCHED, result, "the result");
        move(outputs, returned, false);
        sum(outputs, returned, router.weightArray(), result.asSegment());
        phase = Phase.COMBINED;
    }

    /** Each token's sum over its assignments, weighted or not. */
    private void sum(Buffer own, Buffer others, float @Nullable [] weights, MemorySegment to) {
        MemorySegment here = own.asSegment();
        MemorySegment away = others.asSegment();
        int[] assignments = router.assignmentsByToken();
        int tokens = router.tokens();
        for (int t = 0; t < tokens; t++) {
            int first = router.startOfToken(t);
            int end = router.startOfToken(t + 1);
            if (first == end) {
                rows.zero(to, t, 1);
                continue;
            }
            int i = assignments[first];
            if (end - first == 1 && (weights == null || weights[i] == 1)) {
                rows.copy(isOwn(i) ? here : away, place[i], to, t);
                continue;
            }
            rows.loadScaled(isOwn(i) ? here : away, place[i], weights == null ? 1 : weights[i]);
            for (int k = first + 1; k < end; k++) {
                i = assignments[k];
                rows.addScaled(isOwn(i) ? here : away, place[i], weights == null ? 1 : weights[i]);
            }
            rows.store(to, t);
        }
    }

    // ---- backward

    /**
     * Sends the gradient of {@link #combine}'s result to the experts, and gives the gradients of
     * the weights to the router.
     *
     * @param resultGradient as large as the result; not changed
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #combine} has not been called, or there is no
     *     backward
     */
    public void combineBackward(Buffer resultGradient) {
        Buffer gradients = gradients(outputGradients);
        check(Phase.COMBINED, resultGradient, "the result's gradient");
        MemorySegment from = resultGradient.asSegment();
        MemorySegment resultsHere = outputs.asSegment();
        MemorySegment resultsAway = returned.asSegment();
        MemorySegment here = gradients.asSegment();
        MemorySegment away = staged.asSegment();
        int[] assignments = router.assignmentsByToken();
        float[] weights = router.weightArray();
        int tokens = router.tokens();
        for (int t = 0; t < tokens; t++) {
            int first = router.startOfToken(t);
            int end = router.startOfToken(t + 1);
            if (first < end) {
                rows.load(from, t);
            }
            for (int k = first; k < end; k++) {
                int i = assignments[k];
                boolean own = isOwn(i);
                router.setWeightGradient(i, rows.dot(own ? resultsHere : resultsAway, place[i]));
                rows.storeScaled(weights[i], own ? here : away, place[i]);
            }
        }
        move(staged, gradients, true);
        zeroRest(gradients);
        phase = Phase.OUTPUTS_BACK;
    }

    /**
     * Brings what the experts have written to {@link #inputGradients} back and adds it up.
     *
     * @param tokensGradient as large as the tokens, overwritten
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #combineBackward} has not been called
     */
    public void dispatchBackward(Buffer tokensGradient) {
        Buffer gradients = gradients(inputGradients);
        check(Phase.OUTPUTS_BACK, tokensGradient, "the tokens' gradient");
        move(gradients, staged, false);
        sum(gradients, staged, null, tokensGradient.asSegment());
        phase = Phase.INPUTS_BACK;
    }

    /**
     * Computes the gradient by the logits; see {@link ExpertRouter#backward}. No other rank takes
     * part.
     *
     * @param logitsGradient as large as the logits, overwritten
     * @param balance factor of the load-balancing loss
     * @param z factor of the router z-loss
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #combineBackward} has not been called
     */
    public void routeBackward(Buffer logitsGradient, double balance, double z) {
        checkOpen();
        if (phase.ordinal() < Phase.OUTPUTS_BACK.ordinal()) {
            throw outOfOrder();
        }
        router.backward(logitsGradient, balance, z);
    }

    // ---- rows between ranks

    private void move(Buffer from, Buffer to, boolean towardsExperts) {
        if (ranks == 1) {
            return;
        }
        moved = from;
        target = to;
        outward = towardsExperts;
        if (local == 1) {
            exchangeAll();
        } else {
            Group.run(comm, exchange);
        }
        stream.synchronize();
    }

    /** One exchange for each local expert puts rows of all ranks where they belong at once. */
    private void exchangeAll() {
        for (Part p : parts) {
            if (outward) {
                comm.allToAllv(
                        moved,
                        p.sendCounts,
                        p.sendDispls,
                        target,
                        p.recvCounts,
                        p.recvDispls,
                        stream);
            } else {
                comm.allToAllv(
                        moved,
                        p.recvCounts,
                        p.recvDispls,
                        target,
                        p.sendCounts,
                        p.sendDispls,
                        stream);
            }
        }
    }

    private void zeroRest(Buffer blocks) {
        if (options.fixedBlocks()) {
            MemorySegment s = blocks.asSegment();
            for (int l = 0; l < local; l++) {
                rows.zero(s, firstRow[l] + rowCount[l], blockRows() - rowCount[l]);
            }
        }
    }

    // ---- what the experts work on

    /**
     * The tokens that came to this rank's experts, by rows; see {@link #firstRow} and {@link
     * #rowCount}. Rows of one expert are in the order of the ranks they came from and of the
     * router's slots there.
     *
     * @return {@link #maxRows} x features; valid until the next {@link #dispatch}
     */
    public Buffer inputs() {
        return inputs;
    }

    /**
     * Where experts write their results, laid out like {@link #inputs}.
     *
     * @return {@link #maxRows} x features
     */
    public Buffer outputs() {
        return outputs;
    }

    /**
     * The gradients of {@link #outputs}.
     *
     * @return {@link #maxRows} x features; valid until the next {@link #combineBackward}
     * @throws IllegalStateException if this was made without a backward pass
     */
    public Buffer outputGradients() {
        return gradients(outputGradients);
    }

    /**
     * Where experts write the gradients of {@link #inputs}.
     *
     * @return {@link #maxRows} x features
     * @throws IllegalStateException if this was made without a backward pass
     */
    public Buffer inputGradients() {
        return gradients(inputGradients);
    }

    private static Buffer gradients(@Nullable Buffer buffer) {
        if (buffer == null) {
            throw new IllegalStateException(
                    "this ExpertDispatch was made without a backward pass; set"
                            + " ExpertOptions.withBackward(true)");
        }
        return buffer;
    }

    /**
     * Rows that {@link #inputs} and its like have room for.
     *
     * @return as set, or what can come at worst
     */
    public long maxRows() {
        return maxRows;
    }

    /**
     * Number of experts on each rank.
     *
     * @return experts / ranks
     */
    public int localExperts() {
        return local;
    }

    /**
     * Where the block of a local expert starts in this step.
     *
     * @param expert 0 to {@link #localExperts} - 1
     * @return the number of the row; with fixed blocks the same in every step, and known at once
     */
    public long firstRow(int expert) {
        return firstRow[expert];
    }

    /**
     * Tokens that came to a local expert in this step.
     *
     * @param expert 0 to {@link #localExperts} - 1
     * @return number of rows; with fixed blocks rows of zeros follow
     */
    public long rowCount(int expert) {
        return rowCount[expert];
    }

    /**
     * Rows of a fixed block, with which {@link #firstRow} never changes.
     *
     * @return ranks x capacity
     * @throws IllegalStateException if blocks are not fixed
     */
    public long blockRows() {
        if (!options.fixedBlocks()) {
            throw new IllegalStateException(
                    "blocks vary in size; set ExpertOptions.withFixedBlocks(true), or use rowCount");
        }
        return maxRows / local;
    }

    /**
     * The router, with this rank's assignments and losses.
     *
     * @return the router of the last step
     */
    public ExpertRouter router() {
        return router;
    }

    /**
     * How evenly the experts were used in the last step.
     *
     * @return numbers over all ranks, the same on each
     */
    public ExpertStatistics statistics() {
        return statistics;
    }

    // ---- checks

    private void check(Phase expected, Buffer buffer, String what) {
        checkOpen();
        if (phase != expected) {
            throw outOfOrder();
        }
        if (buffer.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    what
                            + " is on "
                            + buffer.device()
                            + ", but rows are sorted in host memory; copy it by Stream.copy");
        }
        long needed = (long) router.tokens() * options.features();
        if (buffer.dataType() != options.type() || buffer.count() < needed) {
            throw new IllegalArgumentException(
                    what
                            + " has "
                            + buffer.count()
                            + " elements of "
                            + buffer.dataType().label()
                            + ", expected "
                            + router.tokens()
                            + " tokens x "
                            + options.features()
                            + " features of "
                            + options.type().label());
        }
    }

    private IllegalStateException outOfOrder() {
        return new IllegalStateException(
                "this call is out of order: the next one of the step is "
                        + phase.next
                        + ", or route for a new step");
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the ExpertDispatch is closed");
        }
    }

    /** Frees the memory. No step may be under way on any rank. */
    @Override
    public void close() {
        if (!closed) {
            closed = true;
            Closing.all(owned);
        }
    }
}
