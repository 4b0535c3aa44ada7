package io.jccl.offload;

import io.jccl.error.JcclException;
import org.jspecify.annotations.Nullable;

/**
 * A tier has no room. Nothing was changed: the same call can be repeated once something is freed or
 * the budget is raised.
 */
public final class OffloadMemoryException extends JcclException {
    private static final long serialVersionUID = 1;

    /** Where room was requested. */
    private final Tier tier;

    /** Bytes requested. */
    private final long asked;

    /** Bytes free. */
    private final long free;

    /**
     * Creates the exception.
     *
     * @param tier where room was requested
     * @param asked bytes requested
     * @param free bytes that were free
     * @param message the purpose, and what to do; tier and bytes are put before it
     * @param cause the system's error; null if the budget was exceeded
     */
    public OffloadMemoryException(
            Tier tier, long asked, long free, String message, @Nullable Throwable cause) {
        super(
                "no room on tier %s: %s bytes asked for, %s free: %s"
                        .formatted(tier, asked, free, message),
                cause);
        this.tier = tier;
        this.asked = asked;
        this.free = free;
    }

    /**
     * Where room was requested.
     *
     * @return the tier
     */
    public Tier tier() {
        return tier;
    }

    /**
     * Bytes requested.
     *
     * @return bytes
     */
    public long asked() {
        return asked;
    }

    /**
     * Bytes that were free.
     *
     * @return bytes
     */
    public long free() {
        return free;
    }
}
