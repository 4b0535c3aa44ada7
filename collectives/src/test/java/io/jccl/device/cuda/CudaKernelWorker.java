package io.jccl.device.cuda;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;

/** A process that runs a kernel, and prints which file it came from. */
final class CudaKernelWorker {
    private CudaKernelWorker() {}

    /**
     * Runs it.
     *
     * @param args not used
     */
    public static void main(String[] args) {
        CudaDevice device = CudaDevice.of(Cuda.device(0));
        try (Compute compute = Compute.of(device);
                Buffer x = device.allocate(DataType.FLOAT32, 5)) {
            compute.fill(x, 7, device.defaultStream());
            device.defaultStream().synchronize();
            System.out.println("filled " + x.get(4));
        }
        System.out.println(CudaKernel.of(CudaKernel.Image.KERNELS, "fill_u32", device));
    }
}
