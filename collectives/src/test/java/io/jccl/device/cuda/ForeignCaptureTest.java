package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Captures of another library, in mode global, the strictest and that of most. */
@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class ForeignCaptureTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private Device device = Device.host();
    private long live;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @BeforeEach
    void start() {
        TestFake.device(0);
        device = TestFake.device(1);
        live = TestFake.live("all");
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        TestFake.reset();
        TestFake.awaitLive(live, "all");
    }

    private Communicator alone() {
        return Communicator.local(List.of(device), CommunicatorOptions.DEFAULT).getFirst();
    }

    private static void begin(Stream stream) {
        CudaRuntime.check(
                CudaRuntime.api()
                        .cudaStreamBeginCapture(
                                Cuda.streamHandle(stream), cudart_h.cudaStreamCaptureModeGlobal()),
                "cudaStreamBeginCapture");
    }

    /** Ends a capture, which nothing may have destroyed, and launches it twice. */
    private static void endAndLaunch(Stream stream) {
        CudaApi api = CudaRuntime.api();
        long handle = Cuda.streamHandle(stream);
        CudaRuntime.check(
                api.cudaStreamEndCapture(handle, CudaRuntime.slot()), "cudaStreamEndCapture");
        long graph = CudaRuntime.readLong(CudaRuntime.slot());
        CudaRuntime.check(
                api.cudaGraphInstantiateWithFlags(CudaRuntime.slot(), graph, 0),
                "cudaGraphInstantiate");
        long executable = CudaRuntime.readLong(CudaRuntime.slot());
        CudaRuntime.check(api.cudaGraphDestroy(graph), "cudaGraphDestroy");
        CudaRuntime.check(api.cudaGraphLaunch(executable, handle), "cudaGraphLaunch");
        CudaRuntime.check(api.cudaGraphLaunch(executable, handle), "cudaGraphLaunch");
        stream.synchronize(PATIENCE);
        CudaRuntime.check(api.cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    }

    private static void awaitMore(String function, int calls) throws InterruptedException {
        long until = TestFake.calls(function) + calls;
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (TestFake.calls(function) < until) {
            assertTrue(System.nanoTime() < deadline, function + " is not called");
            Thread.sleep(1);
        }
    }

    @Test
    void theWatchdogLeavesOneAlone() throws InterruptedException {
        try (Communicator comm = alone();
                Stream stream = device.newStream();
                Stream theirs = device.newStream();
                Buffer buffer = device.allocate(DataType.INT32, 1);
                Gpus.Gate gate = new Gpus.Gate()) {
            gate.holdUp(stream);
            comm.allReduce(buffer, ReduceOp.SUM, stream);
            awaitMore("cudaEventQuery", 1);
            begin(theirs);
            awaitMore("cudaEventQuery", 2);
            endAndLaunch(theirs);
            gate.open();
            stream.synchronize(PATIENCE);
        }
    }

    /** Memory is allocated for the operation, beside the capture or as a part of it. */
    @Test
    void anExchangeInPlaceLeavesOneAlone() throws InterruptedException {
        try (Communicator comm = alone();
                Stream stream = device.newStream();
                Stream theirs = device.newStream();
                Buffer buffer = device.allocate(DataType.INT32, 1)) {
            buffer.setLong(0, 7);
            begin(theirs);
            List<Throwable> errors = new ArrayList<>();
            Thread.ofPlatform()
                    .start(() -> {
                        try {
                            comm.allToAll(buffer, buffer, stream);
                        } catch (Throwable t) {
                            errors.add(t);
                        }
                    })
                    .join();
            assertEquals(List.of(), errors);
            comm.allToAll(buffer, buffer, theirs);
            endAndLaunch(theirs);
            stream.synchronize(PATIENCE);
            assertEquals(7, buffer.getLong(0));
        }
    }

    @Test
    void aHostFunctionRunsInEveryLaunch() {
        AtomicInteger ran = new AtomicInteger();
        try (Stream theirs = device.newStream()) {
            begin(theirs);
            theirs.launchHostFunction(ran::incrementAndGet);
            endAndLaunch(theirs);
            assertEquals(2, ran.get());
        }
    }
}
