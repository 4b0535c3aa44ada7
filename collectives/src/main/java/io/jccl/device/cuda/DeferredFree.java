package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.internal.Waits;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Calls that free memory of a device, or what has memory there, made on a thread of their own.
 *
 * <p>CUDA waits in them for all work of the device, and so for a collective that waits for the rank
 * that closes its memory: one of its own that others have not joined yet, or that of another rank
 * of this process, on the same device or on the one that was current when pinned memory was
 * allocated, often the first of the process. A rank that closes memory before it joins them, as it
 * does after an error, would wait for ranks that wait for it. So it waits for a limited time; the
 * memory is free once the work is done.
 *
 * <p><b>Threads:</b> any.
 */
public final class DeferredFree {
    /** Above what work in flight takes, so that closed memory nearly always is free memory. */
    static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(5);

    private static final System.Logger LOG = System.getLogger("io.jccl");

    /** By device, since a rank's wait for its device must not hold up ranks on others. */
    private static final Map<Integer, DeferredFree> ALL = new ConcurrentHashMap<>();

    private final int device;
    private final ThreadPoolExecutor thread;

    /** Closed while calls wait for work in flight: those that follow are not waited for. */
    private volatile CountDownLatch late = new CountDownLatch(0);

    private DeferredFree(int device) {
        this.device = device;
        this.thread =
                new ThreadPoolExecutor(
                        1,
                        1,
                        10,
                        TimeUnit.SECONDS,
                        new LinkedBlockingQueue<>(),
                        Thread.ofPlatform().daemon().name("jccl-free-" + device).factory());
        thread.allowCoreThreadTimeOut(true);
    }

    /** The calling thread's current device. */
    static int currentDevice() {
        CudaRuntime.check(CudaRuntime.api().cudaGetDevice(CudaRuntime.slot()), "cudaGetDevice");
        return CudaRuntime.readInt(CudaRuntime.slot());
    }

    /**
     * Makes a call, after those before for the device.
     *
     * @param device one with a context, since a thread without one would create one on device 0
     * @param free the call; what it throws is thrown here, or logged if nobody waits any more
     */
    public static void call(int device, Runnable free) {
        ALL.computeIfAbsent(device, DeferredFree::new).make(free);
    }

    private void make(Runnable free) {
        CountDownLatch ended = new CountDownLatch(1);
        CompletableFuture<Void> done =
                CompletableFuture.runAsync(
                                () -> {
                                    CudaApi api = CudaRuntime.api();
                                    CudaRuntime.check(api.cudaSetDevice(device), "cudaSetDevice");
                                    CudaRuntime.exchangeCaptureMode(
                                            cudart_h.cudaStreamCaptureModeRelaxed());
                                    free.run();
                                },
                                thread)
                        .whenComplete((nothing, error) -> ended.countDown());
        if (late.getCount() > 0 || !Waits.await(ended, PATIENCE_NANOS)) {
            late = ended;
            var unused =
                    done.whenComplete((nothing, error) -> {
                        if (error != null) {
                            LOG.log(System.Logger.Level.WARNING, "memory was not freed", error);
                        }
                    });
            return;
        }
        CudaDevice.join(done);
    }
}
