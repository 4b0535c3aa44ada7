package io.jccl.rendezvous;

import io.jccl.error.JcclTimeoutException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A few small values that all ranks of a run can see: by it they exchange the id of a communicator,
 * and who failed. A value is at most a megabyte, a key at most 200 characters.
 *
 * {@snippet class="snippets.Collectives" region="store"}
 *
 * <p><b>Threads:</b> any.
 */
public interface Store extends AutoCloseable {
    /** The most bytes of a value. */
    int MAX_VALUE_BYTES = 1 << 20;

    /**
     * A store for ranks that are threads of this JVM.
     *
     * @return an empty store
     */
    static Store inMemory() {
        return new MemoryStore();
    }

    /**
     * A store for processes that see one folder, on this machine or by a shared file system.
     *
     * @param folder is made if it is not there; one folder for one run
     * @return the store; closing it leaves the folder
     */
    static Store folder(Path folder) {
        return new FolderStore(folder);
    }

    /**
     * A store that a {@link StoreServer} serves. Values go over the network as they are; only who
     * knows the secret can read or set them. If the connection is lost the store makes another and
     * goes on where it was; after 30 seconds without one, or three if the server's machine says
     * that nobody listens there, all its methods throw.
     *
     * @param address {@code tcp://host:port}; an IPv6 address in brackets. Of several addresses of
     *     a name the first that answers is used
     * @param secret the server's
     * @param timeout how long to wait for the server, which may be started later
     * @return the store; close it to leave
     * @throws JcclTimeoutException if no server is found in time
     * @throws IllegalArgumentException if the address cannot be one
     * @throws io.jccl.error.JcclException if the server has another secret, or is no store
     */
    static Store connect(String address, StoreSecret secret, Duration timeout) {
        return TcpStore.connect(TcpAddress.parse("address", address), secret, timeout);
    }

    /**
     * The store that the variables of this process name, the same for all ranks:
     *
     * <ul>
     *   <li>{@code JCCL_STORE=tcp://host:port}: that address. Rank 0 serves there if it is an
     *       address of its machine and nobody listens there yet; otherwise somebody has to, such as
     *       {@code jccl store}.
     *   <li>{@code JCCL_STORE=file:/folder}: files in a folder that all ranks see, a new one for
     *       each run.
     *   <li>{@code MASTER_ADDR} and {@code MASTER_PORT}: rank 0 serves there, which has to be an
     *       address of its machine.
     * </ul>
     *
     * <p>Where others reach rank 0 by an address that is not its own, {@code JCCL_STORE_BIND} names
     * the one that it listens on.
     *
     * <p>The secret is that of {@link StoreSecret#fromEnvironment}. Closing the store on the rank
     * that serves it waits up to five seconds for the others to close theirs.
     *
     * @param timeout how long to wait for the server
     * @return the store; one of this JVM's own if this is the only rank and nothing is set
     * @throws IllegalArgumentException if variables contradict each other, or none says where
     * @throws JcclTimeoutException if no server is found in time
     * @throws io.jccl.error.JcclException if it cannot be served or has another secret
     */
    static Store fromEnvironment(Duration timeout) {
        Map<String, String> env = System.getenv();
        return LaunchEnvironment.of(env).openStore(env, timeout);
    }

    /**
     * Sets a value; a later one replaces it.
     *
     * @param key its name
     * @param value its bytes
     */
    void set(String key, byte[] value);

    /**
     * A value as it is now.
     *
     * @param key its name
     * @return its bytes, or null if it was never set
     */
    byte @Nullable [] get(String key);

    /**
     * Waits for a value.
     *
     * @param key its name
     * @param timeout how long to wait at most
     * @return its bytes
     * @throws JcclTimeoutException if nobody has set it by then
     */
    default byte[] await(String key, Duration timeout) {
        return Waiting.await(this, key, timeout);
    }

    /**
     * Sets a value if it is what the caller believes, at once for all: of several that try, one
     * succeeds.
     *
     * @param key its name
     * @param expected what it has to be; null if it has to be unset
     * @param value its bytes
     * @return whether it was as expected, and is set now
     */
    boolean compareAndSet(String key, byte @Nullable [] expected, byte[] value);

    /**
     * Adds to a counter that begins at 0, at once for all.
     *
     * @param key its name, not that of a value
     * @param delta what to add; 0 reads it
     * @return the counter afterwards
     */
    long add(String key, long delta);

    /** Releases what the store holds in this process. */
    @Override
    void close();
}
