package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudaPointerAttributes;
import io.jccl.bindings.generated.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * CUDA's attributes of an address.
 *
 * @param type {@code cudaMemoryType*}
 * @param device the device it belongs to, or -1
 */
public record Memory(int type, int device) {
    static Memory at(long address) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment attributes = arena.allocate(cudaPointerAttributes.layout());
            CudaApi api = CudaRuntime.api();
            CudaRuntime.check(
                    api.cudaPointerGetAttributes(attributes, address), "cudaPointerGetAttributes");
            return new Memory(
                    cudaPointerAttributes.type(attributes),
                    cudaPointerAttributes.device(attributes));
        }
    }

    /** Whether work on a device may use it as memory of that device. */
    boolean isOn(CudaDevice wanted) {
        return type == cudart_h.cudaMemoryTypeManaged()
                || (type == cudart_h.cudaMemoryTypeDevice() && device == wanted.index());
    }

    @Override
    public String toString() {
        if (type == cudart_h.cudaMemoryTypeDevice()) {
            return "memory of cuda:" + device;
        }
        if (type == cudart_h.cudaMemoryTypeHost()) {
            return "pinned host memory";
        }
        return type == cudart_h.cudaMemoryTypeManaged()
                ? "managed memory"
                : "memory that CUDA does not know (ordinary host memory, or freed)";
    }
}
