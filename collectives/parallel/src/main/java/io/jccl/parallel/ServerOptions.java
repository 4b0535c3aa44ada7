package io.jccl.parallel;

import java.time.Duration;
import java.util.Objects;

/**
 * Settings of a {@link ParameterServer}. All ranks pass the same ones; only servers use the update.
 *
 * @param servers how many ranks are servers, the last ones; the others are workers
 * @param consistency how far workers may run apart
 * @param update what servers do with gradients
 * @param timeout how long a server lets a worker wait for slower ones before it gives up; the
 *     communicator's own timeout counts as well, and also for the time between two calls of a
 *     worker
 */
public record ServerOptions(int servers, Consistency consistency, Update update, Duration timeout) {
    /** How far workers may run apart. */
    public sealed interface Consistency {
        /**
         * All in step: the update is made once for all workers, with the mean of their gradients,
         * and a pull waits for it.
         */
        record Synchronous() implements Consistency {}

        /**
         * Stale synchronous parallel (Ho et al., <a
         * href="https://papers.nips.cc/paper/4894-more-effective-distributed-ml-via-a-stale-synchronous-parallel-parameter-server">
         * NIPS 2013</a>): each gradient makes an update of its own when it comes, and a worker that
         * has pushed <i>c</i> times waits in its pull until every worker has pushed <i>c -
         * bound</i> times.
         *
         * @param bound how many steps the fastest worker may be ahead of the slowest; 0 or more
         */
        record BoundedStaleness(int bound) implements Consistency {
            /** Checks the bound. */
            public BoundedStaleness {
                if (bound < 0) {
                    throw new IllegalArgumentException(
                            "the bound is " + bound + ", expected 0 or more");
                }
            }
        }
    }

    /**
     * One server in step with all workers, updating by plain gradient descent.
     *
     * @param rate by which the mean gradient is multiplied before it is subtracted
     * @return settings with a timeout of ten minutes
     */
    public static ServerOptions synchronous(float rate) {
        return new ServerOptions(
                1, new Consistency.Synchronous(), Update.sgd(rate), Duration.ofMinutes(10));
    }

    /** Checks the settings; the number of ranks is checked when the server is made. */
    public ServerOptions {
        Objects.requireNonNull(consistency, "consistency");
        Objects.requireNonNull(update, "update");
        if (servers < 1) {
            throw new IllegalArgumentException("servers is " + servers + ", expected 1 or more");
        }
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("timeout is " + timeout + ", expected more than 0");
        }
    }

    /**
     * These settings with another number of servers.
     *
     * @param number how many
     * @return new settings
     */
    public ServerOptions withServers(int number) {
        return new ServerOptions(number, consistency, update, timeout);
    }

    /**
     * These settings with another consistency.
     *
     * @param other how far workers may run apart
     * @return new settings
     */
    public ServerOptions withConsistency(Consistency other) {
        return new ServerOptions(servers, other, update, timeout);
    }

    /**
     * These settings with another update.
     *
     * @param other what servers do with gradients
     * @return new settings
     */
    public ServerOptions withUpdate(Update other) {
        return new ServerOptions(servers, consistency, other, timeout);
    }

    /**
     * These settings with another timeout.
     *
     * @param other how long to wait for slower workers
     * @return new settings
     */
    public ServerOptions withTimeout(Duration other) {
        return new ServerOptions(servers, consistency, update, other);
    }
}
