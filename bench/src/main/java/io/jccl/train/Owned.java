package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.Closing;
import io.jccl.offload.BufferPool;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Resources that are closed together, in reverse order. */
public final class Owned implements AutoCloseable {
    private final List<AutoCloseable> resources = new ArrayList<>();

    /** The source of device memory; null for the device itself. */
    private final @Nullable BufferPool pool;

    /** Creates an empty owner. */
    public Owned() {
        this(null);
    }

    /** Creates an empty owner whose device memory comes from a pool, if there is one. */
    Owned(@Nullable BufferPool pool) {
        this.pool = pool;
    }

    /**
     * Adds a resource.
     *
     * @param <T> its type
     * @param resource closed by {@link #close}
     * @return the resource
     */
    public <T extends AutoCloseable> T add(T resource) {
        resources.add(resource);
        return resource;
    }

    /** Allocates float32 zeros. */
    Buffer floats(Device device, long count) {
        return allocate(device, DataType.FLOAT32, count);
    }

    /** Allocates zeros. */
    Buffer allocate(Device device, DataType type, long count) {
        return add(pool == null ? device.allocate(type, count) : pool.allocate(type, count)).zero();
    }

    /** Closes a resource before the others. */
    void close(Buffer resource) {
        resources.remove(resource);
        resource.close();
    }

    /** Closes all resources, even if closing one of them fails. */
    @Override
    public void close() {
        try {
            Closing.all(resources.reversed());
        } finally {
            resources.clear();
        }
    }
}
