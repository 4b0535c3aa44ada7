package io.jccl.offload.optim;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Objects;

/**
 * A tensor that an optimizer keeps in addition to the parameters: one value per parameter, as
 * float32, in blocks of 8-bit codes, or as a product of means of rows and columns.
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param name unique in its optimizer, such as {@code "exp_avg"}
 * @param layout how values are stored
 */
public record StateTensor(String name, Layout layout) {
    /** How the values of a tensor are stored. */
    public enum Layout {
        /** A float32 per parameter. */
        FLOAT32,
        /**
         * Blocks of 256 parameters with a sign: 256 codes of the dynamic data type of arXiv
         * 2110.02861, then a float32 in little-endian order that they are multiplied by.
         */
        SIGNED_8BIT,
        /** The same without a sign. */
        UNSIGNED_8BIT,
        /**
         * For a matrix a float32 for each row, the mean over its columns, then one for each column,
         * the mean over the rows: an element is their product over the mean of all. For a vector a
         * float32 per element. All ranks keep it for whole tensors (arXiv 1804.04235, section 3).
         */
        FACTORED
    }

    /** Checks the arguments. */
    public StateTensor {
        Objects.requireNonNull(layout, "layout");
        if (name.isBlank()) {
            throw new IllegalArgumentException("a tensor's name is blank, expected a text");
        }
    }

    /**
     * A float32 per parameter.
     *
     * @param name unique in its optimizer
     * @return the tensor
     */
    public static StateTensor float32(String name) {
        return new StateTensor(name, Layout.FLOAT32);
    }

    /**
     * Parameters that are stored together; pieces of state begin at a multiple of it.
     *
     * @return 1, or 256 for blocks
     */
    public int unit() {
        return type() == DataType.FLOAT32 ? 1 : Quantized.BLOCK;
    }

    /**
     * The type of its memory.
     *
     * @return float32, or uint8 for blocks
     */
    public DataType type() {
        return layout == Layout.FLOAT32 || layout == Layout.FACTORED
                ? DataType.FLOAT32
                : DataType.UINT8;
    }

    /**
     * Elements of {@link #type} for a number of parameters.
     *
     * @param parameters 0 or more
     * @return 0 or more
     * @throws IllegalArgumentException if it depends on shapes
     */
    public long count(long parameters) {
        if (layout == Layout.FACTORED) {
            throw new IllegalArgumentException(
                    name
                            + " has means of rows and columns, but the shapes of the tensors are"
                            + " not known: give the state a list of TensorShape");
        }
        return layout == Layout.FLOAT32 ? parameters : Quantized.bytes(parameters);
    }

    /**
     * Elements of {@link #type} for a number of parameters.
     *
     * @param parameters 0 or more
     * @param shapes the tensors that the parameters belong to; empty if no rule needs them
     * @return 0 or more
     * @throws IllegalArgumentException if there are none, but the layout needs them
     */
    public long count(long parameters, List<TensorShape> shapes) {
        return layout == Layout.FACTORED && !shapes.isEmpty()
                ? TensorShape.factors(shapes)
                : count(parameters);
    }

    /**
     * Reads values of whole tensors that follow each other.
     *
     * @param shapes the tensors
     * @param from memory of this tensor
     * @param to float32 in host memory, one for each parameter
     * @throws IllegalArgumentException if there are fewer values than asked for
     */
    public void decode(List<TensorShape> shapes, Buffer from, Buffer to) {
        if (layout != Layout.FACTORED) {
            decode(from, to);
            return;
        }
        MemorySegment factors = from.asSegment();
        MemorySegment values = to.asSegment();
        long first = 0;
        long at = 0;
        for (TensorShape s : shapes) {
            double mean = Adafactor.mean(s, factors, first);
            for (long i = 0; i < s.count(); i++) {
                float value = (float) Adafactor.square(s, factors, first, mean, i);
                values.set(JAVA_FLOAT_UNALIGNED, (at + i) * Float.BYTES, value);
            }
            first += s.factors();
            at += s.count();
        }
    }

    /**
     * Writes values of whole tensors that follow each other, rounded to those that the layout has.
     *
     * @param shapes the tensors
     * @param from float32 in host memory, one for each parameter
     * @param to memory of this tensor
     * @throws IllegalArgumentException if there is room for fewer
     */
    public void encode(List<TensorShape> shapes, Buffer from, Buffer to) {
        if (layout != Layout.FACTORED) {
            encode(from, to);
            return;
        }
        MemorySegment values = from.asSegment();
        MemorySegment factors = to.asSegment();
        long first = 0;
        long at = 0;
        for (TensorShape s : shapes) {
            double[] means = new double[Math.toIntExact(s.factors())];
            for (long i = 0; i < s.count(); i++) {
                double v = values.get(JAVA_FLOAT_UNALIGNED, (at + i) * Float.BYTES);
                if (s.isMatrix()) {
                    means[(int) (i / s.columns())] += v / s.columns();
                    means[(int) (s.rows() + i % s.columns())] += v / s.rows();
                } else {
                    means[(int) i] = v;
                }
            }
            for (int k = 0; k < means.length; k++) {
                factors.set(JAVA_FLOAT_UNALIGNED, (first + k) * Float.BYTES, (float) means[k]);
            }
            first += s.factors();
            at += s.count();
        }
    }

    /**
     * Reads values.
     *
     * @param from memory of this tensor, from the start of a unit
     * @param to float32 in host memory, one for each parameter to read
     * @throws IllegalArgumentException if there are fewer values than asked for
     */
    public void decode(Buffer from, Buffer to) {
        check(from, to);
        if (layout == Layout.FLOAT32) {
            to.asSegment().copyFrom(from.asSegment().asSlice(0, to.byteSize()));
        } else {
            Quantized.decode(map(), from.asSegment(), to.asSegment(), to.count());
        }
    }

    /**
     * Writes values, rounded to those that the layout has.
     *
     * @param from float32 in host memory, one for each parameter to write
     * @param to memory of this tensor, from the start of a unit
     * @throws IllegalArgumentException if there is room for fewer
     */
    public void encode(Buffer from, Buffer to) {
        check(to, from);
        if (layout == Layout.FLOAT32) {
            to.asSegment().copyFrom(from.asSegment());
        } else {
            Quantized.encode(map(), from.asSegment(), to.asSegment(), from.count());
        }
    }

    private void check(Buffer memory, Buffer values) {
        if (memory.dataType() != type() || memory.count() < count(values.count())) {
            throw new IllegalArgumentException(
                    "%s has %s elements of %s, expected %s of %s for %s parameters"
                            .formatted(
                                    name,
                                    memory.count(),
                                    memory.dataType().label(),
                                    count(values.count()),
                                    type().label(),
                                    values.count()));
        }
    }

    Quantized map() {
        return layout == Layout.SIGNED_8BIT ? Quantized.SIGNED : Quantized.UNSIGNED;
    }
}
