package io.jccl.cuda;

import io.jccl.bindings.HostCallback;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Java code in a CUDA stream. CUDA knows one native function, made once; its argument is the number
 * under which the code waits here. No exception may cross into CUDA: it goes to the stream.
 */
final class HostFunction {
    private record Entry(CudaStream stream, Runnable code, boolean captured) {}

    private static final ConcurrentMap<Long, Entry> WAITING = new ConcurrentHashMap<>();
    private static final AtomicLong NUMBER = new AtomicLong();
    private static final MemorySegment NATIVE = HostCallback.create(HostFunction::run);

    private HostFunction() {}

    static void launch(CudaStream stream, Runnable code) {
        long number = NUMBER.incrementAndGet();
        // A graph runs its functions at every launch: they stay until it is closed.
        boolean captured = stream.isCapturing();
        WAITING.put(number, new Entry(stream, code, captured));
        boolean launched = false;
        try {
            CudaRuntime.check(
                    CudaRuntime.api().cudaLaunchHostFunc(stream.handle(), NATIVE, number),
                    "cudaLaunchHostFunc");
            launched = true;
        } finally {
            if (!launched) {
                WAITING.remove(number);
            } else if (captured) {
                stream.captured(number);
            }
        }
    }

    /** Forgets a function that a graph held. */
    static void forget(long number) {
        WAITING.remove(number);
    }

    private static void run(long number) {
        Entry entry = WAITING.get(number);
        if (entry == null) {
            return;
        }
        if (!entry.captured) {
            WAITING.remove(number);
        }
        try {
            entry.code.run();
        } catch (Throwable t) {
            entry.stream.failed(t);
        }
    }
}
