package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.internal.SplitMix;
import io.jccl.parallel.ExpertDispatch;
import io.jccl.parallel.ExpertOptions;
import io.jccl.parallel.ExpertRouter;
import io.jccl.parallel.ExpertStatistics;
import io.jccl.parallel.RouterNoise;
import io.jccl.parallel.RouterOptions;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.train.GptShape.Weight;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A block's experts: each token is sent to the experts that its router chooses, on any rank.
 *
 * <p>Tensor parallelism splits an expert's two matrices like those of a dense block; the router is
 * replicated. All ranks of a tensor group route the same tokens in the same way, each to experts of
 * its own expert group. The outputs of their experts are partial sums, and so are the gradients of
 * the tokens and of the router's weights, since everything that follows is linear in them: reducing
 * rows of tokens after they have returned sends less data than reducing rows of experts.
 */
final class Experts implements FeedForward {
    /** Weight of the load-balancing loss (arXiv 2101.03961, section 2.2). */
    private static final double BALANCE = 0.01;

    private final Slot[] slots;
    private final Workspace work;

    /** Memory of the experts of one rank, shared by all blocks. */
    static final class Room {
        final Buffer squared;
        final Buffer gradient;
        final Buffer logitsGradient;
        final RouterOptions router;

        /** Whether experts are sampled in training. */
        final boolean samples;

        /** Maximum number of rows that the experts of a rank receive. */
        final long rows;

        final Communicator tensor;
        final Stream stream;
        private final Batches batches;

        /** Place of the first token of the micro-batch in each slot. */
        private final long[] places;

        /** Whether tensor ranks share the rows of the residual path; experts take all of them. */
        final boolean shared;

        /** All rows of the tokens, of the gradient of the output, and of the sum over experts. */
        final Buffer tokens;

        final Buffer outputGradient;
        final Buffer sums;

        /** All rows of the gradient of the tokens through the router. */
        final Buffer routed;

        /** This rank's rows of {@link #routed}. */
        final Buffer routedShare;

        /** The router's inputs if noise changes them; else empty. */
        final Buffer noisy;

        /** Places of tokens for dropout in experts; else empty. */
        final Buffer placeRows;

        Room(
                Workspace work,
                Part part,
                Communicator experts,
                Communicator tensor,
                Batches batches,
                int slots,
                Owned owned) {
            GptShape shape = part.shape();
            this.batches = batches;
            places = new long[slots];
            Device device = experts.device();
            int rows = work.rows;
            this.tensor = tensor;
            stream = device.defaultStream();
            shared = work.shareRows < rows;
            long all = shared ? (long) rows * work.hidden : 0;
            tokens = owned.floats(device, all);
            outputGradient = owned.floats(device, all);
            sums = shared ? owned.floats(device, all) : work.branch;
            routed = shared ? owned.floats(device, all) : work.normedGradient;
            long share = (long) work.shareRows * work.hidden;
            routedShare = routed.slice(shared ? tensor.rank() * share : 0, share);
            router = options(shape, rows, 0);
            MixtureSettings m = shape.mixture();
            samples = m.sample();
            boolean changes = m.jitter() > 0 || m.routerDropout() > 0;
            noisy = owned.floats(device, changes ? (long) rows * work.hidden : 0);
            placeRows = owned.floats(device, m.expertDropout() > 0 ? 2L * rows : 0);
            long from = (long) part.experts() * router.capacity(rows);
            this.rows = experts.size() * (fixed() ? from : Math.min(from, router.maxAssignments()));
            long wide = this.rows * GptShape.WIDTH * work.attended;
            squared = owned.floats(device, wide);
            gradient = owned.floats(device, wide);
            logitsGradient = owned.floats(device, (long) rows * shape.experts());
        }

        /** Whether an expert's rows are at the same place in every step. */
        final boolean fixed() {
            return router.overflow() != Overflow.NONE && !router.adaptive();
        }

        private static RouterOptions options(GptShape shape, int rows, long seed) {
            return shape.routing().options(shape, rows, seed);
        }

        /** Begins the forward pass of a micro-batch in a slot. */
        void begin(int slot, int micro) {
            places[slot] = batches.place(micro);
        }

        /** The place of a slot's first token among all tokens. */
        long place(int slot) {
            return places[slot];
        }

        /** Whether there is noise. */
        boolean training() {
            return batches.training();
        }
    }

