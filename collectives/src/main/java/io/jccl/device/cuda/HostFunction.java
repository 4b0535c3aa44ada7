package io.jccl.device.cuda;

import io.jccl.bindings.HostCallback;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Java code in a CUDA stream. CUDA calls a single native function, whose argument is the number of
 * the code in a table of this class. No exception may reach CUDA: it is stored in the stream.
 */
final class HostFunction {
    private record Entry(CudaStream stream, Runnable code, @Nullable Capture capture) {}

    private static final ConcurrentMap<Long, Entry> WAITING = new ConcurrentHashMap<>();
    private static final AtomicLong NUMBER = new AtomicLong();
    private static final MemorySegment NATIVE = HostCallback.create(HostFunction::run);

    private HostFunction() {}

    static void launch(CudaStream stream, Runnable code) {
        long number = NUMBER.incrementAndGet();
        // A graph runs its functions at every launch, so they are kept until it is closed.
        Capture capture = stream.capture();
        WAITING.put(number, new Entry(stream, code, capture));
        boolean launched = false;
        try {
            CudaRuntime.check(
                    stream.call(() ->
                            CudaRuntime.api().cudaLaunchHostFunc(stream.handle(), NATIVE, number)),
                    "cudaLaunchHostFunc");
            launched = true;
        } finally {
            if (!launched) {
                WAITING.remove(number);
            } else if (capture != null) {
                capture.add(number);
            }
        }
    }

    /** Removes a function that a graph used. */
    static void forget(long number) {
        WAITING.remove(number);
    }

    private static void run(long number) {
        Entry entry = WAITING.get(number);
        if (entry == null) {
            return;
        }
        Capture capture = entry.capture;
        if (capture == null) {
            WAITING.remove(number);
        }
        Throwable error = null;
        try {
            entry.code.run();
        } catch (Throwable t) {
            error = t;
        }
        if (capture != null) {
            capture.ran(error);
        } else if (error != null) {
            entry.stream.failed(error);
        }
    }
}
