package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.device.Stream;

/**
 * Elements that are computed on a device and sent from host memory. On the host both are the same
 * memory; for a GPU there is a pinned copy, which moves on the device's default stream.
 */
final class StagedParts implements AutoCloseable {
    private final Buffer memory;
    private final Buffer host;
    private final Stream stream;
    private final boolean staged;

    StagedParts(Buffer memory) {
        this.memory = memory;
        Device device = memory.device();
        stream = device.defaultStream();
        staged = device.kind() == Device.Kind.CUDA;
        host = staged ? Cuda.pinned(memory.dataType(), memory.count()) : memory;
    }

    /** The memory sent and received. */
    Buffer host() {
        return host;
    }

    /** Waits until work on the device's default stream is done and the host has the elements. */
    void toHost() {
        if (staged) {
            stream.copy(memory, host);
            stream.synchronize();
        }
    }

    /** Copies the host's elements to the device, before later work on its default stream. */
    void toDevice() {
        if (staged) {
            stream.copy(host, memory);
            // The host's copy may be overwritten from now on.
            stream.synchronize();
        }
    }

    /** Frees the copy, not the memory. */
    @Override
    public void close() {
        if (staged) {
            host.close();
        }
    }
}
