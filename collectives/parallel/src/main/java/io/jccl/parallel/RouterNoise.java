package io.jccl.parallel;

import io.jccl.compute.Compute;
import io.jccl.compute.RandomFactors;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.internal.SplitMix;
import io.jccl.kernel.MixtureLoops;

/**
 * Noise of a router in training: of its inputs, and of its logits. Without noise a router keeps to
 * the experts that happened to be best at the beginning.
 *
 * <ul>
 *   <li><b>Jitter</b> multiplies each input by a number of the uniform distribution over {@code [1
 *       - jitter, 1 + jitter]} (Switch: Fedus et al., <a
 *       href="https://arxiv.org/abs/2101.03961">arXiv 2101.03961</a>, appendix C, with 0.01).
 *   <li><b>Dropout</b> sets each input to 0 with the given probability, and divides the others by 1
 *       minus it (input dropout there).
 *   <li><b>Deviation</b> is that of a normal distribution added to each logit (V-MoE: Riquelme et
 *       al., <a href="https://arxiv.org/abs/2106.05974">arXiv 2106.05974</a>, section 2.2, with
 *       {@code 1 / experts}).
 * </ul>
 *
 * <p>Each number is a function of the seed, the token's place and the feature or expert: a
 * recomputed forward pass draws the same numbers, and so does a run on another number of ranks, if
 * a token's place among all tokens of all ranks and steps is the same. Each layer has its own seed.
 *
 * <p>The loss is differentiated with noise as a constant: {@link #scale} the router's inputs before
 * its product, and the gradient of these inputs after it; noise added to logits does not change
 * their gradient. Nothing is allocated.
 *
 * <p><b>Threads:</b> immutable; callers may share it, each with its own buffers.
 *
 * @param seed of all numbers
 * @param jitter largest relative change of an input, 0 to less than 1
 * @param dropout probability that an input is dropped, 0 to less than 1
 * @param deviation standard deviation of the noise added to a logit, 0 or more
 */
public record RouterNoise(long seed, double jitter, double dropout, double deviation) {
    private static final long JITTER = SplitMix.mix(1);
    private static final long DROPOUT = SplitMix.mix(2);
    private static final long LOGITS = SplitMix.mix(3);

    /** Checks the numbers. */
    public RouterNoise {
        checkShare("jitter", jitter);
        checkShare("dropout", dropout);
        if (!(deviation >= 0) || Double.isInfinite(deviation)) {
            throw new IllegalArgumentException(
                    "deviation is "
                            + deviation
                            + ", expected 0 or more, such as 1 / the number of experts");
        }
    }

    private static void checkShare(String name, double value) {
        if (!(value >= 0 && value < 1)) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected 0 to less than 1, such as 0.01");
        }
    }

    /** The place of a token, which the caller passed. */
    static long checkedPlace(long place) {
        if (place < 0) {
            throw new IllegalArgumentException(
                    "the place of the first token is " + place + ", expected 0 or more");
        }
        return place;
    }

    /**
     * Whether there is noise of the inputs.
     *
     * @return whether {@link #scale} changes anything
     */
    public boolean scales() {
        return jitter > 0 || dropout > 0;
    }

    /**
     * Multiplies the router's inputs, or their gradients, by the factors of jitter and dropout.
     *
     * @param from tokens x features of float32, row-major, in host memory
     * @param features elements of a token
     * @param place of the first token, 0 or more; the others follow it
     * @param to as many elements of the same kind, overwritten; may be the same buffer
     * @throws IllegalArgumentException if a buffer is of another type or size, or not in host
     *     memory, or the place is negative
     */
    public void scale(Buffer from, int features, long place, Buffer to) {
        check(from, features, "the inputs");
        check(to, features, "the result");
        if (from.count() != to.count()) {
            throw new IllegalArgumentException(
                    "the inputs are %s elements and the result %s, expected as many"
                            .formatted(from.count(), to.count()));
        }
        MixtureLoops.scale(
                from.asSegment(),
                from.count() / features,
                features,
                null,
                checkedPlace(place),
                features,
                0,
                jitter,
                seed + JITTER,
                dropout,
                seed + DROPOUT,
                to.asSegment());
    }

    /**
     * Like {@link #scale(Buffer, int, long, Buffer)}, on a device.
     *
     * @param compute of the device
     * @param from tokens x features of float32, in the device's memory
     * @param features elements of a token
     * @param place of the first token, 0 or more
     * @param to as above
     * @param stream where it is enqueued
     * @throws IllegalArgumentException if a buffer is of another type, size or device, or the place
     *     is negative
     */
    public void scale(
            Compute compute, Buffer from, int features, long place, Buffer to, Stream stream) {
        RandomFactors factors =
                new RandomFactors(jitter, seed + JITTER, dropout, seed + DROPOUT, features, 0);
        compute.mixture().scaleRandomly(factors, from, features, null, place, to, stream);
    }

    /**
     * Whether there is noise of the logits.
     *
     * @return whether {@link #add} changes anything
     */
    public boolean adds() {
        return deviation > 0;
    }

    /**
     * Adds the noise of the logits.
     *
     * @param logits tokens x experts of float32, row-major, in host memory, changed
     * @param experts logits of a token
     * @param place of the first token, 0 or more; the others follow it
     * @throws IllegalArgumentException if the buffer is of another type or size, or not in host
     *     memory, or the place is negative
     */
    public void add(Buffer logits, int experts, long place) {
        check(logits, experts, "the logits");
        long first = checkedPlace(place) * experts;
        if (adds()) {
            MixtureLoops.addNormal(
                    logits.asSegment(), logits.count(), deviation, seed + LOGITS, first);
        }
    }

    /**
     * Like {@link #add(Buffer, int, long)}, on a device: the same numbers, except for the last bit
     * of float64 in which logarithms and cosines differ.
     *
     * @param compute of the device
     * @param logits tokens x experts of float32, in the device's memory, changed
     * @param experts logits of a token
     * @param place of the first token, 0 or more
     * @param stream where it is enqueued
     * @throws IllegalArgumentException if the buffer is of another type or device, or the place is
     *     negative
     */
    public void add(Compute compute, Buffer logits, int experts, long place, Stream stream) {
        long first = checkedPlace(place) * experts;
        compute.mixture().addNormal(deviation, seed + LOGITS, first, logits, stream);
    }

    private static void check(Buffer buffer, int width, String what) {
        if (buffer.device().kind() != Device.Kind.HOST
                || buffer.dataType() != DataType.FLOAT32
                || width < 1
                || buffer.count() % width != 0) {
            throw new IllegalArgumentException(
                    "%s are %s elements of %s on %s, expected rows of %s of float in host memory"
                            .formatted(
                                    what,
                                    buffer.count(),
                                    buffer.dataType().label(),
                                    buffer.device(),
                                    width));
        }
    }
}
