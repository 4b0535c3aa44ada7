package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.internal.Closing;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Expert parallelism: the experts of a layer are distributed over ranks, and every token is sent to
 * the ranks of its experts and back (Lepikhin et al., "GShard", <a
 * href="https://arxiv.org/abs/2006.16668">arXiv 2006.16668</a>, section 3.1). With E experts on n
 * ranks, rank r holds experts {@code r E/n} to {@code (r + 1) E/n - 1}.
 *
 * <table>
 * <caption>A step. All ranks make the same calls in this order; those of the
 * backward pass may be omitted</caption>
 * <tr><th>call</th><th>communication</th><th>effect</th></tr>
 * <tr><td>{@link #route}</td><td>allGather of token counts</td><td>{@link ExpertRouter};
 * {@link #statistics}</td></tr>
 * <tr><td>{@link #dispatch}</td><td>allToAllv</td><td>tokens to {@link #inputs},
 * one block per local expert</td></tr>
 * <tr><td>the caller's experts</td><td></td><td>{@link #inputs} to {@link #outputs}</td></tr>
 * <tr><td>{@link #combine}</td><td>allToAllv</td><td>the weighted sum of a
 * token's outputs; 0 if the token was dropped, so that only the residual connection remains</td></tr>
 * <tr><td>{@link #combineBackward}</td><td>allToAllv</td><td>{@link #outputGradients},
 * and the gradients of the weights for the router</td></tr>
 * <tr><td>the caller's experts</td><td></td><td>{@link #outputGradients} to {@link
 * #inputGradients}</td></tr>
 * <tr><td>{@link #dispatchBackward}</td><td>allToAllv</td><td>the gradients of the tokens</td></tr>
 * <tr><td>{@link #routeBackward}</td><td></td><td>the gradients of the logits</td></tr>
 * </table>
 *
 * <p>A token's gradient is the sum of a contribution through the experts and one through the
 * logits; the caller computes the latter from the gradient of the logits. Sums are in the order of
 * the experts, so results do not depend on the number of ranks.
 *
 * <p><b>With tensor parallelism</b> each rank of a tensor group creates a dispatch with the ranks
 * that hold the same part of the other experts, and routes the same tokens by the same logits. The
 * results of {@link #combine}, {@link #dispatchBackward} and {@link #routeBackward} are then
 * partial sums over the tensor group, since they are linear in the experts' outputs; divide the
 * factors of the losses passed to {@code routeBackward} by the group's size. Reducing rows of
 * tokens sends less data than reducing rows of experts.
 *
 * <p>Memory is allocated once. Buffers are those of the communicator's device.
 *
 * <p><b>On the host</b> steps allocate nothing. Calls are synchronous: results are complete on
 * return, and arguments must be complete before the call, so synchronize other streams first.
 *
 * <p><b>On a GPU</b> rows are moved and summed by kernels and NCCL, and everything is enqueued on
 * the device's default stream, where arguments are read and results appear. The router runs on the
 * host, on a pinned copy of the logits: {@link #route} waits for the stream twice, {@link
 * #routeBackward} once, the other calls do not. Steps create some small objects on the Java heap,
 * none on the device. Synchronize the stream before {@link #close}.
 *
 * {@snippet class="snippets.Parallel" region="experts"}
 *
 * <p><b>Threads:</b> the thread of the communicator.
 */
public final class ExpertDispatch implements AutoCloseable {
    /** The phases of a step. */
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
    private final int local;
    private final ExpertRouter router;
    private final ExpertStatistics statistics;
    private final DispatchPlan plan;
    private final TokenMover mover;
    private final long maxRows;
    private final List<AutoCloseable> owned = new ArrayList<>();

    private Phase phase = Phase.NOTHING;
    private boolean closed;

    private ExpertDispatch(Communicator comm, ExpertOptions options) {
        this.comm = comm;
        this.options = options;
        RouterOptions r = options.router();
        int ranks = comm.size();
        local = r.experts() / ranks;
        router = ExpertRouter.create(r);
        statistics = new ExpertStatistics(r);
        long worst =
                options.fixedBlocks()
                        ? Math.multiplyExact((long) local * ranks, r.capacity(r.maxTokens()))
                        : Math.multiplyExact(ranks, r.maxRowsTo(local));
        maxRows = options.maxRows() == 0 ? worst : Math.min(worst, options.maxRows());
        try {
            mover = TokenMover.of(comm, options, router, maxRows, owned);
            long fixed = options.fixedBlocks() ? blockRows() : 0;
            plan = new DispatchPlan(ranks, r.experts(), fixed, mover.counts());
        } catch (RuntimeException | Error e) {
            Closing.all(owned);
            throw e;
        }
    }

    /**
     * Allocates the memory of one layer, or of several layers whose steps do not overlap. All ranks
     * call it.
     *
     * @param comm the ranks that share the experts
     * @param options settings, the same on all ranks
     * @return the object, which the caller closes before the communicator
     * @throws IllegalArgumentException if the number of experts is not a multiple of the number of
     *     ranks; on GPUs also if a rank may receive more rows than int32 can number
     * @throws io.jccl.CollectiveMismatchException if the ranks pass different options
     */
    public static ExpertDispatch create(Communicator comm, ExpertOptions options) {
        Objects.requireNonNull(options, "options");
        ConsistencyCheck.check(comm, "the options of ExpertDispatch", List.of(options.toString()));
        int experts = options.router().experts();
        if (experts % comm.size() != 0) {
            throw new IllegalArgumentException(
                    ("%s experts do not spread evenly over %s ranks, expected a multiple; use a Mesh"
                                    + " whose expert axis divides them")
                            .formatted(experts, comm.size()));
        }
        return new ExpertDispatch(comm, options);
    }

    // ---- forward pass

    /**
     * Routes this rank's tokens and exchanges the counts with the other ranks.
     *
     * @param logits tokens x experts of float32, row-major
     * @param tokens number of tokens of this rank in this step, 0 to {@link
     *     RouterOptions#maxTokens}; may differ between ranks
     * @throws IllegalArgumentException if the buffer is too small or of another type; on all ranks,
     *     if a logit of any rank is invalid
     * @throws IllegalStateException on all ranks, if one of them would receive more tokens than
     *     {@link ExpertOptions#maxRows}; another step may follow
     */
    public void route(Buffer logits, int tokens) {
        routeAt(logits, tokens, ExpertRouter.NO_PLACE);
    }

    /**
     * Like {@link #route(Buffer, int)}, for tokens whose places are known: see {@link
     * ExpertRouter#route(Buffer, int, long)}.
     *
     * @param logits as above
     * @param tokens as above
     * @param place of this rank's first token among all, 0 or more
     */
    public void route(Buffer logits, int tokens, long place) {
        routeAt(logits, tokens, RouterNoise.checkedPlace(place));
    }

    private void routeAt(Buffer logits, int tokens, long place) {
        checkOpen();
        phase = Phase.NOTHING;
        checkDevice(logits, "the logits");
        int bad = router.tryRoute(mover.readable(logits, tokens), tokens, place);
        plan.tell(comm.rank(), router, bad);
        mover.gatherCounts();
        plan.checkLogits(router);
        statistics.fill(plan);
        if (!options.fixedBlocks()) {
            plan.checkRows(statistics, maxRows);
        }
        plan.layOut();
        mover.layOut(plan);
        phase = Phase.ROUTED;
    }

    /**
     * Sends tokens to {@link #inputs} of the ranks that hold their experts.
     *
     * @param tokens the routed tokens x features, row-major; not changed
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #route} has not been called
     */
    public void dispatch(Buffer tokens) {
        check(Phase.ROUTED, tokens, "the tokens");
        mover.dispatch(tokens);
        phase = Phase.DISPATCHED;
    }

    /**
     * Returns the experts' {@link #outputs} to the tokens' ranks and sums them with the weights.
     * For the backward pass the outputs must not be changed before {@link #combineBackward}.
     *
     * @param result the routed tokens x features, overwritten; may be the buffer that was
     *     dispatched
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #dispatch} has not been called
     */
    public void combine(Buffer result) {
        check(Phase.DISPATCHED, result, "the result");
        mover.combine(result);
        phase = Phase.COMBINED;
    }

    // ---- backward pass

    /**
     * Sends the gradient of {@link #combine}'s result to the experts, and passes the gradients of
     * the weights to the router.
     *
     * @param resultGradient shape of the result; not changed
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #combine} has not been called, or there is no
     *     backward pass
     */
    public void combineBackward(Buffer resultGradient) {
        gradients(mover.outputGradients);
        check(Phase.COMBINED, resultGradient, "the result's gradient");
        mover.combineBackward(resultGradient);
        phase = Phase.OUTPUTS_BACK;
    }

    /**
     * Returns the experts' {@link #inputGradients} to the tokens' ranks and sums them.
     *
     * @param tokensGradient shape of the tokens, overwritten
     * @throws IllegalArgumentException if the buffer does not fit
     * @throws IllegalStateException if {@link #combineBackward} has not been called
     */
    public void dispatchBackward(Buffer tokensGradient) {
        gradients(mover.inputGradients);
        check(Phase.OUTPUTS_BACK, tokensGradient, "the tokens' gradient");
        mover.dispatchBackward(tokensGradient);
        phase = Phase.INPUTS_BACK;
    }

    /**
     * Computes the gradient of the logits; see {@link ExpertRouter#backward}. Involves no other
     * rank.
     *
     * @param logitsGradient shape of the logits, overwritten
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
        checkDevice(logitsGradient, "the gradients of the logits");
        mover.routeBackward(logitsGradient, balance, z);
    }

    // ---- the experts' buffers

    /**
     * The tokens received by this rank's experts, one per row; see {@link #firstRow} and {@link
     * #rowCount}. Rows of an expert are ordered by source rank, then by the router's slot there.
     *
     * @return {@link #maxRows} x features; valid until the next {@link #dispatch}
     */
    public Buffer inputs() {
        return mover.inputs;
    }

    /**
     * Destination of the experts' results, with the layout of {@link #inputs}.
     *
     * @return {@link #maxRows} x features
     */
    public Buffer outputs() {
        return mover.outputs;
    }

    /**
     * The gradients of {@link #outputs}.
     *
     * @return {@link #maxRows} x features; valid until the next {@link #combineBackward}
     * @throws IllegalStateException if this was created without a backward pass
     */
    public Buffer outputGradients() {
        return gradients(mover.outputGradients);
    }

    /**
     * Destination of the gradients of {@link #inputs}.
     *
     * @return {@link #maxRows} x features
     * @throws IllegalStateException if this was created without a backward pass
     */
    public Buffer inputGradients() {
        return gradients(mover.inputGradients);
    }

    private static Buffer gradients(@Nullable Buffer buffer) {
        if (buffer != null) {
            return buffer;
        }
        throw new IllegalStateException(
                "this ExpertDispatch was made without a backward pass; set"
                        + " ExpertOptions.withBackward(true)");
    }

    /**
     * Rows of {@link #inputs} and the other three buffers.
     *
     * @return as set by the options, or the worst case
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
     * The first row of a local expert's block in this step.
     *
     * @param expert 0 to {@link #localExperts} - 1
     * @return index of the row; with fixed blocks the same in every step and available before the
     *     first
     */
    public long firstRow(int expert) {
        return plan.first(global(expert));
    }

    /**
     * Tokens received by a local expert in this step.
     *
     * @param expert 0 to {@link #localExperts} - 1
     * @return number of rows; with fixed blocks they are followed by rows of zeros
     */
    public long rowCount(int expert) {
        return plan.rows(global(expert));
    }

    private int global(int expert) {
        return comm.rank() * local + Objects.checkIndex(expert, local);
    }

    /**
     * Rows of each block if blocks are fixed.
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
     * Load statistics of the experts in the last step.
     *
     * @return statistics over all ranks, the same on each
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
        checkDevice(buffer, what);
        long needed = (long) router.tokens() * options.features();
        if (buffer.dataType() != options.type() || buffer.count() < needed) {
            throw new IllegalArgumentException(
                    "%s has %s elements of %s, expected %s tokens x %s features of %s"
                            .formatted(
                                    what,
                                    buffer.count(),
                                    buffer.dataType().label(),
                                    router.tokens(),
                                    options.features(),
                                    options.type().label()));
        }
    }

    private void checkDevice(Buffer buffer, String what) {
        Device expected = comm.device();
        Device device = buffer.device();
        if (device.kind() != expected.kind() || device.index() != expected.index()) {
            throw new IllegalArgumentException(
                    ("%s is on %s, expected memory of %s, where the rank computes; copy it by"
                                    + " Stream.copy")
                            .formatted(what, device, expected));
        }
    }

    private IllegalStateException outOfOrder() {
        return new IllegalStateException(
                "this call is out of order: the next one of the step is "
                        + phase.next
                        + (phase == Phase.NOTHING ? "" : ", or route for a new step"));
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the ExpertDispatch is closed");
        }
    }

    /** Frees the memory. No step may be in progress on any rank. */
    @Override
    public void close() {
        if (!closed) {
            closed = true;
            Closing.all(owned);
        }
    }
}
