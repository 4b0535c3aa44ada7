package io.jccl;

import java.time.Duration;
import java.util.Objects;

/**
 * Settings of a communicator. All ranks pass the same ones.
 *
 * @param timeout how long a rank waits for the others in one operation before it gives up with a
 *     {@link CollectiveTimeoutException}; default 10 minutes
 * @param algorithm the algorithm to use wherever it serves the operation; default {@link
 *     Algorithm#AUTO}
 */
public record CommunicatorOptions(Duration timeout, Algorithm algorithm) {
    /** Ten minutes, {@link Algorithm#AUTO}. */
    public static final CommunicatorOptions DEFAULT =
            new CommunicatorOptions(Duration.ofMinutes(10), Algorithm.AUTO);

    /** Checks the settings. */
    public CommunicatorOptions {
        Objects.requireNonNull(algorithm, "algorithm");
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("timeout is " + timeout + ", expected more than 0");
        }
    }

    /**
     * These settings with another timeout.
     *
     * @param timeout how long to wait
     * @return new settings
     */
    public CommunicatorOptions withTimeout(Duration timeout) {
        return new CommunicatorOptions(timeout, algorithm);
    }

    /**
     * These settings with another algorithm.
     *
     * @param algorithm what to use wherever it serves
     * @return new settings
     */
    public CommunicatorOptions withAlgorithm(Algorithm algorithm) {
        return new CommunicatorOptions(timeout, algorithm);
    }
}
