package io.jccl.offload.zero;

import io.jccl.offload.optim.TensorShape;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;

/**
 * Parameters that are needed at the same time, such as those of one transformer block. They form
 * one flat buffer that is gathered, reduced and updated as a whole, padded so that all ranks get
 * blocks of the same count. Put small consecutive tensors into one layer, since each layer costs
 * the latency of its collectives; the size of a layer determines the size of a window of gathered
 * layers.
 *
 * @param name for messages and files, unique among the layers
 * @param tensors its parameters in their order in the flat buffer, at least one
 */
public record ShardedLayer(String name, List<Tensor> tensors) {
    /**
     * A parameter of any shape, as consecutive elements.
     *
     * @param name unique in its layer
     * @param count number of elements, 1 or more
     * @param columns of a matrix in row-major order, for rules that keep means of rows and columns;
     *     the count, for a vector
     */
    public record Tensor(String name, long count, long columns) {
        /**
         * A parameter whose shape no rule needs, or a vector.
         *
         * @param name unique in its layer
         * @param count number of elements, 1 or more
         */
        public Tensor(String name, long count) {
            this(name, count, count);
        }

        /**
         * The shape.
         *
         * @return rows and columns
         */
        public TensorShape shape() {
            return new TensorShape(count / columns, columns);
        }

        /** Checks the arguments. */
        public Tensor {
            if (name.isBlank()) {
                throw new IllegalArgumentException("a tensor's name is blank, expected a text");
            }
            if (count < 1 || count > Long.MAX_VALUE / 64) {
                throw new IllegalArgumentException(
                        "tensor %s has %s elements, expected 1 to %s"
                                .formatted(name, count, Long.MAX_VALUE / 64));
            }
            if (columns < 1 || count % columns != 0) {
                throw new IllegalArgumentException(
                        "tensor %s has %s columns, expected a divisor of its %s elements"
                                .formatted(name, columns, count));
            }
        }
    }

    /** Checks names. */
    public ShardedLayer {
        if (name.isBlank()) {
            throw new IllegalArgumentException("a layer's name is blank, expected a text");
        }
        tensors = List.copyOf(tensors);
        if (tensors.isEmpty()) {
            throw new IllegalArgumentException(
                    "layer " + name + " has no tensors, expected at least one");
        }
        Set<String> names = new HashSet<>();
        for (Tensor t : tensors) {
            if (!names.add(t.name())) {
                throw new IllegalArgumentException(
                        "layer " + name + " has two tensors named " + t.name());
            }
        }
    }

    /**
     * A layer of one tensor with the same name.
     *
     * @param name of both
     * @param count number of elements, 1 or more
     * @return the layer
     */
    public static ShardedLayer of(String name, long count) {
        return new ShardedLayer(name, List.of(new Tensor(name, count)));
    }

    /**
     * Elements of all tensors, without padding.
     *
     * @return 1 or more
     */
    public long count() {
        long sum = 0;
        for (Tensor t : tensors) {
            sum = Math.addExact(sum, t.count());
        }
        return sum;
    }

    /**
     * The shapes of all tensors.
     *
     * @return one for each
     */
    public List<TensorShape> shapes() {
        return tensors.stream().map(Tensor::shape).toList();
    }

    /** Whether another layer has the same names and counts. */
    boolean sameTensors(ShardedLayer other) {
        boolean same = name.equals(other.name) && tensors.size() == other.tensors.size();
        for (int i = 0; same && i < tensors.size(); i++) {
            Tensor a = tensors.get(i);
            Tensor b = other.tensors.get(i);
            same = a.name.equals(b.name) && a.count == b.count;
        }
        return same;
    }

    /** Whether another layer, with the same names and counts, has the same rows and columns. */
    boolean sameMatrices(ShardedLayer other) {
        boolean same = true;
        for (int i = 0; same && i < tensors.size(); i++) {
            TensorShape a = tensors.get(i).shape();
            TensorShape b = other.tensors.get(i).shape();
            same = a.equals(b) || (!a.isMatrix() && !b.isMatrix());
        }
        return same;
    }

    /**
     * The position of a tensor in the flat buffer.
     *
     * @param tensor its name
     * @return the index of its first element
     * @throws IllegalArgumentException if there is none of that name
     */
    public long offset(String tensor) {
        Objects.requireNonNull(tensor, "tensor");
        long at = 0;
        for (Tensor t : tensors) {
            if (t.name().equals(tensor)) {
                return at;
            }
            at += t.count();
        }
        throw new IllegalArgumentException(
                "layer " + name + " has no tensor " + tensor + ", but " + tensors);
    }
}
