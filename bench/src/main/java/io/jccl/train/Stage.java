package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.parallel.PipelineStage;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part of the model with its parameters, for a number of micro-batches in flight.
 *
 * <p><b>Threads:</b> one at a time.
 */
final class Stage implements PipelineStage {
    private final Part part;
    private final ParameterStore store;
    private final @Nullable ParameterStore experts;

    /** Ranks that split the rows of the residual path; null if all ranks have all rows. */
    private final @Nullable Communicator tensor;

    private final Communicator expertRanks;
    private final Experts.@Nullable Room room;
    private final List<Experts> balanced = new ArrayList<>();
    private final Owned owned;
    private final Batches batches;
    private final boolean recompute;
    private final int microBatches;
    private final int slotCount;
    private final Stream stream;
    private final Workspace work;
    private final Block[] blocks;

    /** Inputs of the blocks, then the output of the last; one per slot. */
    private final Buffer[][] x;

    private final @Nullable Embedding embedding;

    // The head; it computes on all rows.
    private final Buffer rows;
    private final Buffer normed;
    private final Buffer normedGradient;

    /** This rank's rows of the two buffers above. */
    private final Buffer rowsShare;

    private final Buffer normedGradientShare;

    /** What the operations keep of the norm of all rows, and of this rank's rows. */
    private final Buffer ofNorm;

    private final Buffer ofNormShare;

    /** Rows of the operations' pitch. */
    private final Buffer logits;

    private final @Nullable Head head;
    private final int shareFrom;

    /**
     * The final norm and the product that computes the logits.
     *
     * @param normLayer layer of the norm
     * @param matrixLayer that of the matrix: the same, or the first if it is the token embedding
     * @param gradient what remains to be added to the gradient of the token embedding; null if the
     *     matrix is another
     */
    private record Head(
            RowNorm norm,
            int normLayer,
            Product product,
            int matrixLayer,
            @Nullable Runnable gradient) {}

    /**
     * Settings of a stage.
     *
     * @param sequences of a micro-batch
     * @param microBatches of a step
     * @param slots maximum number of micro-batches in flight
     * @param recompute whether only the blocks' inputs are kept
     * @param shared whether the residual path's rows are split over tensor ranks
     */
    record Options(int sequences, int microBatches, int slots, boolean recompute, boolean shared) {}

    Stage(
            Part part,
            ParameterStore store,
            @Nullable ParameterStore experts,
            Operations operations,
            Products products,
            Communicator tensor,
            Communicator expertRanks,
            Batches batches,
            Options options,
            Device device,
            Owned owned) {
        this.part = part;
        this.store = store;
        this.experts = experts;
        this.expertRanks = expertRanks;
        this.owned = owned;
        this.tensor = options.shared() ? tensor : null;
        this.batches = batches;
        this.recompute = options.recompute();
        this.microBatches = options.microBatches();
        this.slotCount = options.slots();
        this.stream = device.defaultStream();
        GptShape shape = part.shape();
        work =
                new Workspace(
                        shape,
                        options.sequences(),
                        part.tensorRanks(),
                        options.shared(),
                        operations,
                        device,
                        owned);
        shareFrom = options.shared() ? part.tensorRank() * work.shareRows : 0;
        room =
                experts == null
                        ? null
                        : new Experts.Room(
                                work, part, expertRanks, tensor, batches, slotCount, owned);
        long share = (long) work.shareRows * work.hidden;
        x = new Buffer[part.blocks() + 1][slotCount];
        for (Buffer[] slots : x) {
            for (int s = 0; s < slotCount; s++) {
                slots[s] = owned.floats(device, share);
            }
        }
        int heads = shape.heads() / part.tensorRanks();
        Workspace.Kept again = recompute ? new Workspace.Kept(work, heads, device, owned) : null;
        blocks = new Block[part.blocks()];
        for (int b = 0; b < blocks.length; b++) {
            Workspace.Kept[] kept = new Workspace.Kept[slotCount];
            for (int s = 0; s < slotCount; s++) {
                kept[s] = again == null ? new Workspace.Kept(work, heads, device, owned) : again;
            }
            blocks[b] = block(b, kept, products);
        }
        embedding = part.first() ? new Embedding(store, part, work, device, owned) : null;
        boolean last = part.last();
        long all = (long) work.rows * work.hidden;
        boolean gathers = options.shared() && (last || part.first());
        rows = owned.floats(device, gathers ? all : 0);
        normed = owned.floats(device, last ? all : 0);
        normedGradient = owned.floats(device, last ? all : 0);
        long from = (long) shareFrom * work.hidden;
        rowsShare = rows.slice(gathers ? from : 0, gathers ? share : 0);
        normedGradientShare = normedGradient.slice(last ? from : 0, last ? share : 0);
        int kept = last ? work.kept : 0;
        ofNorm = owned.floats(device, (long) work.rows * kept);
        ofNormShare = ofNorm.slice((long) shareFrom * kept, (long) work.shareRows * kept);
        logits =
                owned.floats(
                        device, last ? (long) work.rows * operations.pitch(shape.vocabulary()) : 0);
        head = last ? head(products) : null;
    }

