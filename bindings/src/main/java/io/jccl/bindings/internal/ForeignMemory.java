package io.jccl.bindings.internal;

import java.lang.foreign.MemorySegment;

/**
 * Memory allocated by other code, known only by its address.
 *
 * <p><b>Threads:</b> any.
 */
public final class ForeignMemory {
    private ForeignMemory() {}

    /**
     * Views bytes at an address. This is a restricted operation: the address cannot be checked.
     *
     * @param address of the first byte
     * @param bytes number of bytes
     * @return a segment that is accessible to all threads and never freed
     */
    public static MemorySegment at(long address, long bytes) {
        return MemorySegment.ofAddress(address).reinterpret(bytes);
    }
}
