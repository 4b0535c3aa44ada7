package io.jccl.parallel;

import io.jccl.compute.Compute;
import io.jccl.device.Device;
import java.time.Duration;
import java.util.Objects;

/**
 * Settings of a {@link ParameterServer}. All ranks pass the same values; only servers use the
 * update.
 *
 * @param servers number of servers, which are the last ranks; the others are workers
 * @param consistency how far workers may drift apart
 * @param update how servers apply gradients
 * @param timeout how long a worker may wait for slower ones before its server fails; the
 *     communicator's timeout also applies, including to the time between two calls of a worker
 * @param device where servers keep parameters and add up gradients, and where the update gets its
 *     buffers: the host or a GPU of the server's process
 */
public record ServerOptions(
        int servers, Consistency consistency, Update update, Duration timeout, Device device) {
    /** How far workers may drift apart. */
    public sealed interface Consistency {
        /**
         * Lock-step: each update applies the mean gradient of all workers, and a pull waits for it.
         */
        record Synchronous() implements Consistency {}

        /**
         * Stale synchronous parallel (Ho et al., <a
         * href="https://papers.nips.cc/paper/4894-more-effective-distributed-ml-via-a-stale-synchronous-parallel-parameter-server">
         * NIPS 2013</a>): each gradient is applied separately when it arrives, and a worker that
         * has pushed <i>c</i> times waits in its pull until every worker has pushed <i>c -
         * bound</i> times.
         *
         * @param bound maximum number of steps that the fastest worker may be ahead of the slowest,
         *     0 or more
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
     * One server, synchronous, with plain gradient descent.
     *
     * @param rate learning rate
     * @return settings with a timeout of ten minutes
     */
    public static ServerOptions synchronous(float rate) {
        return new ServerOptions(
                1,
                new Consistency.Synchronous(),
                Update.sgd(rate),
                Duration.ofMinutes(10),
                Device.host());
    }

    /** Checks the settings; the number of ranks is checked when the server is created. */
    public ServerOptions {
        Objects.requireNonNull(consistency, "consistency");
        Objects.requireNonNull(update, "update");
        Objects.requireNonNull(device, "device");
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
     * @param number number of servers
     * @return new settings
     */
    public ServerOptions withServers(int number) {
        return new ServerOptions(number, consistency, update, timeout, device);
    }

    /**
     * These settings with another consistency model.
     *
     * @param other how far workers may drift apart
     * @return new settings
     */
    public ServerOptions withConsistency(Consistency other) {
        return new ServerOptions(servers, other, update, timeout, device);
    }

    /**
     * These settings with another update.
     *
     * @param other how servers apply gradients
     * @return new settings
     */
    public ServerOptions withUpdate(Update other) {
        return new ServerOptions(servers, consistency, other, timeout, device);
    }

    /**
     * These settings with another timeout.
     *
     * @param other how long to wait for slower workers
     * @return new settings
     */
    public ServerOptions withTimeout(Duration other) {
        return new ServerOptions(servers, consistency, update, other, device);
    }

    /**
     * These settings with servers that compute on another device. Only servers use it, so each may
     * pass a different one.
     *
     * @param other the host or a GPU; the update is then {@link Update#sgd(float, Compute)} or a
     *     custom one that enqueues its work on the GPU's default stream
     * @return new settings
     */
    public ServerOptions withDevice(Device other) {
        return new ServerOptions(servers, consistency, update, timeout, other);
    }
}
