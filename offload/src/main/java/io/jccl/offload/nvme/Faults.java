package io.jccl.offload.nvme;

import java.io.IOException;
import org.jspecify.annotations.Nullable;

/** Meaning of the operating system's errors. */
final class Faults {
    private Faults() {}

    /** Whether there was no space. The texts are those of strerror for ENOSPC and EDQUOT. */
    static boolean isFull(@Nullable Throwable error) {
        for (Throwable e = error; e != null; e = e.getCause()) {
            String text = e instanceof IOException ? e.getMessage() : null;
            if (text != null
                    && (text.contains("No space left on device")
                            || text.contains("Disk quota exceeded"))) {
                return true;
            }
        }
        return false;
    }
}
