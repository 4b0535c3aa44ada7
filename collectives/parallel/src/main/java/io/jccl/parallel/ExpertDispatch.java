package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.engine.EngineCommunicator;
import io.jccl.internal.Closing;
import java.lang.foreign.MemorySegment;
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
 * <p><b>Experts that are split</b> by tensor parallelism: each rank of a tensor group makes a
 * dispatch with the ranks that hold the same part of other experts, and routes the same tokens by
 * the same logits. What {@link #combine}, {@link #dispatchBackward} and {@link #routeBackward} give
 * are then parts of sums over the tensor group, since all of it is linear in what experts give; the
 * weights of the losses in {@code routeBackward} are divided by the group's size. Adding up rows of
 * tokens sends less than adding up rows of experts.
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

    private final Communicator comm;
    private final ExpertOptions options;
    private final Stream stream;
    private final int local;
    private final ExpertRouter router;
    private final ExpertStatistics statistics;
    private final DispatchPlan plan;
    private final TokenExchange exchange;
    private final TokenRows rows;

    private final Buffer counts;

    /** This rank's part, made once: the in-place overload would make it for every other layer. */
    private final Buffer ownCounts;

    private final long maxRows;

    private final Buffer inputs;
    private final Buffer outputs;
    private final @Nullable Buffer outputGradients;
    private final @Nullable Buffer inputGradients;
    private final List<Buffer> owned = new ArrayList<>();

    private Phase phase = Phase.NOTHING;
    private boolean closed;

    private ExpertDispatch(Communicator comm, ExpertOptions options) {
        this.comm = comm;
        this.options = options;
        RouterOptions r = options.router();
        stream = comm.device().defaultStream();
        int ranks = comm.size();
        local = r.experts() / ranks;
        router = ExpertRouter.create(r);
        statistics = new ExpertStatistics(r);
        long worst =
                options.fixedBlocks()
                        ? Math.multiplyExact((long) local * ranks, r.capacity(r.maxTokens()))
                        : Math.multiplyExact(ranks, r.maxRowsTo(local));
        maxRows = options.maxRows() == 0 ? worst : Math.min(worst, options.maxRows());
        int record = DispatchPlan.record(r.experts());
        try {
            counts = own(comm.device().allocate(DataType.INT32, (long) ranks * record));
            ownCounts = counts.slice((long) comm.rank() * record, record);
            plan =
                    new DispatchPlan(
                            ranks, r.experts(), options.fixedBlocks() ? blockRows() : 0, counts);
            inputs = ownRows(maxRows);
            outputs = ownRows(maxRows);
            outputGradients = options.backward() ? ownRows(maxRows) : null;
            inputGradients = options.backward() ? ownRows(maxRows) : null;
            rows = new TokenRows(options.features(), options.type(), ownRows(1).asSegment());
            exchange = exchange();
        } catch (RuntimeException | Error e) {
            Closing.all(owned);
            throw e;
        }
    }

    private TokenExchange exchange() {
        List<Buffer> blocks = new ArrayList<>(List.of(inputs, outputs));
        if (outputGradients != null && inputGradients != null) {
            blocks.add(outputGradients);
            blocks.add(inputGradients);
        }
        MemorySegment[][] seen = new MemorySegment[blocks.size()][];
        boolean all = true;
        for (int b = 0; b < seen.length; b++) {
            MemorySegment[] one = EngineCommunicator.of(comm).peerMemory(blocks.get(b));
            all &= one != null;
            seen[b] = one == null ? new MemorySegment[0] : one;
        }
        if (all) {
            return new SharedMemoryExchange(comm, options, blocks, seen);
        }
        Buffer staged = ownRows(options.router().maxAssignments());
        Buffer returned = options.backward() ? ownRows(options.router().maxAssignments()) : staged;
        return new AllToAllExchange(comm, options, blocks, staged, returned);
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
                            + ", but tokens are routed and sorted in host memory; use a"
                            + " communicator of the host or MPI engine, and copy tokens and results"
                            + " by Stream.copy");
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
        ConsistencyCheck.check(comm, "the options of ExpertDispatch", List.of(options.toString()));
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
        plan.tell(comm.rank(), router, bad);
        comm.allGather(ownCounts, counts, stream);
        stream.synchronize();
        statistics.begin();
        for (int r = 0; r < comm.size(); r++) {
            for (int e = 0; e < plan.experts; e++) {
                statistics.addExpert(e, plan.count(r, e), plan.firstChoices(r, e));
            }
            if (plan.bad(r) >= 0) {
                throw new IllegalArgumentException(
                        "on rank " + r + " " + router.badLogit(plan.bad(r)));
            }
            statistics.addRank(plan.tokens(r), plan.untaken(r), plan.skipped(r));
        }
        checkRows();
        plan.layOut();
        exchange.layOut(router, plan);
        phase = Phase.ROUTED;
    }

    /** All ranks know all numbers, so that all of them notice. */
    private void checkRows() {
        if (options.fixedBlocks()) {
            return;
        }
        for (int to = 0; to < comm.size(); to++) {
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
        MemorySegment[] to = exchange.outgoing(TokenExchange.INPUTS);
        int[] assignments = router.assignmentsByToken();
        int n = router.tokens();
        long[] place = exchange.place;
        int[] memory = exchange.memory;
        // By token, so that rows are read one after the other, and written to as many places in
        // turn as there are experts: about what the memory can follow.
        for (int t = 0; t < n; t++) {
            int end = router.startOfToken(t + 1);
            for (int k = router.startOfToken(t); k < end; k++) {
                int i = assignments[k];
                rows.copy(from, t, to[memory[i]], place[i]);
            }
        }
        exchange.send(TokenExchange.INPUTS);
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
        sum(TokenExchange.OUTPUTS, router.weightArray(), result.asSegment());
        phase = Phase.COMBINED;
    }

    /** Each token's sum over its assignments, weighted or not. */
    private void sum(int block, float @Nullable [] weights, MemorySegment to) {
        MemorySegment[] from = exchange.incoming(block);
        long[] place = exchange.place;
        int[] memory = exchange.memory;
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
            rows.begin(from[memory[i]], place[i], weight(weights, i), to, t);
            for (int k = first + 1; k < end; k++) {
                i = assignments[k];
                rows.add(from[memory[i]], place[i], weight(weights, i), to, t);
            }
            rows.end(to, t);
        }
        exchange.release();
    }

    private static float weight(float @Nullable [] weights, int i) {
        return weights == null ? 1 : weights[i];
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
        MemorySegment[] results = exchange.results();
        MemorySegment[] to = exchange.outgoing(TokenExchange.OUTPUT_GRADIENTS);
        long[] place = exchange.place;
        int[] memory = exchange.memory;
        int[] assignments = router.assignmentsByToken();
        float[] weights = router.weightArray();
        int tokens = router.tokens();
        for (int t = 0; t < tokens; t++) {
            int first = router.startOfToken(t);
            int end = router.startOfToken(t + 1);
            if (first < end) {
                rows.keep(from, t);
            }
            for (int k = first; k < end; k++) {
                int i = assignments[k];
                router.setWeightGradient(i, rows.dot(results[memory[i]], place[i]));
                rows.scale(from, t, weights[i], to[memory[i]], place[i]);
            }
        }
        exchange.send(TokenExchange.OUTPUT_GRADIENTS);
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
        gradients(inputGradients);
        check(Phase.OUTPUTS_BACK, tokensGradient, "the tokens' gradient");
        sum(TokenExchange.INPUT_GRADIENTS, null, tokensGradient.asSegment());
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

    private void zeroRest(Buffer blocks) {
        if (options.fixedBlocks()) {
            MemorySegment s = blocks.asSegment();
            for (int l = 0; l < local; l++) {
                rows.zero(s, firstRow(l) + rowCount(l), blockRows() - rowCount(l));
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
        return plan.first(global(expert));
    }

    /**
     * Tokens that came to a local expert in this step.
     *
     * @param expert 0 to {@link #localExperts} - 1
     * @return number of rows; with fixed blocks rows of zeros follow
     */
    public long rowCount(int expert) {
        return plan.rows(global(expert));
    }

    private int global(int expert) {
        return comm.rank() * local + Objects.checkIndex(expert, local);
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
                    "blocks vary in size; set ExpertOptions.withFixedBlocks(true), or use"
                            + " rowCount");
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
