package io.jccl.offload;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * Finds uses of a pool's memory after it was given back: all free memory is filled with one byte,
 * and compared with it before it is handed out again. Every bit is set, so that floating-point
 * elements of each type read as NaN, and integers as -1 or their largest value.
 *
 * <p><b>Threads:</b> the pool's lock guards it.
 */
final class Poison {
    private static final byte BYTE = -1;

    /** A block that was given back, and how it was taken. */
    private record Given(long end, long asked, @Nullable Throwable taken, Throwable back) {}

    private final Tier tier;

    /** The last owner of free memory, by its first address; newer ones hide what they overlap. */
    private final TreeMap<Long, Given> given = new TreeMap<>();

    Poison(Tier tier) {
        this.tier = tier;
    }

    void fill(MemorySegment free) {
        free.fill(BYTE);
    }

    void give(MemorySegment block, long asked, @Nullable Throwable taken) {
        fill(block);
        forget(block);
        given.put(
                block.address(),
                new Given(
                        block.address() + block.byteSize(),
                        asked,
                        taken,
                        new Throwable(asked + " bytes of tier " + tier + " given back")));
    }

    /** Memory that goes back to the system, or gets another owner. */
    void forget(MemorySegment memory) {
        given.subMap(memory.address(), memory.address() + memory.byteSize()).clear();
    }

    /**
     * Compares free memory with the pattern, which is there again afterwards.
     *
     * @throws IllegalStateException if it was written to, with the stack that took the memory as
     *     cause and the one that gave it back suppressed
     */
    void check(MemorySegment free) {
        long at = damage(free);
        if (at < 0) {
            return;
        }
        byte found = free.get(ValueLayout.JAVA_BYTE, at);
        fill(free);
        long address = free.address() + at;
        Map.Entry<Long, Given> owner = given.floorEntry(address);
        while (owner != null && owner.getValue().end <= address) {
            owner = given.lowerEntry(owner.getKey());
        }
        String what = " is 0x%02x, expected 0x%02x".formatted(found, BYTE);
        if (owner == null) {
            throw new IllegalStateException(
                    "free memory of tier %s was written to, which the pool had never handed out: "
                                    .formatted(tier)
                            + "the byte at 0x%x%s".formatted(address, what));
        }
        Given buffer = owner.getValue();
        IllegalStateException e =
                new IllegalStateException(
                        "a buffer of tier %s, %s bytes at 0x%x, was written to after it was given back: byte %s%s; the cause shows who took it, the suppressed stack who gave it back. Use no segment of it after that"
                                .formatted(
                                        tier,
                                        buffer.asked,
                                        owner.getKey(),
                                        address - owner.getKey(),
                                        what),
                        buffer.taken);
        e.addSuppressed(buffer.back);
        throw e;
    }

    /** The first byte that differs, or -1. */
    private static long damage(MemorySegment free) {
        if (free.get(ValueLayout.JAVA_BYTE, 0) != BYTE) {
            return 0;
        }
        // Each byte against its neighbour: no second segment of that size is needed.
        long size = free.byteSize();
        long last = MemorySegment.mismatch(free, 0, size - 1, free, 1, size);
        return last < 0 ? -1 : last + 1;
    }
}
