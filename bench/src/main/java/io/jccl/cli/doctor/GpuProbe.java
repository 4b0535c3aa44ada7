package io.jccl.cli.doctor;

/** What CUDA says about its GPUs. */
public interface GpuProbe {
    /**
     * Asks the driver. May take long: the caller bounds it.
     *
     * @return its version and devices, or why there are none
     */
    Reading<Facts.Cuda> ask();
}