    private Head head(Products products) {
        int layer = part.layers().size() - 1;
        RowNorm norm = norm(layer, "norm");
        if (part.shape().architecture().tied()) {
            Parameter table = store.get(part, 0, "token");
            Products.ByTable tied = products.byTable(table, normed, logits, logits, normedGradient);
            return new Head(norm, layer, tied.product(), 0, tied.gradient());
        }
        Product product =
                product(products, layer, "logits", normed, logits, logits, normedGradient);
        return new Head(norm, layer, product, layer, null);
    }

    private RowNorm norm(int layer, String name) {
        return new RowNorm(
                work,
                store.find(part, layer, name),
                store.find(part, layer, name + ".bias"),
                tensor);
    }

    private Block block(int block, Workspace.Kept[] kept, Products products) {
        int layer = part.layer(block);
        Product[] qkv = new Product[slotCount];
        Product[] out = new Product[slotCount];
        Product[] up = new Product[slotCount];
        Product[] down = new Product[slotCount];
        Buffer[] raised = new Buffer[slotCount];
        Buffer gradient = work.gradient;
        Buffer normed = work.normedGradient;
        for (int s = 0; s < slotCount; s++) {
            Workspace.Kept k = kept[s];
            qkv[s] = product(products, layer, "qkv", k.normed, k.qkv, work.qkvGradient, normed);
            Buffer attended = work.attendedGradient;
            out[s] = product(products, layer, "out", k.attended, work.branch, gradient, attended);
            raised[s] = k.raised;
            if (part.shape().dense()) {
                Buffer wide = work.raisedGradient;
                up[s] = product(products, layer, "w1", k.middleNormed, k.raised, wide, normed);
                wide = work.wideGradient;
                down[s] =
                        product(products, layer, "w2", work.activated, work.branch, gradient, wide);
            }
        }
        FeedForward inner = new Dense(work, up, down, raised);
        if (experts != null && room != null) {
            Buffer[] routed = new Buffer[slotCount];
            for (int s = 0; s < slotCount; s++) {
                routed[s] = kept[s].middleNormed;
            }
            Experts own =
                    new Experts(
                            expertRanks,
                            part,
                            block,
                            store,
                            experts,
                            products,
                            work,
                            room,
                            routed,
                            owned);
            balanced.add(own);
            if (part.shape().mixture().residual()) {
                inner =
                        new ResidualExpert(
                                work,
                                own,
                                inner,
                                routed,
                                store.get(part, layer, "coefficient"),
                                store.get(part, layer, "coefficient.bias"),
                                tensor,
                                expertRanks.device(),
                                owned);
            } else {
                inner = part.shape().dense() ? new SharedExpert(work, own, inner) : own;
            }
        }
        return new Block(
                work,
                x[block],
                x[block + 1],
                kept,
                norm(layer, "norm1"),
                norm(layer, "norm2"),
                qkv,
                out,
                inner);
    }

    /** A product with a weight, and its bias if it has one. */
    private Product product(
            Products products,
            int layer,
            String weight,
            Buffer from,
            Buffer to,
            Buffer toGradient,
            Buffer fromGradient) {
        return products.of(
                store.get(part, layer, weight),
                store.find(part, layer, weight + ".bias"),
                from,
                to,
                toGradient,
                fromGradient);
    }

    /** Elements sent between pipeline stages per micro-batch. */
    long activationCount() {
        return x[0][0].count();
    }

    @Override
    public void forward(
            int micro, @Nullable Buffer input, @Nullable Buffer output, Stream ignored) {
        int slot = micro % slotCount;
        if (room != null) {
            room.begin(slot, micro);
        }
        if (embedding != null) {
            store.load(0);
            embedding.forward(batches.inputs(micro), shareFrom, x[0][slot]);
            store.unload(0);
        } else if (input != null) {
            work.operations.convert(input, x[0][slot]);
        }
        for (int b = 0; b < blocks.length; b++) {
            load(b);
            blocks[b].forward(slot);
            unload(b);
        }
        if (output != null) {
            work.operations.convert(x[blocks.length][slot], output);
        }
    }

