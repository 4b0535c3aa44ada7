package io.jccl.topology.read;

import io.jccl.topology.Warning;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * The output of {@code nvidia-smi nvlink -s}: the NVLinks of each GPU, but not where they lead.
 * Immutable.
 *
 * @param gpus the GPUs, in the order of the text
 * @param warnings problems in the text
 */
public record NvlinkStatus(List<GpuLinks> gpus, List<Warning> warnings) implements Dump {
    /**
     * The links of a GPU.
     *
     * @param index number of the GPU
     * @param model its name: {@code NVIDIA H100 80GB HBM3}
     * @param links its links; empty if the driver reports none
     */
    public record GpuLinks(int index, String model, List<Lane> links) {
        /** Copies the list. */
        public GpuLinks {
            Objects.requireNonNull(model, "model");
            links = List.copyOf(links);
        }

        /**
         * How many links are up.
         *
         * @return number of links with a rate
         */
        public int active() {
            return (int) links.stream().filter(lane -> lane.rawGbps > 0).count();
        }

        /**
         * The rate of a link that is up.
         *
         * @return GB/s per direction as printed, of the slowest; 0 if no link is up
         */
        public double rawGbps() {
            return links.stream()
                    .mapToDouble(Lane::rawGbps)
                    .filter(rate -> rate > 0)
                    .min()
                    .orElse(0);
        }
    }

    /**
     * An NVLink.
     *
     * @param index its number on the GPU
     * @param rawGbps signalling rate in GB/s (10^9 bytes) per direction as printed, somewhat above
     *     the data rate; 0 if the link is down
     */
    public record Lane(int index, double rawGbps) {
        /** Checks the rate. */
        public Lane {
            if (!(rawGbps >= 0) || rawGbps > 10_000) {
                throw new IllegalArgumentException(
                        "link " + index + " has " + rawGbps + " GB/s: expected 0 to 10000");
            }
        }
    }

    /** Copies the lists. */
    public NvlinkStatus {
        gpus = List.copyOf(gpus);
        warnings = List.copyOf(warnings);
    }

    /**
     * A GPU by its number.
     *
     * @param index as in {@code GPU 0:}
     * @return its links; empty if the text does not have that GPU
     */
    public Optional<GpuLinks> gpu(int index) {
        return gpus.stream().filter(gpu -> gpu.index == index).findFirst();
    }
}
