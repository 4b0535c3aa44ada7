package io.jccl.device.cuda;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import java.util.function.Supplier;

/**
 * A process that uses GPU 1 on threads that never chose a device: after each call on the null
 * stream the driver is asked whether GPU 0, which is theirs, has a context.
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
        Stream own = device.defaultStream();
        Buffer floats = device.allocate(DataType.FLOAT32, 4);
        Graph graph = Graph.capture(own, () -> {});
        uses("allocateAsync", () -> Cuda.allocateAsync(own, DataType.FLOAT32, 4).close());
        uses("get", () -> floats.get(0));
        uses("set", () -> floats.set(0, 1));
        uses("copyFrom", () -> floats.copyFrom(new float[4]));
        uses("copyTo", () -> floats.copyTo(new float[4]));
        uses("zero", floats::zero);
        uses("wrapAddress", () -> Cuda.wrapAddress(device, floats.address(), DataType.FLOAT32, 4));
        uses("graph", graph::close);
        uses("close", floats::close);
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

    private static void uses(String what, Runnable call) throws InterruptedException {
        Thread.ofPlatform().start(call).join();
        System.out.println(what + " uses " + Integer.toBinaryString(TestFake.contexts()));
    }

    private static void say(String what, Supplier<Object> answer) throws InterruptedException {
        Thread fresh =
                Thread.ofPlatform().start(() -> System.out.println(what + ": " + answer.get()));
        fresh.join();
    }
}
