package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.util.Objects;

/**
 * A tensor that an optimizer keeps beside the parameters: one value per parameter, as float32 or in
 * blocks of 8-bit codes.
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
        UNSIGNED_8BIT
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
        return layout == Layout.FLOAT32 ? 1 : Quantized.BLOCK;
    }

    /**
     * The type of its memory.
     *
     * @return float32, or uint8 for blocks
     */
    public DataType type() {
        return layout == Layout.FLOAT32 ? DataType.FLOAT32 : DataType.UINT8;
    }

    /**
     * Elements of {@link #type} for a number of parameters.
     *
     * @param parameters 0 or more
     * @return 0 or more
     */
    public long count(long parameters) {
        return layout == Layout.FLOAT32 ? parameters : Quantized.bytes(parameters);
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
                    name
                            + " has "
                            + memory.count()
                            + " elements of "
                            + memory.dataType().label()
                            + ", expected "
                            + count(values.count())
                            + " of "
                            + type().label()
                            + " for "
                            + values.count()
                            + " parameters");
        }
    }

    Quantized map() {
        return layout == Layout.SIGNED_8BIT ? Quantized.SIGNED : Quantized.UNSIGNED;
    }
}
