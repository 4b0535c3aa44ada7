package io.jccl.device.cuda;

import io.jccl.bindings.generated.cudart.cudaLaunchConfig_st;
import io.jccl.bindings.generated.cudart.dim3;
import io.jccl.device.Buffer;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/**
 * Arguments and configuration of a kernel launch, in memory that each thread reuses, so that a
 * launch allocates nothing. CUDA has copied the arguments when the call returns.
 *
 * <p><b>Threads:</b> only the one that started the launch.
 */
public final class KernelLaunch {
    private static final int MOST = 32;
    private static final ThreadLocal<KernelLaunch> OWN = ThreadLocal.withInitial(KernelLaunch::new);

    private static final long GRID = cudaLaunchConfig_st.gridDim$offset() + dim3.x$offset();
    private static final long STREAM = cudaLaunchConfig_st.stream$offset();

    private final MemorySegment config;
    private final MemorySegment values;
    private final MemorySegment pointers;
    private @Nullable CudaKernel kernel;
    private int count;

    private KernelLaunch() {
        Arena arena = Arena.ofAuto();
        config = arena.allocate(cudaLaunchConfig_st.layout());
        values = arena.allocate(MOST * 8L, 8);
        pointers = arena.allocate(MOST * 8L, 8);
        for (int i = 0; i < MOST; i++) {
            pointers.setAtIndex(ValueLayout.JAVA_LONG, i, values.address() + i * 8L);
        }
        dims(cudaLaunchConfig_st.gridDim$offset(), 1);
        dims(cudaLaunchConfig_st.blockDim$offset(), CudaKernel.BLOCK);
    }

    private void dims(long at, int x) {
        config.set(ValueLayout.JAVA_INT, at + dim3.x$offset(), x);
        config.set(ValueLayout.JAVA_INT, at + dim3.y$offset(), 1);
        config.set(ValueLayout.JAVA_INT, at + dim3.z$offset(), 1);
    }

    static KernelLaunch begin(CudaKernel kernel) {
        KernelLaunch l = OWN.get();
        l.kernel = kernel;
        l.count = 0;
        return l;
    }

    /** An integer of 64 bits. */
    public KernelLaunch put(long value) {
        values.set(ValueLayout.JAVA_LONG, count++ * 8L, value);
        return this;
    }

    /** An integer of 32 bits or fewer: little-endian, so that the lower ones are read. */
    public KernelLaunch put(int value) {
        values.set(ValueLayout.JAVA_INT, count++ * 8L, value);
        return this;
    }

    /** A float32. */
    public KernelLaunch put(float value) {
        values.set(ValueLayout.JAVA_FLOAT, count++ * 8L, value);
        return this;
    }

    /** A float64. */
    public KernelLaunch put(double value) {
        values.set(ValueLayout.JAVA_DOUBLE, count++ * 8L, value);
        return this;
    }

    /** The address of a buffer, null for none. */
    public KernelLaunch put(@Nullable Buffer buffer) {
        return put(buffer == null ? 0 : buffer.address());
    }

    /**
     * Enqueues the kernel.
     *
     * @param stream where; if it is being captured, the launch becomes part of the graph
     * @param blocks how many blocks of {@link CudaKernel#BLOCK} threads, 1 or more
     * @throws io.jccl.bindings.CudaException with the kernel, its grid and CUDA's text
     */
    public void run(CudaStream stream, int blocks) {
        CudaKernel k = kernel;
        if (k == null) {
            throw new IllegalStateException("no launch was started");
        }
        kernel = null;
        config.set(ValueLayout.JAVA_INT, GRID, blocks);
        config.set(ValueLayout.JAVA_LONG, STREAM, stream.handle());
        // A stream accepts kernels only while its device is current.
        CudaDevice device = stream.cudaDevice();
        int previous = device.enter();
        int result;
        try {
            result = CudaRuntime.api().cudaLaunchKernelExC(config, k.handle(), pointers);
        } finally {
            device.exit(previous);
        }
        if (result != 0) {
            CudaRuntime.check(
                    result,
                    "cudaLaunchKernelExC(kernel "
                            + k
                            + ", "
                            + blocks
                            + " blocks of "
                            + CudaKernel.BLOCK
                            + " threads, "
                            + stream
                            + ")");
        }
    }
}
