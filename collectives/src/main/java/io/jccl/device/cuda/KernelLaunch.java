package io.jccl.device.cuda;

import io.jccl.bindings.NativeLibraries;
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

    private final MemorySegment values;
    private final MemorySegment pointers;
    private @Nullable CudaKernel kernel;
    private int count;

    /** Whether the thread has a current context, which the runtime sets late. */
    private boolean bound;

    private KernelLaunch() {
        Arena arena = Arena.ofAuto();
        values = arena.allocate(MOST * 8L, 8);
        pointers = arena.allocate(MOST * 8L, 8);
        for (int i = 0; i < MOST; i++) {
            pointers.setAtIndex(ValueLayout.JAVA_LONG, i, values.address() + i * 8L);
        }
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
     * @param stream where to enqueue; if it is being captured, the launch becomes part of the graph
     * @param blocks number of blocks of {@link CudaKernel#BLOCK} threads, 1 or more
     * @throws io.jccl.bindings.CudaException with the kernel, its grid and CUDA's text
     */
    public void run(CudaStream stream, int blocks) {
        CudaKernel k = kernel;
        if (k == null) {
            throw new IllegalStateException("no launch was started");
        }
        kernel = null;
        if (!bound) {
            CudaDevice device = stream.cudaDevice();
            int previous = device.enter();
            device.bind();
            device.exit(previous);
            bound = true;
        }
        int result;
        if (stream.isNull()) {
            int previous = stream.cudaDevice().enter();
            try {
                result = launch(k, blocks, stream);
            } finally {
                stream.cudaDevice().exit(previous);
            }
        } else {
            // A kernel runs in the context of its stream, whatever device is current.
            result = launch(k, blocks, stream);
        }
        if (result != 0) {
            CudaRuntime.check(
                    result,
                    "cuLaunchKernel(kernel %s, %s blocks of %s threads, %s)"
                            .formatted(k.name(), blocks, CudaKernel.BLOCK, stream));
        }
    }

    private int launch(CudaKernel k, int blocks, CudaStream stream) {
        return NativeLibraries.cudaDriver()
                .cuLaunchKernel(
                        k.handle(),
                        blocks,
                        1,
                        1,
                        CudaKernel.BLOCK,
                        1,
                        1,
                        0,
                        stream.handle(),
                        pointers,
                        MemorySegment.NULL);
    }
}
