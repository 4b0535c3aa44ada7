package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.internal.SplitMix;
import io.jccl.offload.optim.TensorShape;
import io.jccl.train.GptShape.Weight;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * The part of a model that one rank computes: some blocks, some columns or rows of their matrices,
 * some of their experts.
 *
 * @param shape the whole model
 * @param tensorRank this rank's share of the split matrices
 * @param tensorRanks number of shares
 * @param firstBlock first block of this pipeline stage
 * @param blocks number of blocks
 * @param firstExpert first of this rank's experts
 * @param experts number of experts
 */
record Part(
        GptShape shape,
        int tensorRank,
        int tensorRanks,
        int firstBlock,
        int blocks,
        int firstExpert,
        int experts) {
    private static final String EMBEDDING = "embedding";

    /**
     * Weights that are used together.
     *
     * @param name unique among all layers
     * @param weights its weights
     */
    record Layer(String name, List<Weight> weights) {}

    /** Whether the embeddings are here. */
    boolean first() {
        return firstBlock == 0;
    }

    /** Whether the loss is computed here. */
    boolean last() {
        return firstBlock + blocks == shape.layers();
    }

    /** Index of a weight in a layer; -1 if the model has none of that name. */
    int weight(int layer, String name) {
        List<Weight> all = layers().get(layer).weights();
        for (int i = 0; i < all.size(); i++) {
            if (all.get(i).name().equals(name)) {
                return i;
            }
        }
        return -1;
    }

    /** Index of a block of this part in {@link #layers}. */
    int layer(int block) {
        return block + (first() ? 1 : 0);
    }

    /** All layers but the experts. */
    List<Layer> layers() {
        List<Layer> layers = new ArrayList<>();
        if (first()) {
            layers.add(new Layer(EMBEDDING, shape.embedding()));
        }
        for (int i = 0; i < blocks; i++) {
            layers.add(new Layer("block" + (firstBlock + i), shape.block()));
        }
        if (last()) {
            layers.add(new Layer("head", shape.head()));
        }
        return layers;
    }

    /** The experts, a layer for each block; none if the model has none. */
    List<Layer> expertLayers() {
        List<Layer> layers = new ArrayList<>();
        for (int i = 0; shape.experts() > 0 && i < blocks; i++) {
            String name = "block" + (firstBlock + i) + ".experts" + firstExpert;
            layers.add(new Layer(name, shape.experts(firstExpert, experts)));
        }
        return layers;
    }

    /** Whether this rank counts a weight in norms of the model: tensor ranks share some. */
    boolean counts(Weight w) {
        return w.split() != GptShape.Split.NONE || tensorRank == 0;
    }

    long count(Weight w) {
        return w.count(tensorRanks);
    }

    /** The shape of this rank's part of a weight. */
    TensorShape shape(Weight w) {
        long count = count(w);
        long columns = w.split() == GptShape.Split.ROWS ? w.columns() : count / w.rows();
        return new TensorShape(count / columns, columns);
    }

    /**
     * Sets initial values, which depend only on seed, block, weight and position in the whole
     * matrix, not on the number of ranks.
     */
    void initialize(long seed, Layer layer, Weight w, MemorySegment values) {
        int dot = layer.name().indexOf('.');
        String block = dot < 0 ? layer.name() : layer.name().substring(0, dot);
        long stream = Corpus.mix(seed * 31 + block.hashCode() * 1_000_003L + w.name().hashCode());
        long count = count(w);
        double scale = shape.mixture().initScale();
        // Not those of embeddings, which have no sums over inputs, nor single rows.
        boolean scaled = scale > 0 && w.rows() > 1 && !layer.name().equals(EMBEDDING);
        double deviation = Math.sqrt(scale / w.rows());
        for (long i = 0; i < count; i++) {
            long index = w.index(i, tensorRank, tensorRanks);
            double unit = (Corpus.mix(stream + index) >>> 11) * 0x1p-53;
            double value =
                    scaled
                            ? deviation * truncatedNormal(stream, index)
                            : w.center() + (2 * unit - 1) * w.bound();
            values.setAtIndex(JAVA_FLOAT, i, (float) value);
        }
    }

    /** Standard normal; values beyond two deviations are redrawn. */
    private static double truncatedNormal(long stream, long index) {
        double value = SplitMix.normal(stream, index);
        for (long again = 1; Math.abs(value) > 2; again++) {
            value = SplitMix.normal(SplitMix.mix(stream + again), index);
        }
        return value;
    }
}
