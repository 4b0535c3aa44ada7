package io.jccl.spark;

import io.jccl.error.JcclException;
import io.jccl.rendezvous.Store;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServer;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** The store of the ranks of one communicator over NCCL, served by rank 0's executor. */
final class ServedStore {
    /**
     * Environment variable with the address to listen on, if it differs from the one that Spark
     * uses.
     */
    private static final String BIND = "JCCL_STORE_BIND";

    private static final String LEFT = "jccl-spark/left";

    /** How long rank 0 continues to serve the others after its own communicator is closed. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private static final long LOOK_NANOS = 20_000_000;

    private ServedStore() {}

    /** Rank 0's side: port and secret are {@link #announcement announced} to the others. */
    record Server(StoreServer server, String secret) {
        /**
         * Listens only on the address that Spark uses for the executor.
         *
         * @param host the name or address of this task's executor
         */
        static Server open(String host) {
            String bind = System.getenv().getOrDefault(BIND, host);
            String secret = StoreSecret.randomText();
            try {
                return new Server(StoreServer.open(bind, 0, StoreSecret.of(secret)), secret);
            } catch (JcclException e) {
                throw new JcclException(
                        ("%s; if other executors reach this one by it anyway (NAT), set"
                                        + " spark.executorEnv.%s to the address to listen on,"
                                        + " such as 0.0.0.0")
                                .formatted(e.getMessage(), BIND),
                        e);
            }
        }

        String announcement() {
            return server.port() + " " + secret;
        }
    }

    /** Connects to what rank 0 announced. */
    static Store connect(Seat first, Duration timeout) {
        String[] portAndSecret = first.store().split(" ", 2);
        String host = first.host();
        boolean bare = host.indexOf(':') >= 0 && !host.startsWith("[");
        String address = "tcp://" + (bare ? "[" + host + "]" : host) + ":" + portAndSecret[0];
        return Store.connect(address, StoreSecret.of(portAndSecret[1]), timeout);
    }

    /**
     * Closes a rank's store. Rank 0's store and server are closed when the others have left too, or
     * after a time limit. Runs on its own thread: if the server is gone, the store notices only
     * after a while.
     */
    static void leave(Store store, int size, @Nullable Server served) {
        Thread.ofPlatform()
                .daemon()
                .name("jccl-spark-leave")
                .start(() -> {
                    try (store) {
                        store.add(LEFT, 1);
                        long began = System.nanoTime();
                        while (served != null
                                && store.add(LEFT, 0) < size
                                && System.nanoTime() - began < PATIENCE.toNanos()) {
                            LockSupport.parkNanos(LOOK_NANOS);
                        }
                    } catch (JcclException e) {
                        // Rank 0's executor is gone, and with it everything that was to be closed.
                    } finally {
                        if (served != null) {
                            served.server().close();
                        }
                    }
                });
    }
}
