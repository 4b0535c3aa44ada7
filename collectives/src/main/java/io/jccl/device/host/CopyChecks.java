package io.jccl.device.host;

import io.jccl.device.Buffer;

/** What streams of all devices check before they copy. */
public final class CopyChecks {
    private CopyChecks() {}

    /** Refuses a copy between buffers that do not fit each other. */
    public static void checkCopy(Buffer source, Buffer target) {
        if (source.dataType() != target.dataType() || source.count() != target.count()) {
            throw new IllegalArgumentException(
                    "source holds "
                            + source.count()
                            + " elements of "
                            + source.dataType().label()
                            + ", target "
                            + target.count()
                            + " of "
                            + target.dataType().label());
        }
    }

    /** The error of a copy within the same memory. */
    public static IllegalArgumentException overlapping(Buffer source, Buffer target) {
        return new IllegalArgumentException(
                "source at 0x"
                        + Long.toHexString(source.address())
                        + " and target at 0x"
                        + Long.toHexString(target.address())
                        + " overlap");
    }
}
