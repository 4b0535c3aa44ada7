package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.util.ArrayList;
import java.util.List;

/** Resources that are closed together, in reverse order. */
public final class Owned implements AutoCloseable {
    private final List<AutoCloseable> resources = new ArrayList<>();

    /** Creates an empty owner. */
    public Owned() {}

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

    /**
     * Closes a resource before the others.
     *
     * @param resource a resource that was added
     */
    public void release(AutoCloseable resource) {
        resources.remove(resource);
        close(resource);
    }

    /** Allocates float32 zeros. */
    Buffer floats(Device device, long count) {
        return add(device.allocate(DataType.FLOAT32, count)).zero();
    }

    /** Closes all resources, even if closing one of them fails. */
    @Override
    public void close() {
        RuntimeException failure = null;
        for (AutoCloseable resource : resources.reversed()) {
            try {
                close(resource);
            } catch (RuntimeException e) {
                if (failure == null) {
                    failure = e;
                } else {
                    failure.addSuppressed(e);
                }
            }
        }
        resources.clear();
        if (failure != null) {
            throw failure;
        }
    }

    private static void close(AutoCloseable resource) {
        try {
            resource.close();
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new JcclException(String.valueOf(e), e);
        }
    }
}