    /**
     * Computes the logits of a micro-batch, without a backward pass. The arguments are those of
     * {@link #forward}.
     */
    void logits(int micro, @Nullable Buffer input, @Nullable Buffer output) {
        forward(micro, input, output, stream);
        if (head != null) {
            store.load(head.normLayer);
            logits(micro % slotCount, head);
            store.unload(head.matrixLayer);
        }
    }

    /**
     * Adds the losses of the micro-batch whose logits were computed last; nothing without the head.
     */
    void addLoss(int micro) {
        if (head != null) {
            work.operations.crossEntropy(
                    logits, part.shape().vocabulary(), batches.targets(micro), 0);
        }
    }

    /**
     * The logits of a row of the last micro-batch, once the device has computed them.
     *
     * @param row less than sequences times characters of a sequence
     * @param to one for each character of the alphabet
     */
    void readLogits(int row, float[] to) {
        stream.synchronize();
        long pitch = logits.count() / work.rows;
        logits.slice(row * pitch, to.length).copyTo(to);
    }

    /** From the last block's output to the logits; from the norm's layer to the matrix's. */
    private Buffer logits(int slot, Head h) {
        Buffer all = gathered(x[blocks.length][slot]);
        h.norm.forward(all, normed, ofNorm);
        change(h.normLayer, h.matrixLayer);
        h.product.forward();
        return all;
    }

    /** Loads another layer instead of the one that is loaded. */
    private void change(int from, int to) {
        if (from != to) {
            store.unload(from);
            store.load(to);
        }
    }

    private void load(int block) {
        store.load(part.layer(block));
        if (experts != null) {
            experts.load(block);
        }
    }

    private void unload(int block) {
        if (experts != null) {
            experts.unload(block);
        }
        store.unload(part.layer(block));
    }

    @Override
    public void backward(
            int micro,
            @Nullable Buffer outputGradient,
            @Nullable Buffer inputGradient,
            Stream ignored) {
        boolean last = micro + 1 == microBatches;
        int slot = micro % slotCount;
        store.begin(last);
        if (experts != null) {
            experts.begin(last);
        }
        if (head != null) {
            loss(micro, slot, head);
        } else if (outputGradient != null) {
            work.operations.convert(outputGradient, work.gradient);
        }
        for (int b = blocks.length - 1; b >= 0; b--) {
            load(b);
            if (recompute) {
                blocks[b].recompute(slot);
            }
            store.open(part.layer(b));
            if (experts != null) {
                experts.open(b);
            }
            blocks[b].backward(slot);
            unload(b);
            if (experts != null) {
                experts.ready(b);
            }
            store.ready(part.layer(b));
        }
        if (embedding != null) {
            store.open(0);
            if (head != null && head.gradient != null) {
                head.gradient.run();
            }
            embedding.backward(batches.inputs(micro), gathered(work.gradient));
            store.ready(0);
        } else if (inputGradient != null) {
            work.operations.convert(work.gradient, inputGradient);
        }
        store.end();
        if (experts != null) {
            experts.end();
        }
    }

    /** All tensor ranks compute the whole loss, so that each has the gradient of its rows. */
    private void loss(int micro, int slot, Head h) {
        store.load(h.normLayer);
        store.open(h.normLayer);
        Buffer all = logits(slot, h);
        work.operations.crossEntropy(
                logits,
                part.shape().vocabulary(),
                batches.targets(micro),
                (float) (store.lossFactor() / work.rows));
        h.product.backward();
        change(h.matrixLayer, h.normLayer);
        work.operations.zero(work.gradient);
        h.norm.backward(
                tensor == null ? all : rowsShare, ofNormShare, normedGradientShare, work.gradient);
        store.unload(h.normLayer);
        store.ready(h.normLayer);
    }

    /** All rows of a tensor that is split by rows. */
    private Buffer gathered(Buffer share) {
        if (tensor == null) {
            return share;
        }
        tensor.allGather(share, rows, stream);
        return rows;
    }

    /** The experts of each block; empty if there are none. */
    List<Experts> experts() {
        return balanced;
    }

    /** The sum of the losses of all rows since the last call; 0 on ranks without the head. */
    double takeLoss() {
        return work.operations.takeLoss();
    }
}