    /** Memory kept for one micro-batch. */
    private static final class Slot {
        final ExpertDispatch dispatch;
        final Buffer tokens;
        final Buffer logits;
        final Buffer raised;
        final NoisyRouter router;
        final @Nullable ExpertDropout dropout;

        /** Of the experts that have rows. */
        final List<Product> up = new ArrayList<>();

        final List<Product> down = new ArrayList<>();

        Slot(
                ExpertDispatch dispatch,
                Buffer tokens,
                Buffer logits,
                Buffer raised,
                NoisyRouter router,
                @Nullable ExpertDropout dropout) {
            this.dispatch = dispatch;
            this.tokens = tokens;
            this.logits = logits;
            this.raised = raised;
            this.router = router;
            this.dropout = dropout;
        }
    }

    private final Room room;
    private final Products products;
    private final int block;

    /** Of the experts of this rank, and their weights. */
    private final ParameterStore store;

    /** Of the router. */
    private final ParameterStore router;

    private final List<Weight> weights;

    /**
     * Creates a block's experts.
     *
     * @param comm ranks that the experts are distributed over
     * @param part this rank's part of the model
     * @param block index of the block in it
     * @param store of the router
     * @param experts of the experts
     * @param products creates products
     * @param work shared memory
     * @param room shared memory of the experts
     * @param tokens the normalized rows, one buffer per slot; slots with the same buffer share all
     *     memory
     * @param owned owner of the memory
     */
    Experts(
            Communicator comm,
            Part part,
            int block,
            ParameterStore store,
            ParameterStore experts,
            Products products,
            Workspace work,
            Room room,
            Buffer[] tokens,
            Owned owned) {
        this.work = work;
        this.room = room;
        this.products = products;
        this.block = block;
        this.store = experts;
        this.router = store;
        this.weights = part.expertLayers().get(block).weights();
        int layer = part.layer(block);
        Device device = comm.device();
        int count = part.shape().experts();
        MixtureSettings m = part.shape().mixture();
        long seed =
                SplitMix.mix(room.batches.seed() + SplitMix.GAMMA * (part.firstBlock() + block));
        RouterNoise noise = new RouterNoise(seed, m.jitter(), m.routerDropout(), m.noise());
        ExpertOptions options =
                ExpertOptions.of(Room.options(part.shape(), work.rows, seed), work.hidden)
                        .withFixedBlocks(room.fixed());
        slots = new Slot[tokens.length];
        for (int s = 0; s < slots.length; s++) {
            if (s > 0 && tokens[s] == tokens[0]) {
                slots[s] = slots[0];
                continue;
            }
            ExpertDispatch dispatch = owned.add(ExpertDispatch.create(comm, options));
            Buffer logits = owned.floats(device, (long) work.rows * count);
            Buffer raised = owned.floats(device, room.squared.count());
            Buffer inputs = room.shared ? room.tokens : tokens[s];
            Product product =
                    products.exact()
                            .of(
                                    store.get(part, layer, "router"),
                                    null,
                                    noise.scales() ? room.noisy : inputs,
                                    logits,
                                    room.logitsGradient,
                                    room.routed);
            NoisyRouter router =
                    new NoisyRouter(work.operations, room, noise, product, logits, count);
            double rate = m.expertDropout();
            Buffer places = room.placeRows;
            ExpertDropout dropout =
                    rate > 0
                            ? new ExpertDropout(
                                    work.operations,
                                    comm,
                                    options,
                                    places,
                                    rate,
                                    seed,
                                    part,
                                    GptShape.WIDTH * work.attended,
                                    owned)
                            : null;
            slots[s] = new Slot(dispatch, tokens[s], logits, raised, router, dropout);
            if (room.fixed()) {
                for (int e = 0; e < part.experts(); e++) {
                    add(slots[s], e, dispatch.blockRows());
                }
            }
        }
    }

    private Parameter parameter(int weight) {
        return new Parameter(
                weights.get(weight), store.weight(block, weight), store.gradient(block, weight));
    }

    /** Adds the products of an expert's rows. */
    private void add(Slot s, int expert, long rows) {
        ExpertDispatch dispatch = s.dispatch;
        long at = dispatch.firstRow(expert);
        int wide = GptShape.WIDTH * work.attended;
        Buffer squared = rows(room.squared, at, rows, wide);
        Buffer gradient = rows(room.gradient, at, rows, wide);
        s.up.add(
                products.local(
                        parameter(2 * expert),
                        rows(dispatch.inputs(), at, rows, work.hidden),
                        rows(s.raised, at, rows, wide),
                        gradient,
                        rows(dispatch.inputGradients(), at, rows, work.hidden),
                        rows));
        s.down.add(
                products.local(
                        parameter(2 * expert + 1),
                        squared,
                        rows(dispatch.outputs(), at, rows, work.hidden),
                        rows(dispatch.outputGradients(), at, rows, work.hidden),
                        gradient,
                        rows));
        if (s.dropout != null) {
            s.dropout.add(expert, at, rows, squared, gradient);
        }
    }

