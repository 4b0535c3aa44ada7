package io.jccl.cli.doctor;

/** Queries CUDA about its GPUs. */
public interface GpuProbe {
    /**
     * Queries the driver. This may take long: the caller sets a time limit.
     *
     * @return its version and devices, or why there are none
     */
    Reading<Facts.Cuda> ask();
}
