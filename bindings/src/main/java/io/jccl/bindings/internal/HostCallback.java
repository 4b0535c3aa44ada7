package io.jccl.bindings.internal;

import io.jccl.bindings.generated.cudart.cudaHostFn_t;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.function.LongConsumer;

/** Creates functions that native code can call, of the form {@code void f(void* data)}. */
public final class HostCallback {
    private HostCallback() {}

    /**
     * Creates a native function. It lives as long as the process.
     *
     * @param function receives the address that the caller passes; runs on native threads; must not
     *     throw, since that would end the process
     * @return the function's address, for {@link io.jccl.bindings.CudaApi#cudaLaunchHostFunc}
     */
    public static MemorySegment create(LongConsumer function) {
        return cudaHostFn_t.allocate(data -> function.accept(data.address()), Arena.global());
    }
}
