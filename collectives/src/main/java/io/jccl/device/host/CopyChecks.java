package io.jccl.device.host;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;

/** Checks of copies, for streams of all devices. */
public final class CopyChecks {
    private CopyChecks() {}

    /** Throws if the buffers of a copy differ in type or count. */
    public static void checkCopy(Buffer source, Buffer target) {
        if (source.dataType() != target.dataType() || source.count() != target.count()) {
            throw new IllegalArgumentException(
                    "source holds %s elements of %s, target %s of %s"
                            .formatted(
                                    source.count(),
                                    source.dataType().label(),
                                    target.count(),
                                    target.dataType().label()));
        }
    }

    /** Whether memory overlaps; without an allocation for memory outside the Java heap. */
    public static boolean overlap(MemorySegment a, MemorySegment b) {
        if (a.isNative() && b.isNative()) {
            return a.address() < b.address() + b.byteSize()
                    && b.address() < a.address() + a.byteSize();
        }
        return a.asOverlappingSlice(b).isPresent();
    }

    /** The error of a copy between overlapping buffers. */
    public static IllegalArgumentException overlapping(Buffer source, Buffer target) {
        return new IllegalArgumentException(
                "source at 0x%s and target at 0x%s overlap"
                        .formatted(
                                Long.toHexString(source.address()),
                                Long.toHexString(target.address())));
    }
}
