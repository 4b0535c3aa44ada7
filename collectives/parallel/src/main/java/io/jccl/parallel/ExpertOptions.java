package io.jccl.parallel;

import io.jccl.device.DataType;
import java.util.Objects;

/**
 * Settings of an {@link ExpertDispatch}. All ranks pass the same values.
 *
 * @param router how tokens are assigned to experts
 * @param features elements of a token, 1 or more
 * @param type their type, {@link DataType#FLOAT32} or {@link DataType#BFLOAT16}; sums are computed
 *     in float32 and rounded once
 * @param backward whether there is a backward pass, which doubles the memory
 * @param fixedBlocks whether the block of each local expert has a fixed position and size, padded
 *     with rows of zeros, so that matrix products always have the same shape, as in GShard and
 *     Switch; otherwise blocks are contiguous and of varying size. Not with {@link
 *     RouterOptions.Overflow#NONE} or a capacity that {@link RouterOptions#adaptive adapts}
 * @param maxRows maximum number of tokens that the experts of one rank receive in a step from all
 *     ranks; 0 for the worst case, which without a capacity is all tokens of all ranks. A step with
 *     more throws on every rank
 */
public record ExpertOptions(
        RouterOptions router,
        int features,
        DataType type,
        boolean backward,
        boolean fixedBlocks,
        long maxRows) {
    /** Checks the settings. */
    public ExpertOptions {
        Objects.requireNonNull(router, "router");
        Objects.requireNonNull(type, "type");
        if (features < 1) {
            throw new IllegalArgumentException(
                    "a token has " + features + " features, expected 1 or more");
        }
        if (type != DataType.FLOAT32 && type != DataType.BFLOAT16) {
            throw new IllegalArgumentException(
                    "tokens are of type " + type.label() + ", expected float or bfloat16");
        }
        if (maxRows < 0) {
            throw new IllegalArgumentException(
                    "maxRows is " + maxRows + ", expected 1 or more, or 0 for the worst case");
        }
        if (fixedBlocks && router.overflow() == RouterOptions.Overflow.NONE) {
            throw new IllegalArgumentException(
                    "fixedBlocks is set, but with overflow NONE blocks have no fixed size; leave it"
                            + " out, or choose DROP or NEXT_BEST");
        }
        if (fixedBlocks && router.adaptive()) {
            throw new IllegalArgumentException(
                    "fixedBlocks is set, but with a capacityFactor of "
                            + router.capacityFactor()
                            + " the size of blocks adapts to each step; leave it out, or give a"
                            + " capacityFactor above 0");
        }
        if (fixedBlocks && maxRows != 0) {
            throw new IllegalArgumentException(
                    "maxRows is "
                            + maxRows
                            + ", but with fixedBlocks the number of rows follows from the capacity;"
                            + " expected 0");
        }
    }

    /**
     * Float32 tokens, with a backward pass, blocks of varying size, memory for the worst case.
     *
     * @param router how tokens are assigned to experts
     * @param features elements of a token
     * @return the settings
     */
    public static ExpertOptions of(RouterOptions router, int features) {
        return new ExpertOptions(router, features, DataType.FLOAT32, true, false, 0);
    }

    /**
     * These settings with tokens of another type.
     *
     * @param other float32 or bfloat16
     * @return new settings
     */
    public ExpertOptions withType(DataType other) {
        return new ExpertOptions(router, features, other, backward, fixedBlocks, maxRows);
    }

    /**
     * These settings with or without a backward pass.
     *
     * @param value whether there is one
     * @return new settings
     */
    public ExpertOptions withBackward(boolean value) {
        return new ExpertOptions(router, features, type, value, fixedBlocks, maxRows);
    }

    /**
     * These settings with blocks of fixed or of varying size.
     *
     * @param value whether they are fixed
     * @return new settings
     */
    public ExpertOptions withFixedBlocks(boolean value) {
        return new ExpertOptions(router, features, type, backward, value, maxRows);
    }

    /**
     * These settings with another limit of tokens per rank.
     *
     * @param rows tokens, or 0 for the worst case
     * @return new settings
     */
    public ExpertOptions withMaxRows(long rows) {
        return new ExpertOptions(router, features, type, backward, fixedBlocks, rows);
    }
}
