package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Computations of a mixture of experts other than moving rows: {@link Compute#mixture}. Random
 * factors and noise are functions of the arguments, not of earlier random numbers, so the same on
 * every device and each time. Elements are float32 unless documented otherwise.
 *
 * <p>Streams, threads and errors are those of {@link Compute}. docs/compute.md states how far
 * results of two devices may differ.
 */
public interface Mixture {
    /**
     * {@code target = source factor}, with a random factor for each element.
     *
     * @param factors what they are drawn from
     * @param source rows
     * @param width elements of a row; with the first column at most the factors' columns
     * @param places two elements for each row, digits of its place: the remainder of the place by
     *     2^24, and the place without it over 2^24; null if the rows' places follow each other
     * @param place of the first row, 0 or more; not used with places
     * @param target as many rows; may be the source
     * @param stream where
     */
    void scaleRandomly(
            RandomFactors factors,
            Buffer source,
            int width,
            @Nullable Buffer places,
            long place,
            Buffer target,
            Stream stream);

    /**
     * Adds normal noise, by the transform of Box and Muller ("A Note on the Generation of Random
     * Normal Deviates", 1958).
     *
     * @param deviation its standard deviation, finite and 0 or more
     * @param from any number: different ones give unrelated noise
     * @param first index of the first element's number among those drawn from it
     * @param x changed
     * @param stream where
     */
    void addNormal(double deviation, long from, long first, Buffer x, Stream stream);

    /**
     * Mixes two outputs by learned shares (the coefficients of DeepSpeed-MoE's implementation,
     * arXiv 2201.05596): {@code b = s a + (1 - s) b}, computed as {@code b + s (a - b)}, with s the
     * first of {@code softmax(x coefficient + bias)}.
     *
     * @param x rows
     * @param width elements of a row
     * @param coefficient width x 2
     * @param bias 2 elements
     * @param a rows
     * @param b rows, overwritten
     * @param difference rows, gets {@code a - b}
     * @param share gets s of each row
     * @param stream where
     */
    void mix(
            Buffer x,
            int width,
            Buffer coefficient,
            Buffer bias,
            Buffer a,
            Buffer b,
            Buffer difference,
            Buffer share,
            Stream stream);

    /**
     * Multiplies rows by their shares: the gradient of a from that of the mix, or that of b.
     *
     * @param source rows
     * @param width elements of a row
     * @param share one for each row
     * @param rest whether to use 1 minus the shares instead
     * @param target as many rows; may be the source
     * @param stream where
     */
    void scaleByShare(
            Buffer source, int width, Buffer share, boolean rest, Buffer target, Stream stream);

    /**
     * The gradients of the mix through its shares. With g the gradient of the mix, that of a row's
     * first logit is {@code s (1 - s) g (a - b)}, that of the second one its negative.
     *
     * @param x rows
     * @param width elements of a row
     * @param coefficient width x 2
     * @param gradient rows, that of the mix
     * @param difference from {@link #mix}
     * @param share from {@link #mix}
     * @param ofX rows, gradient of x, to which is added
     * @param sums float64, width + 1 elements, overwritten: sums over the rows, for {@link
     *     #addSums}; those of ranks with other rows may be added up first
     * @param scratch float64, one element for each row, overwritten
     * @param stream where
     */
    void mixBackward(
            Buffer x,
            int width,
            Buffer coefficient,
            Buffer gradient,
            Buffer difference,
            Buffer share,
            Buffer ofX,
            Buffer sums,
            Buffer scratch,
            Stream stream);

    /**
     * Adds the sums of {@link #mixBackward} to the gradients of coefficient and bias: to those of
     * the first logit the sums, to those of the second one their negatives.
     *
     * @param sums float64, width + 1 elements
     * @param coefficient gradient, width x 2
     * @param bias gradient, 2 elements
     * @param stream where
     */
    void addSums(Buffer sums, Buffer coefficient, Buffer bias, Stream stream);
}
