package io.jccl.bench.probe;

import io.jccl.device.Device;
import java.util.List;
import java.util.Set;

/**
 * The checked settings of a probe.
 *
 * @param device the measured device
 * @param sections parts to run
 * @param sizes n of the products, in ascending order
 * @param types of the products
 * @param hidden widths of the layers, in ascending order
 * @param maxBytes maximum bytes of a tensor, a working set, a copy and a message
 * @param threads threads that compute on the host
 * @param seconds approximate total time
 * @param arguments the command line, for the record
 */
public record ProbeConfig(
        Device device,
        Set<ProbeSection> sections,
        List<Integer> sizes,
        List<MatrixType> types,
        List<Integer> hidden,
        long maxBytes,
        int threads,
        double seconds,
        List<String> arguments) {
    boolean cuda() {
        return device.kind() == Device.Kind.CUDA;
    }
}
