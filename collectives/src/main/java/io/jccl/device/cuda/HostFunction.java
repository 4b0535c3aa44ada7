package io.jccl.device.cuda;

import io.jccl.bindings.internal.HostCallback;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Java code in a CUDA stream. CUDA calls a single native function, whose argument is the number of
 * the code in a table of this class. No exception may reach CUDA: it is stored in the stream.
 *
 * <p>Entries of the table are reused, so that a launch creates no object. A number holds the
 * entry's index and how often it was used before: a number that was returned finds nothing.
 */
final class HostFunction {
    private static final class Entry {
        final int index;
        int uses;
        @Nullable CudaStream stream;
        @Nullable Runnable code;
        @Nullable Capture capture;

        /** Whether it stays in the table for good. */
        boolean kept;

        /** The next free entry, while this one is free. */
        @Nullable Entry next;

        Entry(int index) {
            this.index = index;
        }

        long number() {
            return (long) uses << Integer.SIZE | index;
        }
    }

    private static final int LEAST = 16;
    private static final MemorySegment NATIVE = HostCallback.create(HostFunction::run);

    /** Guards all below. */
    private static final Object LOCK = new Object();

    /** Entries at their indices. */
    private static Entry[] table = {};

    private static @Nullable Entry free;

    private HostFunction() {}

    static void launch(CudaStream stream, Runnable code) {
        // A graph runs its functions at every launch, so they are kept until it is closed; one of
        // another library, whose end JCCL does not see, for good.
        Capture capture = stream.capture();
        long number = keep(stream, code, capture, capture == null && stream.isRecorded());
        boolean launched = false;
        try {
            CudaRuntime.check(
                    stream.call(
                            (s, n) -> CudaRuntime.api().cudaLaunchHostFunc(s, NATIVE, n), number),
                    "cudaLaunchHostFunc");
            launched = true;
        } finally {
            if (!launched) {
                forget(number);
            } else if (capture != null) {
                capture.add(number);
            }
        }
    }

    private static long keep(
            CudaStream stream, Runnable code, @Nullable Capture capture, boolean always) {
        synchronized (LOCK) {
            if (free == null) {
                grow();
            }
            Entry e = Objects.requireNonNull(free);
            free = e.next;
            e.next = null;
            e.uses++;
            e.stream = stream;
            e.code = code;
            e.capture = capture;
            e.kept = always;
            return e.number();
        }
    }

    private static void grow() {
        int before = table.length;
        table = Arrays.copyOf(table, Math.max(LEAST, 2 * before));
        for (int i = table.length - 1; i >= before; i--) {
            table[i] = new Entry(i);
            release(table[i]);
        }
    }

    /** The entry of a number; null if it was returned. */
    private static @Nullable Entry find(long number) {
        int index = (int) number;
        if (index < 0 || index >= table.length) {
            return null;
        }
        Entry e = table[index];
        return e.code != null && e.number() == number ? e : null;
    }

    /** Removes a function that was not launched, or that a graph used. */
    static void forget(long number) {
        synchronized (LOCK) {
            Entry e = find(number);
            if (e != null) {
                release(e);
            }
        }
    }

    private static void release(Entry e) {
        e.stream = null;
        e.code = null;
        e.capture = null;
        e.kept = false;
        e.next = free;
        free = e;
    }

    private static void run(long number) {
        CudaStream stream;
        Runnable code;
        Capture capture;
        synchronized (LOCK) {
            Entry e = find(number);
            if (e == null) {
                return;
            }
            stream = e.stream;
            code = e.code;
            capture = e.capture;
            if (capture == null && !e.kept) {
                release(e);
            }
        }
        if (stream == null || code == null) {
            return;
        }
        Throwable error = null;
        try {
            code.run();
        } catch (Throwable t) {
            error = t;
        }
        if (capture != null) {
            capture.ran(error);
        } else if (error != null) {
            stream.failed(error);
        }
    }
}
