package io.jccl;

import io.jccl.bindings.NcclConfig;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Settings of a communicator. All ranks pass the same values.
 *
 * {@snippet class="snippets.Collectives" region="options"}
 *
 * @param timeout how long a rank waits for the others in one operation, or on the default stream of
 *     the host for its own earlier ones to start, before it gives up with a {@link
 *     CollectiveTimeoutException}; default 10 minutes
 * @param algorithm the algorithm to use for operations that it supports; default {@link
 *     Algorithm#AUTO}. Only used by the host engine
 * @param nccl NCCL's configuration of the communicator; default: empty, that is, blocking. With
 *     {@code BLOCKING} 0, NCCL starts a thread for every operation, and an argument that it refuses
 *     makes the communicator unusable: nothing here needs that
 * @param steering settings of NCCL derived from a plan; null for none
 * @param binding which CPUs the ranks run on; null for the value of {@link CpuBinding#VARIABLE
 *     JCCL_BIND}, or {@link CpuBinding#NONE} if that is not set. Only used by the host engine
 */
public record CommunicatorOptions(
        Duration timeout,
        Algorithm algorithm,
        NcclConfig nccl,
        @Nullable NcclSteering steering,
        @Nullable CpuBinding binding) {
    /** Ten minutes, {@link Algorithm#AUTO}, NCCL's defaults. */
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
     * @param algorithm the algorithm to use for operations that it supports
     * @param nccl NCCL's configuration of the communicator
     */
    public CommunicatorOptions(Duration timeout, Algorithm algorithm, NcclConfig nccl) {
        this(timeout, algorithm, nccl, null);
    }

    /**
     * Settings without a binding.
     *
     * @param timeout how long a rank waits for the others
     * @param algorithm the algorithm to use for operations that it supports
     * @param nccl NCCL's configuration of the communicator
     * @param steering settings of NCCL derived from a plan; null for none
     */
    public CommunicatorOptions(
            Duration timeout,
            Algorithm algorithm,
            NcclConfig nccl,
            @Nullable NcclSteering steering) {
        this(timeout, algorithm, nccl, steering, null);
    }

    /**
     * Settings with NCCL's default configuration.
     *
     * @param timeout how long a rank waits for the others
     * @param algorithm the algorithm to use for operations that it supports
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
     * @param algorithm the algorithm to use for operations that it supports
     * @return new settings
     */
    public CommunicatorOptions withAlgorithm(Algorithm algorithm) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with another configuration of NCCL.
     *
     * @param nccl any fields of {@code ncclConfig_t}
     * @return new settings
     */
    public CommunicatorOptions withNccl(NcclConfig nccl) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with a plan that steers NCCL. Ranks keep their numbers. The host engine
     * ignores it.
     *
     * @param steering settings of NCCL derived from a plan; null for none
     * @return new settings
     */
    public CommunicatorOptions withSteering(@Nullable NcclSteering steering) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }

    /**
     * These settings with a binding of ranks to CPUs.
     *
     * @param binding which CPUs the ranks run on; null for the value of {@code JCCL_BIND}
     * @return new settings
     */
    public CommunicatorOptions withBinding(@Nullable CpuBinding binding) {
        return new CommunicatorOptions(timeout, algorithm, nccl, steering, binding);
    }
}
