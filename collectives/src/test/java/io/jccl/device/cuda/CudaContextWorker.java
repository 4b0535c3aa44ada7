package io.jccl.device.cuda;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.function.Supplier;

/**
 * A process that uses the null stream of GPU 1 on threads that never chose a device: after each
 * call the driver is asked whether GPU 0, which is theirs, has a context.
 */
final class CudaContextWorker {
    private CudaContextWorker() {}

    /**
     * Runs it.
     *
     * @param args not used
     */
    public static void main(String[] args) throws InterruptedException {
        Device device = Cuda.device(1);
        Stream stream = Cuda.wrapStream(device, 0);
        say("captured", () -> ((CudaStream) stream).isRecorded());
        say(
                "allocated",
                () -> {
                    try (Buffer buffer = Cuda.allocateAsync(stream, DataType.FLOAT32, 4)) {
                        return Cuda.wrapAddress(device, buffer.address(), DataType.FLOAT32, 4)
                                .count();
                    }
                });
    }

    private static void say(String what, Supplier<Object> answer) throws InterruptedException {
        Thread fresh =
                Thread.ofPlatform().start(() -> System.out.println(what + ": " + answer.get()));
        fresh.join();
    }
}
