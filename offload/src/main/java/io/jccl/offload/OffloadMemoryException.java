package io.jccl.offload;

import io.jccl.error.JcclException;
import org.jspecify.annotations.Nullable;

/**
 * A tier has no room. Nothing was changed: once something is freed, or the budget raised, the same
 * call can be made again.
 */
public final class OffloadMemoryException extends JcclException {
    private static final long serialVersionUID = 1;

    /** Where room was wanted. */
    private final Tier tier;

    /** Bytes asked for. */
    private final long asked;

    /** Bytes free. */
    private final long free;

    /**
     * Makes one.
     *
     * @param tier where room was wanted
     * @param asked bytes asked for
     * @param free bytes that were free
     * @param message who asked for what, and what to do; tier and bytes are put before it
     * @param cause what said so, if not the budget
     */
    public OffloadMemoryException(
            Tier tier, long asked, long free, String message, @Nullable Throwable cause) {
        super(
                "no room on tier "
                        + tier
                        + ": "
                        + asked
                        + " bytes asked for, "
                        + free
                        + " free: "
                        + message,
                cause);
        this.tier = tier;
        this.asked = asked;
        this.free = free;
    }

    /**
     * Where room was wanted.
     *
     * @return the tier
     */
    public Tier tier() {
        return tier;
    }

    /**
     * How much was wanted.
     *
     * @return bytes
     */
    public long asked() {
        return asked;
    }

    /**
     * How much there was.
     *
     * @return bytes
     */
    public long free() {
        return free;
    }
}
