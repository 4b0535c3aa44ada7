package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.engine.OperationSpans;
import io.jccl.engine.OperationSpans.Span;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import io.jccl.testkit.Messages;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Times of operations on a GPU, on the fakes of CUDA and NCCL. */
@UsesFakes
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class OperationSpansTest {
    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    /** One device of two is measured: operations, a group as one, on two streams. */
    @Test
    void operationsOfADeviceAreCountedAndTimed() throws Exception {
        long live = TestFake.live("events");
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        try (OperationSpans spans = OperationSpans.of(TestFake.device(0))) {
            long start = System.nanoTime();
            spans.begin();
            List<Throwable> errors =
                    NcclRanks.errors(
                            ranks,
                            comm -> {
                                Device d = comm.device();
                                try (Stream other = d.newStream();
                                        Buffer a = d.allocate(DataType.FLOAT32, 8);
                                        Buffer b = d.allocate(DataType.FLOAT32, 8)) {
                                    Stream stream = d.defaultStream();
                                    comm.allReduce(a, ReduceOp.SUM, stream);
                                    comm.allReduce(b, ReduceOp.SUM, other);
                                    int peer = 1 - comm.rank();
                                    Group.run(
                                            comm,
                                            () -> {
                                                comm.send(a, peer, stream);
                                                comm.recv(b, peer, stream);
                                            });
                                    stream.synchronize();
                                    other.synchronize();
                                }
                            });
            long most = System.nanoTime() - start;
            errors.forEach(e -> assertEquals(null, e));
            List<Span> all = spans.end();
            assertEquals(3, all.size(), all::toString);
            String name = ranks.getFirst().history().communicator();
            for (Span s : all) {
                assertEquals(name, s.communicator());
                assertTrue(0 <= s.fromNanos() && s.fromNanos() <= s.toNanos(), s::toString);
                assertTrue(s.toNanos() <= most + TimeUnit.MILLISECONDS.toNanos(1), s + " " + most);
            }
            // What is called between two measurements is not counted.
            NcclRanks.errors(ranks, comm -> comm.barrier(comm.device().defaultStream()));
            spans.begin();
            assertEquals(List.of(), spans.end());
        }
        ranks.forEach(Communicator::close);
        assertEquals(live, TestFake.live("events"), "events are left");
    }

    @Test
    void nothingIsAllocatedWhileItMeasures() {
        AllocationRounds rounds = new AllocationRounds(1);
        try (Communicator comm = NcclRanks.open(1, NcclRanks.OPTIONS).getFirst();
                OperationSpans spans = OperationSpans.of(comm.device());
                Buffer a = comm.device().allocate(DataType.FLOAT32, 8)) {
            Stream stream = comm.device().defaultStream();
            rounds.repeat(
                    0,
                    200,
                    () -> {
                        spans.begin();
                        comm.allReduce(a, ReduceOp.SUM, stream);
                        comm.allReduce(a, ReduceOp.SUM, stream);
                    });
            rounds.assertNone();
            assertEquals(2, spans.end().size());
        }
    }

    /** The operation goes on, and a measurement that lacks one is none. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void anEventThatFailsEndsTheMeasurementAlone(int call) {
        try (Communicator comm = NcclRanks.open(1, NcclRanks.OPTIONS).getFirst();
                OperationSpans spans = OperationSpans.of(comm.device());
                Buffer a = comm.device().allocate(DataType.FLOAT32, 8)) {
            Stream stream = comm.device().defaultStream();
            spans.begin();
            TestFake.inject("cudaEventRecord:" + call + ":error=1");
            comm.allReduce(a, ReduceOp.SUM, stream);
            comm.allReduce(a, ReduceOp.SUM, stream);
            stream.synchronize();
            assertEquals(List.of(), spans.end());
            spans.begin();
            comm.allReduce(a, ReduceOp.SUM, stream);
            assertEquals(1, spans.end().size());
        }
    }

    @Test
    void oneAtATimeAndOnlyGpus() {
        OperationSpans first = OperationSpans.of(TestFake.device(0));
        String refused =
                Messages.of(
                        IllegalStateException.class, () -> OperationSpans.of(TestFake.device(1)));
        first.close();
        assertTrue(refused.contains("measured already, on cuda:0"), refused);
        OperationSpans second = OperationSpans.of(TestFake.device(1));
        first.close();
        Messages.of(IllegalStateException.class, () -> OperationSpans.of(TestFake.device(0)));
        second.close();
        String host =
                Messages.of(IllegalArgumentException.class, () -> OperationSpans.of(Device.host()));
        assertTrue(host.contains("expected a GPU"), host);
    }
}
