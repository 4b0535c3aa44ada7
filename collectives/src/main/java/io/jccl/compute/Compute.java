package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Work on elements on a device. The host's and CUDA's implementation give the same results: narrow
 * floats are widened to float32, each operation is an IEEE 754 operation, never fused, and what is
 * stored is rounded once to nearest even. Only the payload of a NaN and, of {@link #sumOfSquares},
 * the order of the sum may differ; docs/compute.md states the bound.
 *
 * {@snippet class="snippets.Collectives" region="compute"}
 *
 * <p>An operation is enqueued on a stream of the device and returns; on the host's default stream
 * it has run by then. Buffers must stay open until it has. Arguments are checked before anything is
 * enqueued. An operation over no elements does nothing.
 *
 * <p>"Floats" are float32, float64, bfloat16 and float16. Buffers of one operation may not overlap
 * unless documented.
 *
 * <p><b>Threads:</b> any; operations of one stream run in the order of the calls. On a GPU nothing
 * is allocated by an operation, and virtual threads are refused. On the host nothing is allocated
 * once threads have kept enough memory for the largest operation and the shape of attention.
 *
 * <p>All operations throw {@link IllegalArgumentException} for types, counts or devices that do not
 * match, and {@link IllegalStateException} for a closed buffer or stream.
 */
public interface Compute extends AutoCloseable {
    /** Elements of the float64 buffer of a norm: see {@link #sumOfSquares}. */
    int NORM_COUNT = 4 + 1024;

    /**
     * Compute on a device; on the host only with the stream's thread.
     *
     * @param device the host or a GPU
     * @return its compute
     * @throws io.jccl.error.JcclException if a GPU is older than compute capability 7.0, or CUDA
     *     cannot load the kernels
     * @throws UnsupportedOperationException if there is no driver of CUDA 12.0 or newer
     */
    static Compute of(Device device) {
        return device.kind() == Device.Kind.CUDA
                ? new CheckedCompute(new CudaCompute(device))
                : host(1);
    }

    /**
     * Compute on the host with several threads for each operation.
     *
     * @param threads number of threads, including the calling one: 1 to 1024
     * @return a compute that ends its threads when it is closed
     * @throws IllegalArgumentException if the number is out of range
     */
    static Compute host(int threads) {
        return new CheckedCompute(new HostCompute(threads));
    }

    /**
     * Sets all elements to one value, converted as {@link Buffer#set} does.
     *
     * @param target of any type
     * @param value the value
     * @param stream where
     */
    void fill(Buffer target, double value, Stream stream);

    /**
     * Converts elements.
     *
     * @param source floats
     * @param target as many floats of any type; of the same type for a copy
     * @param stream where
     */
    void cast(Buffer source, Buffer target, Stream stream);

    /**
     * {@code target = a + b}.
     *
     * @param a floats
     * @param b as many of the same type
     * @param target as many of the same type; may be a or b
     * @param stream where
     */
    void add(Buffer a, Buffer b, Buffer target, Stream stream);

    /**
     * {@code target = source factor}, with the factor rounded to float32 unless elements are
     * float64.
     *
     * @param source floats
     * @param factor any number
     * @param target as many of the same type; may be the source
     * @param stream where
     */
    void scale(Buffer source, double factor, Buffer target, Stream stream);

    /**
     * {@code target = source / divisor}, with the divisor rounded to float32 unless elements are
     * float64.
     *
     * @param source floats
     * @param divisor any number
     * @param target as many of the same type; may be the source
     * @param stream where
     */
    void divide(Buffer source, double divisor, Buffer target, Stream stream);

    /**
     * {@code y = y + alpha x}, with alpha rounded to float32 unless elements are float64.
     *
     * @param alpha any number
     * @param x floats
     * @param y as many of the same type
     * @param stream where
     */
    void axpy(double alpha, Buffer x, Buffer y, Stream stream);

    /**
     * The sum of squares, in float64 and in an order that depends on the count alone. It is
     * infinite or NaN exactly if an element is.
     *
     * @param x float32, bfloat16 or float16
     * @param norm {@link #NORM_COUNT} float64: the sum goes to element 0, {@link #stepControl}
     *     writes 1 and 2, the rest is scratch
     * @param add whether to add to what is in element 0
     * @param stream where
     */
    void sumOfSquares(Buffer x, Buffer norm, boolean add, Stream stream);

    /**
     * Decides about a step on the device, from the sum of squares of the gradients: element 1 of
     * the norm becomes the factor that unscales and clips, {@code min(1, maxNorm / (norm + 1e-6)) /
     * lossScale}; element 2 becomes 1 if the step has to be skipped, since a gradient is not finite
     * or would not be after unscaling, else 0.
     *
     * @param norm as in {@link #sumOfSquares}
     * @param lossScale the factor that the loss was multiplied by; finite and above 0
     * @param maxNorm largest norm of the unscaled gradients; infinity for no clipping
     * @param stream where
     */
    void stepControl(Buffer norm, double lossScale, double maxNorm, Stream stream);

    /**
     * One step of an optimizer.
     *
     * @param update the formula, read before this returns
     * @param parameters float32
     * @param first first moment, as many float32; null if the rule keeps none
     * @param second second moment, likewise
     * @param gradients as many float32, bfloat16 or float16
     * @param target gets the new parameters too, rounded to float32, bfloat16 or float16; or null
     * @param factor what gradients are multiplied by; not used with a norm
     * @param norm null, or what {@link #stepControl} has filled: whether to step, and the factor
     * @param stream where
     */
    void update(
            UpdateFormula update,
            Buffer parameters,
            @Nullable Buffer first,
            @Nullable Buffer second,
            Buffer gradients,
            @Nullable Buffer target,
            double factor,
            @Nullable Buffer norm,
            Stream stream);

    /**
     * {@code target[r] = source[index[r]]} for rows of a width; a row of zeros where the index is
     * not a row of the source, such as -1 for a dropped token.
     *
     * @param source rows of any type
     * @param width elements of a row, 1 or more
     * @param index int32, one for each row of the target
     * @param target rows of the same type
     * @param stream where
     */
    void gatherRows(Buffer source, long width, Buffer index, Buffer target, Stream stream);

    /**
     * {@code target[index[r]] = source[r]} for rows of a width; rows whose index is not a row of
     * the target are left out. Indices within the target must differ.
     *
     * @param source rows of any type
     * @param width elements of a row, 1 or more
     * @param index int32, one for each row of the source
     * @param target rows of the same type
     * @param stream where
     */
    void scatterRows(Buffer source, long width, Buffer index, Buffer target, Stream stream);

    /**
     * Copies a block of columns of a matrix into columns of another: packs them, or puts them back.
     *
     * @param source rows of any type, each of sourceWidth elements
     * @param sourceWidth elements of a row of the source
     * @param sourceColumn first column to read
     * @param target rows of the same type, as many
     * @param targetWidth elements of a row of the target
     * @param targetColumn first column to write
     * @param columns how many, 1 or more
     * @param stream where
     */
    void copyColumns(
            Buffer source,
            long sourceWidth,
            long sourceColumn,
            Buffer target,
            long targetWidth,
            long targetColumn,
            long columns,
            Stream stream);

    /**
     * Takes time and does nothing else.
     *
     * @param duration how long, 0 to 10 seconds
     * @param stream where
     */
    void spin(Duration duration, Stream stream);

    /**
     * Layers of a transformer, with the same device and threads.
     *
     * @return the same each time
     * @throws io.jccl.error.JcclException if CUDA cannot load the kernels
     */
    Layers layers();

    /**
     * Work on gradients that are sent compressed, with the same device.
     *
     * @return the same each time
     * @throws io.jccl.error.JcclException if CUDA cannot load the kernels
     */
    GradientCompression compression();

    /**
     * Computations of a mixture of experts other than moving rows, on the same device.
     *
     * @return the same each time
     * @throws io.jccl.error.JcclException if CUDA cannot load the kernels
     */
    Mixture mixture();

    /**
     * The device.
     *
     * @return where buffers and streams have to be
     */
    Device device();

    /** Ends threads of this compute, if it has any. Closing twice does nothing. */
    @Override
    void close();
}
