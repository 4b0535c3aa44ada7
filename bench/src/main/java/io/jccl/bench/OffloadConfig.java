package io.jccl.bench;

import io.jccl.device.Device;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * What {@code jccl offload} measures.
 *
 * @param device where the layers compute
 * @param layers how many
 * @param layerBytes parameters of each, a multiple of 8
 * @param deviceBudget bytes of device memory
 * @param nvme folder of the store that the layers live in; null for pinned memory
 * @param computeMicros work of a layer; negative if {@code ratio} or {@code gemm} says
 * @param ratio work of a layer as a multiple of its copy; used if the other two do not say
 * @param gemm size of the matrix product that is a layer's work; 0 for none
 * @param passes over all layers in a sample
 * @param samples of each time
 * @param depth layers ahead; negative for automatic
 * @param backward whether passes go back again, with gradients as large as the parameters
 * @param chunkBytes bytes of a chunk of a copy
 * @param trace where the trace goes; null for nowhere
 */
public record OffloadConfig(
        Device device,
        int layers,
        long layerBytes,
        long deviceBudget,
        @Nullable Path nvme,
        double computeMicros,
        double ratio,
        int gemm,
        int passes,
        int samples,
        int depth,
        boolean backward,
        long chunkBytes,
        @Nullable Path trace) {
    public boolean isCuda() {
        return device.kind() == Device.Kind.CUDA;
    }

    /** Device memory of one layer. */
    public long slotBytes() {
        return (layerBytes + 255) / 256 * 256 * (backward ? 2 : 1);
    }
}
