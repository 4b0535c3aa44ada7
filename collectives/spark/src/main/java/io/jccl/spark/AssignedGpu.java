package io.jccl.spark;

import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.util.Map;
import org.apache.spark.resource.ResourceInformation;

/** The GPU that Spark assigned to a task. */
final class AssignedGpu {
    private static final String RESOURCE = "gpu";

    private AssignedGpu() {}

    /** The device of a task that has these resources. */
    static Device device(Map<String, ResourceInformation> resources) {
        ResourceInformation gpu = resources.get(RESOURCE);
        return gpu == null ? Device.host() : Cuda.device(index(gpu.addresses()));
    }

    /** The only address, which must be a device number. */
    static int index(String[] addresses) {
        if (addresses.length != 1) {
            throw new JcclException(
                    ("Spark assigned %s GPUs (%s) to this task, expected one: set"
                                    + " spark.task.resource.gpu.amount to 1, or choose the device"
                                    + " with SparkCommunicator.join(context, device, options)")
                            .formatted(addresses.length, String.join(", ", addresses)));
        }
        try {
            return Integer.parseUnsignedInt(addresses[0].trim());
        } catch (NumberFormatException e) {
            throw new JcclException(
                    "Spark assigned GPU '"
                            + addresses[0]
                            + "' to this task, expected a device's number such as 0: let"
                            + " spark.worker.resource.gpu.discoveryScript print numbers, or choose the"
                            + " device with SparkCommunicator.join(context, device, options)",
                    e);
        }
    }
}
