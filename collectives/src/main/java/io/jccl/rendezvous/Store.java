package io.jccl.rendezvous;

import io.jccl.error.JcclTimeoutException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A key-value store that all ranks of a run share. Ranks use it to exchange communicator ids and to
 * report failures. A value has at most 1 MiB, a key at most 200 characters; in a store in a folder,
 * that is after encoding it as in a URL.
 *
 * {@snippet class="snippets.Collectives" region="store"}
 *
 * <p><b>Threads:</b> any.
 */
public interface Store extends AutoCloseable {
    /** Maximum size of a value in bytes. */
    int MAX_VALUE_BYTES = 1 << 20;

    /**
     * Creates a store for ranks that are threads of this JVM.
     *
     * @return an empty store
     */
    static Store inMemory() {
        return new MemoryStore();
    }

    /**
     * Creates a store in a folder that all processes can access, on one machine or in a shared file
     * system.
     *
     * @param folder the folder, created if missing; use a new one for each run
     * @return the store; closing it leaves the folder
     */
    static Store folder(Path folder) {
        return new FolderStore(folder);
    }

    /**
     * Connects to a {@link StoreServer}. Values are not encrypted on the network; the secret is
     * needed to read or set them. If the connection is lost, the store reconnects and resumes;
     * after 30 seconds without a connection, or three if the server's machine refuses connections,
     * all methods throw.
     *
     * @param address {@code tcp://host:port}; an IPv6 address in brackets. If a name has several
     *     addresses, the first that answers is used
     * @param secret the server's secret
     * @param timeout maximum time to wait for the server, which may be started later
     * @return the store; close it to disconnect
     * @throws JcclTimeoutException if no server is found within the timeout
     * @throws IllegalArgumentException if the address is invalid
     * @throws io.jccl.error.JcclException if the server has another secret, or is not a store
     */
    static Store connect(String address, StoreSecret secret, Duration timeout) {
        return TcpStore.connect(TcpAddress.parse("address", address), secret, timeout);
    }

    /**
     * Opens the store that the environment variables of this process name, the same for all ranks:
     *
     * <ul>
     *   <li>{@code JCCL_STORE=tcp://host:port}: that address. Rank 0 serves there if it is an
     *       address of its machine and nothing listens there yet; otherwise another process must,
     *       such as {@code jccl store}.
     *   <li>{@code JCCL_STORE=file:/folder}: files in a folder that all ranks can access, a new one
     *       for each run.
     *   <li>{@code MASTER_ADDR} and {@code MASTER_PORT}: rank 0 serves there; it must be an address
     *       of rank 0's machine.
     * </ul>
     *
     * <p>If the others reach rank 0 by an address that is not its own, as with NAT, {@code
     * JCCL_STORE_BIND} sets the address to listen on.
     *
     * <p>The secret is that of {@link StoreSecret#fromEnvironment}. On the rank that serves,
     * closing the store waits up to five seconds for the others to close theirs.
     *
     * @param timeout maximum time to wait for the server
     * @return the store; one in memory if this is the only rank and nothing is set
     * @throws IllegalArgumentException if variables contradict each other, or none names a store
     * @throws JcclTimeoutException if no server is found within the timeout
     * @throws io.jccl.error.JcclException if the server cannot be started or has another secret
     */
    static Store fromEnvironment(Duration timeout) {
        Map<String, String> env = System.getenv();
        return LaunchEnvironment.of(env).openStore(env, timeout);
    }

    /**
     * Sets a value, replacing any previous one.
     *
     * @param key its name
     * @param value its bytes
     */
    void set(String key, byte[] value);

    /**
     * Reads a value without waiting.
     *
     * @param key its name
     * @return its bytes, or null if it was never set
     */
    byte @Nullable [] get(String key);

    /**
     * Waits for a value.
     *
     * @param key its name
     * @param timeout maximum time to wait
     * @return its bytes
     * @throws JcclTimeoutException if it is not set when the timeout passes
     */
    default byte[] await(String key, Duration timeout) {
        return Waiting.await(this, key, timeout);
    }

    /**
     * Sets a value atomically if its current value is as expected: of several concurrent calls, one
     * succeeds.
     *
     * @param key its name
     * @param expected the expected value; null for unset
     * @param value its bytes
     * @return whether the value was as expected and has been set
     */
    boolean compareAndSet(String key, byte @Nullable [] expected, byte[] value);

    /**
     * Adds to a counter atomically; counters start at 0.
     *
     * @param key its name, not that of a value
     * @param delta the number to add; 0 to read the counter
     * @return the counter after the addition
     */
    long add(String key, long delta);

    /** Releases the resources that the store holds in this process. */
    @Override
    void close();
}
