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
    /** Names the address to listen on, where it is not the one that Spark knows. */
    private static final String BIND = "JCCL_STORE_BIND";

    private static final String LEFT = "jccl-spark/left";

    /** How long rank 0 goes on serving for those that have not left when it has. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private static final long LOOK_NANOS = 20_000_000;

    private ServedStore() {}

    /** Rank 0's side: port and secret are {@link #announcement announced} to the others. */
    record Server(StoreServer server, String secret) {
        /**
         * Listens on the address by which Spark knows the executor, and on no other.
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
                        e.getMessage()
                                + "; if other executors reach this one by it anyway (NAT), set"
                                + " spark.executorEnv."
                                + BIND
                                + " to the address to listen on, such as 0.0.0.0",
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
     * Closes a rank's store; that of rank 0 and its server when the others have left too, or some
     * time later if they do not. On a thread of its own: the server may be gone, which takes the
     * store a while to believe.
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
                        // Rank 0's executor is gone, and with it all that was to be closed.
                    } finally {
                        if (served != null) {
                            served.server().close();
                        }
                    }
                });
    }
}
