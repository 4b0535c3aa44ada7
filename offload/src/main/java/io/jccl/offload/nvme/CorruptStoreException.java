package io.jccl.offload.nvme;

import io.jccl.error.JcclException;
import java.nio.file.Path;

/**
 * A file of a store does not hold what was written to it: it was torn, cut short, changed, or
 * belongs to something else. Nothing was changed.
 */
public final class CorruptStoreException extends JcclException {
    private static final long serialVersionUID = 1;

    /** The file. */
    private final String file;

    /** Where in it. */
    private final long offset;

    CorruptStoreException(
            Path file, long offset, String what, String expected, String found, String remedy) {
        super(
                file
                        + ", at byte "
                        + offset
                        + ": "
                        + what
                        + ": expected "
                        + expected
                        + ", found "
                        + found
                        + "; "
                        + remedy);
        this.file = file.toString();
        this.offset = offset;
    }

    /**
     * Which file.
     *
     * @return its path
     */
    public String file() {
        return file;
    }

    /**
     * Where in the file.
     *
     * @return first byte of what is wrong
     */
    public long offset() {
        return offset;
    }
}
