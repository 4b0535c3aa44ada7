package io.jccl.gemm;

import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaDevice;

/**
 * Products of matrices on one device.
 *
 * {@snippet class="snippets.Parallel" region="matmul"}
 *
 * <p>On the host: blocks of both factors are packed into panels that stay in the caches, and a tile
 * of the result is kept in vector registers, as in BLIS (Van Zee and van de Geijn, "BLIS: A
 * Framework for Rapidly Instantiating BLAS Functionality", ACM TOMS 41:3, 2015). With {@code
 * --add-modules jdk.incubator.vector} the Vector API computes, without it plain loops several times
 * as slow. An element of the result has the same bits for any number of threads, and whatever other
 * rows and columns are computed with it: its products are added in the order of k, in blocks of
 * 256.
 *
 * <p>On a GPU cuBLAS computes, with float32 sums and without TF32; not yet run on a GPU. Both
 * factors have to be of one type there.
 *
 * <p>Nothing is allocated per product once the largest has been computed.
 *
 * <p><b>Threads:</b> any thread may call; products are computed one at a time, others wait. For
 * products side by side make a Matmul each.
 */
public interface Matmul extends AutoCloseable {
    /**
     * Makes what computes products on a device.
     *
     * @param device the host's or a CUDA device
     * @param threads how many threads compute a product on the host, the stream's own included: 1
     *     to 1024. Ignored on a GPU
     * @return products on that device, which the caller closes
     * @throws IllegalArgumentException if threads is out of range
     * @throws io.jccl.error.JcclException if cuBLAS is not there, or cannot be set up
     */
    static Matmul of(Device device, int threads) {
        return device instanceof CudaDevice cuda
                ? new CudaMatmul(cuda)
                : new HostMatmul(device, threads);
    }

    /**
     * Enqueues {@code c = a b + beta c}.
     *
     * @param a m x k, float32 or bfloat16
     * @param b k x n, float32 or bfloat16
     * @param c m x n, float32; it shares no element with a or b. Sums are float32 throughout
     * @param beta what c is multiplied by first; with 0 its old elements are not read, so that they
     *     may be anything
     * @param stream where to enqueue; a stream of the device
     * @throws IllegalArgumentException if shapes, types or devices do not fit
     * @throws IllegalStateException if this is closed, or a buffer is
     */
    void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream);

    /**
     * Enqueues {@code c = a b}.
     *
     * @param a m x k, float32 or bfloat16
     * @param b k x n, float32 or bfloat16
     * @param c m x n, float32
     * @param stream where to enqueue
     * @see #multiply(Matrix, Matrix, Matrix, float, Stream)
     */
    default void multiply(Matrix a, Matrix b, Matrix c, Stream stream) {
        multiply(a, b, c, 0, stream);
    }

    /** Ends the threads, after the product in progress. Closing twice does nothing. */
    @Override
    void close();
}
