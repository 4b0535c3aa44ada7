package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.device.Stream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What the tests of CUDA's side need to see past the API. */
public final class Gpus {
    private Gpus() {}

    /** The calling thread's current device. */
    public static int current() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment slot = arena.allocate(ValueLayout.JAVA_INT);
            CudaApi api = NativeLibraries.cuda();
            api.check(api.cudaGetDevice(slot), "cudaGetDevice");
            return slot.get(ValueLayout.JAVA_INT, 0);
        }
    }

    static void setCurrent(int device) {
        CudaApi api = NativeLibraries.cuda();
        api.check(api.cudaSetDevice(device), "cudaSetDevice");
    }

    /** Holds a stream up until it is opened. */
    public static final class Gate implements AutoCloseable {
        private final CountDownLatch latch = new CountDownLatch(1);

        public void holdUp(Stream stream) {
            stream.launchHostFunction(() -> {
                try {
                    if (!latch.await(30, TimeUnit.SECONDS)) {
                        throw new IllegalStateException("nobody opened the gate");
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
        }

        public void open() {
            latch.countDown();
        }

        @Override
        public void close() {
            open();
        }
    }
}
