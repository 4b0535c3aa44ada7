package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;

/**
 * Work on gradients that are sent compressed, on a device: {@link Compute#compression}. The rules
 * of {@link Compute} for streams, buffers, checks, threads and errors apply.
 */
public interface GradientCompression {
    /** Elements of the int32 buffer that {@link #selectLargest} needs for itself. */
    int SELECTION_SCRATCH = 4 + 2048 + 2 * 1024;

    /**
     * Moves the <i>k</i> elements of largest magnitude out of a vector, in the order of their
     * indices; zeros remain in their places. NaN is above infinity; of equal magnitudes the first
     * ones are taken. All devices give the same bits.
     *
     * @param x float32, at most 2<sup>30</sup> elements
     * @param selection int32, twice <i>k</i>: gets indices, then the bits of the elements; <i>k</i>
     *     is at most the count of x
     * @param scratch int32, {@link #SELECTION_SCRATCH} elements, overwritten
     * @param stream where
     */
    void selectLargest(Buffer x, Buffer selection, Buffer scratch, Stream stream);

    /**
     * Adds the elements of a selection to a vector: {@code target[index] += element}. Indices must
     * differ; one that is not in the target is left out. All devices give the same bits.
     *
     * @param selection int32, what {@link #selectLargest} wrote
     * @param target float32
     * @param stream where
     */
    void addSelection(Buffer selection, Buffer target, Stream stream);

    /**
     * Divides each column by its norm, which is taken in float64; a column of zeros remains.
     *
     * @param matrices the matrices
     * @param stream where
     */
    void normalize(ThinMatrices matrices, Stream stream);

    /**
     * Makes the columns of each matrix orthonormal, each to those before it, by modified
     * Gram-Schmidt (Golub and Van Loan, Matrix Computations, 4th edition, algorithm 5.2.6) applied
     * twice. A column of which less than 10<sup>-6</sup> is left becomes zero.
     *
     * @param matrices the matrices
     * @param stream where
     */
    void orthonormalize(ThinMatrices matrices, Stream stream);

    /**
     * Fills columns that are zero with random elements from -1 to 1, in order. They are those of
     * SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) from a state made of the seed, the start of
     * the matrix plus the number of the column in it, and the number of columns drawn before. All
     * devices give the same bits.
     *
     * @param matrices the matrices
     * @param drawn one int64: number of columns drawn so far, increased
     * @param seed any number
     * @param stream where
     */
    void redrawZeroColumns(ThinMatrices matrices, Buffer drawn, long seed, Stream stream);
}
