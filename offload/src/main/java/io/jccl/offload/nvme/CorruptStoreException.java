package io.jccl.offload.nvme;

import io.jccl.error.JcclException;
import java.nio.file.Path;

/**
 * The content of a store's file is not what was written to it: it was torn, truncated, changed, or
 * belongs to something else. The operation changed nothing.
 */
public final class CorruptStoreException extends JcclException {
    private static final long serialVersionUID = 1;

    /** The file. */
    private final String file;

    /** Position in it. */
    private final long offset;

    CorruptStoreException(
            Path file, long offset, String what, String expected, String found, String remedy) {
        super(
                "%s, at byte %s: %s: expected %s, found %s; %s"
                        .formatted(file, offset, what, expected, found, remedy));
        this.file = file.toString();
        this.offset = offset;
    }

    /**
     * The file.
     *
     * @return its path
     */
    public String file() {
        return file;
    }

    /**
     * The position in the file.
     *
     * @return the first wrong byte
     */
    public long offset() {
        return offset;
    }
}
