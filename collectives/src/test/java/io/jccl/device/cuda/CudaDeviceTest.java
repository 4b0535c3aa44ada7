package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.FakeBuild;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@UsesFakes
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class CudaDeviceTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @AfterEach
    void clean() {
        TestFake.reset();
        Gpus.setCurrent(0);
    }

    @Test
    void devicesAreNumbered() {
        int n = Cuda.deviceCount();
        assertTrue(n > 0);
        for (int i = 0; i < n; i++) {
            Device device = Cuda.device(i);
            assertSame(device, Cuda.device(i));
            assertEquals(i, device.index());
            assertEquals(Device.Kind.CUDA, device.kind());
            assertEquals("cuda:" + i, device.toString());
            assertSame(device.defaultStream(), device.defaultStream());
            assertSame(device, device.defaultStream().device());
        }
        assertEquals(n, IntStream.range(0, n).mapToObj(Cuda::device).distinct().count());
    }

    @Test
    void indexesBeyondAreRefused() {
        int n = Cuda.deviceCount();
        for (int index : new int[] {-1, n, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            String message = Messages.of(IllegalArgumentException.class, () -> Cuda.device(index));
            assertTrue(
                    message.contains(index + " is not there, expected 0 to " + (n - 1)), message);
            assertThrows(IllegalArgumentException.class, () -> Cuda.view(index));
        }
    }

    @Test
    void infoIsTheDevices() {
        int n = Cuda.deviceCount();
        Cuda.DeviceInfo info = Cuda.info(Cuda.device(n - 1));
        assertFalse(info.model().isBlank());
        assertTrue(info.pciBusId().matches("[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\\.0"));
        assertTrue(info.computeMajor() > 0 && info.computeMinor() >= 0);
        assertTrue(info.memoryBytes() > 0);
        for (int i = 0; i < n - 1; i++) {
            assertNotEquals(info.pciBusId(), Cuda.info(Cuda.device(i)).pciBusId());
        }
        String message =
                Messages.of(IllegalArgumentException.class, () -> Cuda.info(Device.host()));
        assertTrue(message.contains("host, expected a CUDA device"), message);
    }

    @Test
    void viewsAreDevicesOfTheirOwn() {
        int index = Cuda.deviceCount() - 1;
        Device view = Cuda.view(index);
        assertNotSame(view, Cuda.view(index));
        assertNotSame(view.defaultStream(), Cuda.device(index).defaultStream());
        assertEquals(index, view.index());
        assertThrows(
                IllegalArgumentException.class,
                () -> CudaStream.of(view.defaultStream(), CudaDevice.of(index)));
        try (Buffer buffer = view.allocate(DataType.INT32, 3)) {
            buffer.set(2, 7);
            assertEquals(7, buffer.get(2));
            assertSame(view, buffer.device());
        }
    }

    /** Its memory is allocated in the order of its default stream, so the graph would allocate. */
    @Test
    void aViewAllocatesNothingInACaptureOfItsDefaultStream() {
        Device view = Cuda.view(0);
        long allocations = TestFake.calls("cudaMallocAsync");
        Runnable allocation =
                () ->
                        assertThrows(
                                IllegalStateException.class,
                                () -> view.allocate(DataType.INT32, 3));
        Graph.capture(view.defaultStream(), allocation).close();
        assertEquals(allocations, TestFake.calls("cudaMallocAsync"));
    }

    /** Nothing is freed, for which CUDA would wait for the other ranks on the device. */
    @Test
    void aCommunicatorOnAViewClosesWithoutWaitingForTheDevice() {
        Device view = Cuda.view(0);
        long frees = TestFake.calls("cudaFree");
        Communicator made =
                Communicator.local(List.of(view), CommunicatorOptions.DEFAULT).getFirst();
        made.barrier(view.defaultStream());
        made.close();
        assertEquals(frees, TestFake.calls("cudaFree"));
    }

    @Test
    void peersAreFoundAndEnabledOnce() {
        TestFake.needs(2);
        Device a = Cuda.device(Cuda.deviceCount() - 2);
        Device b = Cuda.device(Cuda.deviceCount() - 1);
        assertTrue(Cuda.canAccessPeer(a, b));
        assertFalse(Cuda.canAccessPeer(a, a));
        Cuda.enablePeerAccess(a, b);
        Cuda.enablePeerAccess(a, b);
        assertThrows(CudaException.class, () -> Cuda.enablePeerAccess(a, a));
        assertEquals(0, NativeError.last(), "no error is left behind for the next call");
        assertEquals(0, Gpus.current());
    }

    /** Every call of the API, with another device current. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 7})
    void theCurrentDeviceIsPutBack(int current) {
        TestFake.needs(current + 1);
        Device device = TestFake.device(1);
        List<Runnable> calls = new ArrayList<>();
        calls.add(() -> Cuda.info(device));
        calls.add(() -> Cuda.view(device.index()));
        calls.add(() -> device.allocate(DataType.INT8, 10).close());
        calls.add(() -> Cuda.allocateForNccl(device, DataType.INT8, 10).close());
        calls.add(() -> Cuda.allocateAsync(device.defaultStream(), DataType.INT8, 1).close());
        calls.add(() -> Cuda.pinned(DataType.INT8, 10).close());
        calls.add(() -> device.newStream().close());
        calls.add(() -> device.newEvent().close());
        if (Cuda.deviceCount() > 2) {
            calls.add(() -> Cuda.enablePeerAccess(device, Cuda.device(2)));
        }
        calls.add(() -> use(device, device.defaultStream()));
        calls.add(() -> use(device, Cuda.wrapStream(device, 0)));
        calls.add(() -> use(device, Cuda.wrapStream(device, 1)));
        for (Runnable call : calls) {
            Gpus.setCurrent(current);
            call.run();
            assertEquals(current, Gpus.current());
        }
    }

    private static void use(Device device, Stream stream) {
        try (Buffer buffer = device.allocate(DataType.INT32, 4);
                Buffer other = device.allocate(DataType.INT32, 4);
                Event event = device.newEvent()) {
            buffer.set(1, 5);
            stream.copy(buffer, other);
            event.record(stream);
            stream.waitFor(event);
            stream.launchHostFunction(() -> {});
            stream.synchronize(PATIENCE);
            assertTrue(stream.query());
            assertEquals(5, other.get(1));
            Cuda.allocateAsync(stream, DataType.INT8, 100).close();
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "cudaMalloc:*:error=999",
                "cudaStreamCreateWithFlags:*:error=999",
                "cudaEventCreateWithFlags:*:error=999",
                "cudaMemGetInfo:*:error=999",
                "cudaMemsetAsync:*:error=999",
                "cudaDeviceEnablePeerAccess:*:error=999",
                "ncclMemAlloc:*:error=1"
            })
    void theCurrentDeviceIsPutBackAfterAnError(String rule) throws InterruptedException {
        TestFake.needs(5);
        Device device = Cuda.device(1);
        String function = rule.substring(0, rule.indexOf(':'));
        Gpus.setCurrent(4);
        long live = TestFake.live("all");
        TestFake.inject(rule);
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () -> {
                            switch (function) {
                                case "cudaMalloc", "cudaMemsetAsync" ->
                                        device.allocate(DataType.INT8, 1);
                                case "cudaStreamCreateWithFlags" -> device.newStream();
                                case "cudaEventCreateWithFlags" -> device.newEvent();
                                case "cudaMemGetInfo" -> Cuda.info(device);
                                case "ncclMemAlloc" ->
                                        Cuda.allocateForNccl(device, DataType.INT8, 1);
                                default -> Cuda.enablePeerAccess(device, Cuda.device(3));
                            }
                        });
        TestFake.reset();
        assertTrue(String.valueOf(e.getMessage()).contains(function), e.getMessage());
        assertEquals(4, Gpus.current());
        assertEquals(0, NativeError.last(), "no error is left behind for the next call");
        TestFake.awaitLive(live, "all");
    }

    @Test
    void virtualThreadsAreRefusedWhereTheDeviceWouldBeSet() throws InterruptedException {
        Device device = Cuda.device(0);
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        for (Runnable call :
                List.<Runnable>of(
                        () -> device.allocate(DataType.INT8, 1),
                        device::newStream,
                        device::newEvent,
                        () -> Cuda.wrapStream(device, 0).query())) {
            thrown.set(null);
            Thread.ofVirtual()
                    .start(() -> {
                        try {
                            call.run();
                        } catch (RuntimeException e) {
                            thrown.set(e);
                        }
                    })
                    .join();
            Throwable t = assertInstanceOf(IllegalStateException.class, thrown.get());
            assertTrue(String.valueOf(t.getMessage()).contains("virtual thread"), t.toString());
        }
    }

    @Test
    void aStickyErrorIsFatal() {
        Device device = Cuda.device(0);
        try (Buffer buffer = device.allocate(DataType.INT8, 1)) {
            TestFake.sticky(700);
            CudaFatalException e = assertThrows(CudaFatalException.class, () -> buffer.set(0, 1));
            assertTrue(CudaException.isFatal(e.error()));
            assertThrows(CudaFatalException.class, () -> device.allocate(DataType.INT8, 1));
            assertThrows(CudaFatalException.class, () -> device.defaultStream().synchronize());
            TestFake.reset();
        }
        assertFalse(CudaException.isFatal(2));
        assertFalse(CudaException.isFatal(600));
        assertEquals(0, Gpus.current());
    }

    /**
     * The driver answers beside the results of the calls that were made meanwhile, and no call
     * creates a context of GPU 0, the current device of threads that never chose one.
     */
    @Test
    void freshThreadsUseTheBuffersDeviceAlone() {
        String driver = FakeBuild.home().resolve("driver").toString();
        Map<String, String> env = Map.of("LD_LIBRARY_PATH", driver);
        try (Workers workers = new Workers(1, Workers.newJobId(), TestFake.flags(), env)) {
            Workers.Worker worker = workers.start(0, CudaContextWorker.class);
            assertEquals(0, worker.join(PATIENCE), () -> String.join("\n", worker.lines()));
            assertEquals("captured: false", worker.await("captured: ", PATIENCE));
            assertEquals("allocated: 4", worker.await("allocated: ", PATIENCE));
            List<String> uses =
                    worker.lines().stream().filter(line -> line.contains(" uses ")).toList();
            assertEquals(9, uses.size(), uses::toString);
            uses.forEach(line -> assertTrue(line.endsWith(" uses 10"), line));
        }
    }

    /** What one process said to all questions, by their names. */
    private static UnaryOperator<String> ask(List<String> flags, Map<String, String> env) {
        try (Workers workers = new Workers(1, Workers.newJobId(), flags, env)) {
            Workers.Worker worker = workers.start(0, CudaLookupWorker.class);
            assertEquals(0, worker.join(PATIENCE), () -> String.join("\n", worker.lines()));
            return what -> worker.await(what + ": ", PATIENCE).substring(what.length() + 2);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"JCCL_FAKE_DEVICES=0"})
    void withoutDriverOrGpuThereAreNone(String setting) {
        String[] parts = setting.split("=", 2);
        Map<String, String> env = Map.of(parts[0], parts[1]);
        UnaryOperator<String> answers = ask(TestFake.flags(), env);
        assertEquals("0", answers.apply("count"));
        for (String what : List.of("device", "again", "view")) {
            String answer = answers.apply(what);
            assertTrue(answer.contains("this process sees no GPU"), answer);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"JCCL_FAKE_DRIVER_VERSION=12080"})
    void withADriverThatIsTooOldThereAreNone(String setting) {
        withoutDriverOrGpuThereAreNone(setting);
    }

    @Tag("exhaustive")
    @Test
    void anErrorOfTheLookUpIsToldToEveryoneAndNotKept() {
        // The first two calls: the count, and the first device.
        Map<String, String> env =
                Map.of(
                        "JCCL_FAKE_INJECT",
                        "cudaGetDeviceCount:1:error=3;cudaGetDeviceCount:2:error=3");
        UnaryOperator<String> answers = ask(TestFake.flags(), env);
        for (String what : List.of("count", "device")) {
            String answer = answers.apply(what);
            assertTrue(answer.contains("CudaException"), answer);
            assertTrue(answer.contains("cudaGetDeviceCount"), answer);
        }
        assertEquals("cuda:0", answers.apply("again"));
    }

    @Test
    void withoutTheRuntimeEveryCallSaysWhy() {
        List<String> flags = List.of("-Djccl.cudart=/nowhere/libcudart.so.13");
        UnaryOperator<String> answers = ask(flags, Map.of());
        for (String what : List.of("count", "device", "again")) {
            String answer = answers.apply(what);
            assertTrue(answer.contains("NativeLibraryUnavailableException"), answer);
            assertTrue(answer.contains("/nowhere/libcudart.so.13"), answer);
        }
    }

    /** The error that CUDA remembers for the calling thread. */
    private static final class NativeError {
        static int last() {
            return CudaRuntime.api().cudaGetLastError();
        }
    }
}
