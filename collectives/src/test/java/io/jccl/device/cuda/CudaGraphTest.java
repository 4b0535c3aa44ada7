package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.bindings.CudaException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class CudaGraphTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int N = 8;

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
        TestFake.device(2);
        live = TestFake.live("all");
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        TestFake.reset();
        TestFake.awaitLive(live, "all");
        assertEquals(0, Gpus.current());
    }

    /** Copies, two collectives and a host function, launched with other input each time. */
    private static String rank(Communicator comm) {
        Device device = comm.device();
        AtomicInteger ran = new AtomicInteger();
        try (Stream stream = device.newStream();
                Buffer in = Cuda.pinned(DataType.INT32, N);
                Buffer gpu = device.allocate(DataType.INT32, N);
                Buffer out = Cuda.pinned(DataType.INT32, N);
                Buffer blocks = device.allocate(DataType.INT32, N);
                Graph graph =
                        Graph.capture(
                                stream,
                                () -> {
                                    stream.copy(in, gpu);
                                    comm.allReduce(gpu, ReduceOp.SUM, stream);
                                    comm.allReduce(gpu, ReduceOp.preMulSum(3), stream);
                                    comm.allToAll(gpu, blocks, stream);
                                    stream.copy(blocks, out);
                                    stream.launchHostFunction(ran::incrementAndGet);
                                })) {
            stream.synchronize(PATIENCE);
            assertEquals(0, ran.get(), "nothing runs while it is captured");
            assertEquals(0, gpu.get(0));
            int ranks = comm.size();
            for (int round = 1; round <= 5; round++) {
                for (int i = 0; i < N; i++) {
                    in.set(i, round * (comm.rank() + 1) + i);
                }
                graph.launch(stream);
                stream.synchronize(PATIENCE);
                int block = N / ranks;
                for (int i = 0; i < N; i++) {
                    int element = comm.rank() * block + i % block;
                    int sum = round * ranks * (ranks + 1) / 2 + ranks * element;
                    assertEquals(3.0 * ranks * sum, out.get(i), "round " + round + " at " + i);
                }
                assertEquals(round, ran.get());
            }
            // Ordinary work goes on behind it, also for the watchdog.
            comm.allReduce(gpu, ReduceOp.MAX, stream);
            stream.synchronize(PATIENCE);
        }
        return "done";
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void collectivesAreReplayedWithNewInput(int ranks) throws Exception {
        List<Communicator> comms =
                Communicator.local(
                        TestFake.ranks(ranks),
                        CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(10)));
        try (ExecutorService pool = Executors.newFixedThreadPool(ranks)) {
            List<Callable<String>> work = new ArrayList<>();
            comms.forEach(comm -> work.add(() -> rank(comm)));
            for (Future<String> rank : pool.invokeAll(work)) {
                assertEquals("done", rank.get());
            }
        } finally {
            comms.forEach(Communicator::close);
        }
    }

    /** Two exchanges bring every block back; one more leaves it where it belongs. */
    private static String exchange(Communicator comm, boolean group) {
        Device device = comm.device();
        try (Stream stream = device.newStream();
                Buffer in = Cuda.pinned(DataType.INT32, N);
                Buffer gpu = device.allocate(DataType.INT32, N);
                Buffer once = Cuda.pinned(DataType.INT32, N);
                Buffer twice = Cuda.pinned(DataType.INT32, N)) {
            Runnable inPlace = () -> comm.allToAll(gpu, stream);
            Runnable step = group ? () -> Group.run(comm, inPlace) : inPlace;
            try (Graph graph =
                    Graph.capture(
                            stream,
                            () -> {
                                stream.copy(in, gpu);
                                step.run();
                                stream.copy(gpu, once);
                                step.run();
                                stream.copy(gpu, twice);
                            })) {
                int block = N / comm.size();
                for (int round = 1; round <= 3; round++) {
                    for (int i = 0; i < N; i++) {
                        in.set(i, 1000 * round + 100 * comm.rank() + i);
                    }
                    graph.launch(stream);
                    stream.synchronize(PATIENCE);
                    for (int i = 0; i < N; i++) {
                        int from = i / block;
                        int at = comm.rank() * block + i % block;
                        assertEquals(1000 * round + 100 * from + at, once.get(i), "at " + i);
                        assertEquals(in.get(i), twice.get(i), "at " + i);
                    }
                }
            }
        }
        return "done";
    }

    @ParameterizedTest
    @CsvSource({"1, false", "2, false", "2, true"})
    void allToAllInPlaceIsReplayed(int ranks, boolean group) throws Exception {
        List<Communicator> comms =
                Communicator.local(
                        TestFake.ranks(ranks),
                        CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(10)));
        try (ExecutorService pool = Executors.newFixedThreadPool(ranks)) {
            List<Callable<String>> work = new ArrayList<>();
            comms.forEach(comm -> work.add(() -> exchange(comm, group)));
            for (Future<String> rank : pool.invokeAll(work)) {
                assertEquals("done", rank.get());
            }
        } finally {
            comms.forEach(Communicator::close);
        }
    }

    @Test
    void anExceptionEndsTheCaptureAndIsKept() {
        try (Stream stream = device.newStream();
                Buffer a = device.allocate(DataType.INT32, 1);
                Buffer b = device.allocate(DataType.INT32, 1)) {
            IllegalStateException mine = new IllegalStateException("mine");
            IllegalStateException thrown =
                    assertThrows(
                            IllegalStateException.class,
                            () ->
                                    Graph.capture(
                                            stream,
                                            () -> {
                                                stream.copy(a, b);
                                                stream.launchHostFunction(() -> {});
                                                throw mine;
                                            }));
            assertSame(mine, thrown);
            a.set(0, 4);
            stream.copy(a, b);
            stream.synchronize(PATIENCE);
            assertEquals(4, b.get(0));
            assertEquals(0, CudaRuntime.api().cudaGetLastError(), "no error is left behind");
            Graph.capture(stream, () -> stream.copy(a, b)).close();
        }
    }

    @Test
    void nothingWaitsInACapture() {
        try (Stream stream = device.newStream();
                Buffer b = device.allocate(DataType.INT32, 2)) {
            for (Runnable wait :
                    List.<Runnable>of(
                            stream::synchronize,
                            () -> stream.synchronize(PATIENCE),
                            stream::query)) {
                String message =
                        Messages.of(IllegalStateException.class, () -> Graph.capture(stream, wait));
                assertTrue(message.contains("being captured"), message);
            }
            // What does not go by this stream may be done.
            try (Graph graph =
                    Graph.capture(
                            stream,
                            () -> {
                                b.set(1, 6);
                                assertEquals(6, b.get(1));
                            })) {
                graph.launch(stream);
            }
            stream.synchronize(PATIENCE);
        }
    }

    private static void refused(Runnable access) {
        String message = Messages.of(IllegalStateException.class, access::run);
        assertTrue(message.contains("default stream, is being captured"), message);
    }

    /** What a buffer does by the default stream is refused before it is part of a graph of that. */
    @Test
    void whatIsRefusedInACaptureIsNotPartOfIt() throws Exception {
        try (Buffer a = device.allocate(DataType.FLOAT32, 2);
                ExecutorService other = Executors.newSingleThreadExecutor()) {
            Runnable body =
                    () -> {
                        refused(() -> a.get(0));
                        refused(() -> a.set(0, 1));
                        refused(() -> a.copyFrom(new float[2]));
                        refused(a::zero);
                        refused(() -> device.allocate(DataType.FLOAT32, 2));
                    };
            Callable<String> elsewhere = Executors.callable(body, "refused");
            Graph graph =
                    Graph.capture(
                            device.defaultStream(),
                            () -> {
                                body.run();
                                try {
                                    assertEquals("refused", other.submit(elsewhere).get());
                                } catch (Exception e) {
                                    throw new AssertionError(e);
                                }
                            });
            a.set(0, 7);
            a.set(1, 8);
            graph.launch(device.defaultStream());
            assertEquals(7, a.get(0));
            assertEquals(8, a.get(1));
            graph.close();
        }
    }

    /** A capture begins before an access has looked for one, or after the access. */
    @Test
    void aCaptureDoesNotBeginWithinAnAccess() throws Exception {
        try (Buffer a = device.allocate(DataType.INT32, 1);
                ExecutorService other = Executors.newSingleThreadExecutor()) {
            TestFake.inject("cudaMemcpyAsync:1:hang");
            long copies = TestFake.calls("cudaMemcpyAsync");
            Future<?> write = other.submit(() -> a.set(0, 1));
            while (TestFake.calls("cudaMemcpyAsync") == copies) {
                sleep(1);
            }
            Runnable body =
                    () -> {
                        TestFake.reset();
                        while (!write.isDone()) {
                            sleep(1);
                        }
                    };
            List<Graph> graph = new ArrayList<>();
            Thread capture =
                    Thread.ofPlatform()
                            .start(() -> graph.add(Graph.capture(device.defaultStream(), body)));
            while (capture.isAlive() && capture.getState() != Thread.State.WAITING) {
                sleep(1);
            }
            TestFake.reset();
            write.get();
            capture.join();
            a.set(0, 2);
            graph.getFirst().launch(device.defaultStream());
            assertEquals(2, a.get(0));
            graph.getFirst().close();
        }
    }

    @Test
    void capturesAndLaunchesAreNotNested() {
        try (Stream stream = device.newStream();
                Graph inner = Graph.capture(stream, () -> {})) {
            String message =
                    Messages.of(
                            IllegalStateException.class,
                            () ->
                                    Graph.capture(
                                            stream, () -> Graph.capture(stream, () -> {}).close()));
            assertTrue(message.contains("captured already"), message);
            message =
                    Messages.of(
                            IllegalStateException.class,
                            () -> Graph.capture(stream, () -> inner.launch(stream)));
            assertTrue(message.contains("launched into another"), message);
            inner.launch(stream);
            stream.synchronize(PATIENCE);
        }
    }

    @Test
    void streamsThatCannotBeCaptured() {
        String message =
                Messages.of(
                        IllegalArgumentException.class,
                        () -> Graph.capture(Device.host().defaultStream(), () -> {}));
        assertTrue(message.contains("expected a CUDA device"), message);
        assertThrows(
                CudaException.class, () -> Graph.capture(Cuda.wrapStream(device, 0), () -> {}));
        Stream closed = device.newStream();
        closed.close();
        assertThrows(IllegalStateException.class, () -> Graph.capture(closed, () -> {}));
    }

    @Test
    void aGraphIsLaunchedOnAnyStreamOfItsDevice() {
        AtomicInteger ran = new AtomicInteger();
        try (Stream stream = device.newStream();
                Stream second = device.newStream();
                Stream far = TestFake.device(2).newStream()) {
            Graph graph =
                    Graph.capture(stream, () -> stream.launchHostFunction(ran::incrementAndGet));
            graph.launch(second);
            second.synchronize(PATIENCE);
            graph.launch(device.defaultStream());
            device.defaultStream().synchronize(PATIENCE);
            assertEquals(2, ran.get());
            assertThrows(IllegalArgumentException.class, () -> graph.launch(far));
            graph.close();
            graph.close();
            assertThrows(IllegalStateException.class, () -> graph.launch(stream));
        }
    }

    @Test
    void errorsOfHostFunctionsSurfaceWhereTheGraphWasLaunched() {
        try (Stream stream = device.newStream();
                Stream second = device.newStream();
                Graph graph =
                        Graph.capture(
                                stream,
                                () ->
                                        stream.launchHostFunction(() -> {
                                            throw new IllegalStateException("mine");
                                        }))) {
            for (int i = 0; i < 3; i++) {
                graph.launch(second);
                String message =
                        Messages.of(JcclException.class, () -> second.synchronize(PATIENCE));
                assertTrue(message.contains("mine"), message);
            }
            stream.synchronize(PATIENCE);
        }
    }

    @Test
    void aGraphKeepsItsFunctionWhileOthersComeAndGo() {
        AtomicInteger ran = new AtomicInteger();
        AtomicInteger others = new AtomicInteger();
        try (Stream stream = device.newStream();
                Graph graph =
                        Graph.capture(
                                stream, () -> stream.launchHostFunction(ran::incrementAndGet))) {
            for (int round = 1; round <= 3; round++) {
                for (int i = 0; i < 40; i++) {
                    stream.launchHostFunction(others::incrementAndGet);
                }
                graph.launch(stream);
                stream.synchronize(PATIENCE);
                assertEquals(round, ran.get());
                assertEquals(40 * round, others.get());
            }
        }
    }

    @Test
    void closingLeavesALaunchUnderWayAlone() {
        AtomicInteger ran = new AtomicInteger();
        try (Stream stream = device.newStream();
                Gpus.Gate gate = new Gpus.Gate()) {
            Graph graph =
                    Graph.capture(stream, () -> stream.launchHostFunction(ran::incrementAndGet));
            gate.holdUp(stream);
            graph.launch(stream);
            graph.launch(stream);
            graph.close();
            assertEquals(0, ran.get());
            gate.open();
            stream.synchronize(PATIENCE);
            assertEquals(2, ran.get());
        }
    }

    @Test
    void aStreamThatJoinsByAnEventIsCapturedToo() throws InterruptedException {
        AtomicInteger ran = new AtomicInteger();
        List<Communicator> ranks = Communicator.local(List.of(device), CommunicatorOptions.DEFAULT);
        try (Communicator comm = ranks.get(0);
                Stream stream = device.newStream();
                Stream side = device.newStream();
                Event fork = device.newEvent();
                Event join = device.newEvent();
                Buffer buffer = device.allocate(DataType.INT32, 1);
                Graph graph =
                        Graph.capture(
                                stream,
                                () -> {
                                    fork.record(stream);
                                    side.waitFor(fork);
                                    comm.allReduce(buffer, ReduceOp.SUM, side);
                                    side.launchHostFunction(ran::incrementAndGet);
                                    assertThrows(IllegalStateException.class, side::synchronize);
                                    // Time for the watchdog to look, which must not mark it.
                                    sleep(300);
                                    join.record(side);
                                    stream.waitFor(join);
                                })) {
            side.synchronize(PATIENCE);
            for (int i = 1; i <= 3; i++) {
                graph.launch(stream);
                stream.synchronize(PATIENCE);
                assertEquals(i, ran.get());
            }
            side.launchHostFunction(ran::incrementAndGet);
            side.synchronize(PATIENCE);
            assertEquals(4, ran.get());
        }
    }

    @Test
    void theWatchdogDoesNotMarkACapture() {
        List<Communicator> ranks = Communicator.local(List.of(device), CommunicatorOptions.DEFAULT);
        try (Communicator comm = ranks.get(0);
                Stream stream = device.newStream();
                Buffer buffer = device.allocate(DataType.INT32, 1)) {
            long[] marks = new long[2];
            Graph graph =
                    Graph.capture(
                            stream,
                            () -> {
                                comm.allReduce(buffer, ReduceOp.SUM, stream);
                                marks[0] = TestFake.calls("cudaEventRecord");
                                sleep(300);
                                marks[1] = TestFake.calls("cudaEventRecord");
                            });
            assertEquals(marks[0], marks[1]);
            graph.launch(stream);
            stream.synchronize(PATIENCE);
            graph.close();
            // Work that takes its time is what the watchdog marks.
            stream.launchHostFunction(() -> sleep(600));
            comm.allReduce(buffer, ReduceOp.SUM, stream);
            sleep(300);
            assertNotEquals(marks[1], TestFake.calls("cudaEventRecord"));
            stream.synchronize(PATIENCE);
        }
    }

    /** A capture that JCCL did not begin, as of a framework whose stream is wrapped. */
    @Test
    void theWatchdogDoesNotMarkAForeignCapture() {
        List<Communicator> ranks = Communicator.local(List.of(device), CommunicatorOptions.DEFAULT);
        try (Communicator comm = ranks.get(0);
                Stream owner = device.newStream();
                Buffer buffer = device.allocate(DataType.INT32, 1)) {
            Stream view = Cuda.wrapStream(device, Cuda.streamHandle(owner));
            try (Graph graph =
                    Graph.capture(
                            owner,
                            () -> {
                                comm.allReduce(buffer, ReduceOp.SUM, view);
                                sleep(300);
                            })) {
                graph.launch(owner);
                owner.synchronize(PATIENCE);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "cudaStreamBeginCapture",
                "cudaStreamEndCapture",
                "cudaGraphInstantiateWithFlags"
            })
    void aCaptureThatCudaRefusesLeavesNothing(String function) {
        try (Stream stream = device.newStream()) {
            TestFake.inject(function + ":1:error=999");
            assertThrows(
                    CudaException.class,
                    () -> Graph.capture(stream, () -> stream.launchHostFunction(() -> {})));
            TestFake.reset();
            if (function.equals("cudaStreamEndCapture")) {
                // The injected error came instead of the call.
                CudaRuntime.api()
                        .cudaStreamEndCapture(Cuda.streamHandle(stream), CudaRuntime.slot());
                CudaRuntime.api().cudaGraphDestroy(CudaRuntime.readLong(CudaRuntime.slot()));
            }
            assertFalse(((CudaStream) stream).isCapturing());
            stream.synchronize(PATIENCE);
        }
    }

    @Test
    void aLaunchThatFailsIsNotCounted() {
        AtomicInteger ran = new AtomicInteger();
        try (Stream stream = device.newStream()) {
            Graph graph =
                    Graph.capture(stream, () -> stream.launchHostFunction(ran::incrementAndGet));
            TestFake.inject("cudaGraphLaunch:1:error=999");
            assertThrows(CudaException.class, () -> graph.launch(stream));
            graph.launch(stream);
            stream.synchronize(PATIENCE);
            graph.close();
            assertEquals(1, ran.get());
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
