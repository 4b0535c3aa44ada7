package io.jccl.engine.nccl;

import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.DataType;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaEvent;
import io.jccl.device.cuda.CudaRuntime;
import java.lang.foreign.Arena;

/**
 * What a communicator has of its own before NCCL makes it, so that a lack of memory is noticed
 * while nobody waits yet.
 */
final class Resources {
    final Arena arena = Arena.ofShared();
    final CudaBuffer token;
    final long marker;

    Resources(CudaDevice device) {
        boolean done = false;
        CudaBuffer t = null;
        try {
            // Its content does not matter, and to zero it would be to wait for work under way,
            // such as that which shrink is about to abort.
            t = CudaBuffer.allocate(device, DataType.INT32, 1);
            this.token = t;
            this.marker = CudaEvent.newHandle(device, cudart_h.cudaEventDisableTiming());
            done = true;
        } finally {
            if (!done) {
                if (t != null) {
                    t.close();
                }
                arena.close();
            }
        }
    }

    /**
     * Frees all of it.
     *
     * @param slots whether NCCL is done with the memory that it writes to; if not, that is never
     *     freed
     */
    void close(boolean slots) {
        try {
            token.close();
        } finally {
            CudaRuntime.api().cudaEventDestroy(marker);
            if (slots) {
                arena.close();
            }
        }
    }
}
