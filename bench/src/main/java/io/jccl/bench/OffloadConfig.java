package io.jccl.bench;

import io.jccl.device.Device;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * Settings of {@code jccl offload}.
 *
 * @param device device that computes the layers
 * @param layers number of layers
 * @param layerBytes bytes of parameters per layer, a multiple of 8
 * @param deviceBudget bytes of device memory
 * @param nvme folder of the store that holds the layers; null for pinned memory
 * @param computeMicros compute time per layer in microseconds; negative if {@code ratio} or {@code
 *     gemm} specifies it
 * @param ratio compute time per layer as a multiple of its copy time; used if the other two do not
 *     specify it
 * @param gemm size of the matrix product that is a layer's work; 0 for none
 * @param passes passes over all layers per sample
 * @param samples samples of each time
 * @param depth layers to prefetch; negative for automatic
 * @param backward whether a backward pass follows, with gradients as large as the parameters
 * @param chunkBytes bytes of a chunk of a copy
 * @param trace file for the trace; null for none
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
        return slotBytes(layerBytes, backward);
    }

    /** Device memory of a layer of such parameters, with or without gradients. */
    public static long slotBytes(long layerBytes, boolean backward) {
        return (layerBytes + 255) / 256 * 256 * (backward ? 2 : 1);
    }
}
