package io.jccl.engine.nccl;

import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaEvent;
import io.jccl.device.cuda.CudaRuntime;
import java.lang.foreign.Arena;

/**
 * Resources that a communicator allocates before NCCL creates it, so that a lack of memory is
 * noticed before any rank waits for another.
 */
final class Resources {
    final Arena arena = Arena.ofShared();

    /** Of which only the address is used, in barriers. */
    final Buffer token;

    final long marker;

    Resources(CudaDevice device) {
        boolean done = false;
        Buffer t = null;
        try {
            t = device.element();
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

    /** Frees the resources and those of the calls, after NCCL's last use of them. */
    void release(NcclCalls calls, boolean failed) {
        CudaRuntime.api().cudaEventDestroy(marker);
        try {
            calls.close();
            token.close();
        } catch (CudaException e) {
            // A lost context has freed the memory already, and the error was reported.
            if (!failed && !(e instanceof CudaFatalException)) {
                throw e;
            }
        } finally {
            arena.close();
        }
    }

    /**
     * Frees the resources.
     *
     * @param slots whether NCCL no longer writes to the output slots; if it may, they are never
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