    /** Creates the products of the received rows, if their number varies. */
    private void fit(Slot s) {
        if (room.fixed()) {
            return;
        }
        s.up.clear();
        s.down.clear();
        if (s.dropout != null) {
            s.dropout.clear();
        }
        for (int e = 0; e < s.dispatch.localExperts(); e++) {
            if (s.dispatch.rowCount(e) > 0) {
                add(s, e, s.dispatch.rowCount(e));
            }
        }
    }

    private static Buffer rows(Buffer of, long from, long count, int width) {
        return of.slice(from * width, count * width);
    }

    @Override
    public void forward(int slot) {
        Slot s = slots[slot];
        Buffer tokens = all(s.tokens, room.tokens);
        s.router.forward(tokens, slot);
        if (room.training() || !room.samples) {
            s.dispatch.route(s.logits, work.rows, room.place(slot));
        } else {
            // Without a place nothing is sampled.
            s.dispatch.route(s.logits, work.rows);
        }
        if (s.dropout != null && room.training()) {
            s.dropout.route(s.logits, work.rows, room.place(slot));
        }
        s.dispatch.dispatch(tokens);
        fit(s);
        for (int i = 0; i < s.up.size(); i++) {
            s.up.get(i).forward();
        }
        activate(s);
        for (int i = 0; i < s.down.size(); i++) {
            s.down.get(i).forward();
        }
        s.dispatch.combine(room.sums);
        addUp();
    }

    /** The inputs of the experts' second matrices. */
    private void activate(Slot s) {
        work.operations.reluSquared(s.raised, room.squared);
        drop(s, false);
    }

    private void drop(Slot s, boolean gradients) {
        if (s.dropout != null && room.training()) {
            s.dropout.drop(gradients);
        }
    }

    /** All rows of a tensor that may be split by rows. */
    private Buffer all(Buffer share, Buffer to) {
        if (!room.shared) {
            return share;
        }
        room.tensor.allGather(share, to, room.stream);
        return to;
    }

    /** Reduces the tensor ranks' parts; this rank keeps its rows of the sum. */
    private void addUp() {
        if (room.shared) {
            room.tensor.reduceScatter(room.sums, work.branch, ReduceOp.SUM, room.stream);
        } else if (room.tensor.size() > 1) {
            room.tensor.allReduce(work.branch, ReduceOp.SUM, room.stream);
        }
    }

    /** Recomputes everything: the gradients of the weights need the experts' outputs. */
    @Override
    public void recompute(int slot) {
        forward(slot);
    }

    @Override
    public void backward(int slot) {
        Slot s = slots[slot];
        s.dispatch.combineBackward(all(work.gradient, room.outputGradient));
        activate(s);
        for (int i = 0; i < s.down.size(); i++) {
            s.down.get(i).backward();
        }
        drop(s, true);
        work.operations.reluSquaredBackward(s.raised, room.gradient);
        for (int i = 0; i < s.up.size(); i++) {
            s.up.get(i).backward();
        }
        s.dispatch.dispatchBackward(room.sums);
        addUp();
        // Each tensor rank contributes a part; the factor has the loss scale.
        double balance = BALANCE * router.lossFactor() / room.tensor.size();
        s.dispatch.routeBackward(room.logitsGradient, balance, 0);
        if (room.tensor.size() > 1) {
            room.tensor.allReduce(room.logitsGradient, ReduceOp.SUM, room.stream);
        }
        s.router.backward(all(s.tokens, room.tokens), slot);
        work.operations.add(room.routedShare, work.branch, work.normedGradient);
    }

    /** The router of the first slot, as its last micro-batch left it. */
    ExpertRouter router() {
        return slots[0].dispatch.router();
    }

    /** The weighted load-balancing loss of the first slot's last micro-batch. */
    double balanceLoss() {
        return BALANCE * router().balanceLoss();
    }

    /** Load statistics of the last micro-batch of the first slot. */
    ExpertStatistics statistics() {
        return slots[0].dispatch.statistics();
    }
}
