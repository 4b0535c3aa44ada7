package io.jccl.rendezvous;

import io.jccl.CollectiveTimeoutException;
import java.nio.file.Path;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A few small values that all ranks of a run can see: by it they exchange the id of a communicator,
 * and who failed. A value is at most a megabyte, a key at most 200 characters.
 *
 * <p><b>Threads:</b> any.
 */
public interface Store extends AutoCloseable {
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
     * @throws CollectiveTimeoutException if nobody has set it by then
     */
    default byte[] await(String key, Duration timeout) {
        return Waiting.await(this, key, timeout);
    }

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
