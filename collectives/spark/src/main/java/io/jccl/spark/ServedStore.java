package io.jccl.spark;

import io.jccl.error.JcclException;
import io.jccl.rendezvous.Store;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServer;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HexFormat;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** The store of the ranks of one communicator over NCCL, served by rank 0's executor. */
final class ServedStore {
    private static final int SECRET_BYTES = 32;
    private static final String LEFT = "jccl-spark/left";

    /** How long rank 0 goes on serving for those that have not left when it has. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private static final long LOOK_NANOS = 20_000_000;

    private ServedStore() {}

    /** Rank 0's side: port and secret are {@link #announcement announced} to the others. */
    record Server(StoreServer server, String secret) {
        static Server open() {
            byte[] random = new byte[SECRET_BYTES];
            new SecureRandom().nextBytes(random);
            String secret = HexFormat.of().formatHex(random);
            return new Server(StoreServer.open(null, 0, StoreSecret.of(secret)), secret);
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
