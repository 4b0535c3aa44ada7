package io.jccl;

import io.jccl.bindings.NcclConfig;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Settings of a communicator. All ranks pass the same ones.
 *
 * @param timeout how long a rank waits for the others in one operation before it gives up with a
 *     {@link CollectiveTimeoutException}; default 10 minutes
 * @param algorithm the algorithm to use wherever it serves the operation; default {@link
 *     Algorithm#AUTO}. Only the host engine follows it
 * @param nccl what NCCL is told when it makes the communicator; default nothing. With {@code
 *     BLOCKING} 0, NCCL starts a thread for every operation, and an argument that it refuses ends
 *     the communicator: nothing here needs that
 * @param steering what a plan tells NCCL; null for nothing
 * @param binding which CPUs the ranks run on; null for what {@link CpuBinding#VARIABLE JCCL_BIND}
 *     says, or else {@link CpuBinding#NONE}. Only the host engine follows it
 */
public record CommunicatorOptions(
        Duration timeout,
        Algorithm algorithm,
        NcclConfig nccl,
        @Nullable NcclSteering steering,
        @Nullable CpuBinding binding) {
    /** Ten minutes, {@link Algorithm#AUTO}, NCCL's own settings. */
    public static final CommunicatorOptions DEFAULT =
            new CommunicatorOptions(Duration.ofMinutes(10), Algorithm.AUTO, new NcclConfig());

    /** Checks the settings. */
    public CommunicatorOptions {
        Objects.requireNonNull(algorithm, "algorithm");
        Objects.requireNonNull(nccl, "nccl");
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("timeout is " + timeout + ", expected more than 0");
        }
    }

    /**
     * Settings without steering.
     *
     * @param timeout how long a rank waits for the others
     * @param algorithm the algorithm to use wherever it serves
     * @param nccl what NCCL is told when it makes the communicator
     */
    public CommunicatorOptions(Duration timeout, Algorithm algorithm, NcclConfig nccl) {
        this(timeout, algorithm, nccl, null);
    }

    /**
     * Settings without a binding.
     *
     * @param timeout how long a rank waits for the others
     * @param algorithm the algorithm to use wherever it serves
     * @param nccl what NCCL is told when it makes the communicator
     * @param steering what a plan tells NCCL; null for nothing
     */
    public CommunicatorOptions(
            Duration timeout,
            Algorithm algorithm,
            NcclConfig nccl,
            @Nullable NcclSteering steering) {
        this(timeout, algorithm, nccl, steering, null);
    }

    /**
     * Settings with NCCL's own.
     *
     * @param timeout how long a rank waits for the others
     * @param algorithm the algorithm to use wherever it serves
     */
    public CommunicatorOptions(Duration timeout, Algorithm algorithm) {
        this(timeout, algorithm, new NcclConfig());
    }

    /**
     * These settings with another timeout.
     *
     * @param timeout how long to wait
     * @return new settings
     */
    public CommunicatorOptions withTimeout(Duration timeout) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with another algorithm.
     *
     * @param algorithm what to use wherever it serves
     * @return new settings
     */
    public CommunicatorOptions withAlgorithm(Algorithm algorithm) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with other ones for NCCL.
     *
     * @param nccl any fields of {@code ncclConfig_t}
     * @return new settings
     */
    public CommunicatorOptions withNccl(NcclConfig nccl) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with a steering of NCCL. Ranks keep their numbering. The host engine ignores
     * it.
     *
     * @param steering what a plan tells NCCL; null for nothing
     * @return new settings
     */
    public CommunicatorOptions withSteering(@Nullable NcclSteering steering) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with a binding of ranks to CPUs.
     *
     * @param binding which CPUs the ranks run on; null for what {@code JCCL_BIND} says
     * @return new settings
     */
    public CommunicatorOptions withBinding(@Nullable CpuBinding binding) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }
}
