package io.jccl.gemm;

import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaDevice;

/**
 * Products of matrices on one device.
 *
 * {@snippet class="snippets.Parallel" region="matmul"}
 *
 * <p>On the host: blocks of both factors are packed into panels that fit into the caches, and a
 * tile of the result is kept in vector registers, as in BLIS (Van Zee and van de Geijn, "BLIS: A
 * Framework for Rapidly Instantiating BLAS Functionality", ACM TOMS 41:3, 2015). With {@code
 * --add-modules jdk.incubator.vector} the Vector API is used, otherwise plain loops, which are
 * several times slower. Each element of the result is bitwise independent of the number of threads
 * and of the other rows and columns: its products are added in the order of k, in blocks of 256.
 *
 * <p>On a GPU cuBLAS is used, with float32 sums and without TF32. There, both factors must have the
 * same type.
 *
 * <p>Products allocate nothing once the largest has been computed.
 *
 * <p><b>Threads:</b> any thread may call; products are computed one at a time. For concurrent
 * products create one Matmul each.
 */
public interface Matmul extends AutoCloseable {
    /**
     * Creates a Matmul for a device.
     *
     * @param device the host or a CUDA device
     * @param threads threads per product on the host, including that of the stream: 1 to 1024.
     *     Ignored on a GPU
     * @return a Matmul, which the caller closes
     * @throws IllegalArgumentException if threads is out of range
     * @throws io.jccl.error.JcclException if cuBLAS is missing or cannot be initialized
     */
    static Matmul of(Device device, int threads) {
        return device instanceof CudaDevice cuda
                ? new CudaMatmul(cuda)
                : new HostMatmul(device, threads);
    }

    /**
     * Enqueues {@code c = a b + beta c}.
     *
     * @param a m x k, float32 or bfloat16; on a GPU float16 too
     * @param b k x n, of the same types
     * @param c m x n, float32; it shares no element with a or b. Sums are float32 throughout
     * @param beta factor of the old elements of c; if 0, they are not read and may have any value
     * @param stream where to enqueue; a stream of the device
     * @throws IllegalArgumentException if shapes, types or devices do not match, c shares an
     *     element with a or b, or memory of a GPU does not begin at a multiple of its elements'
     *     size
     * @throws IllegalStateException if this is closed, or a buffer is
     */
    void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream);

    /**
     * Enqueues {@code c = a b}.
     *
     * @param a m x k, float32 or bfloat16; on a GPU float16 too
     * @param b k x n, of the same types
     * @param c m x n, float32
     * @param stream where to enqueue
     * @see #multiply(Matrix, Matrix, Matrix, float, Stream)
     */
    default void multiply(Matrix a, Matrix b, Matrix c, Stream stream) {
        multiply(a, b, c, 0, stream);
    }

    /** Ends the threads, after the product in progress. Closing twice has no effect. */
    @Override
    void close();
}
