package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.bench.PerfConfig.Average;
import io.jccl.bench.PerfConfig.Blocking;
import io.jccl.bench.PerfConfig.Timing;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What ranks of a benchmark tell each other, and how they notice that it does not arrive. */
@Timeout(value = 60, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ExchangeTest {
    @ParameterizedTest
    @CsvSource({"RANK_0, 5", "MEAN, 4", "MIN, 1", "MAX, 6"})
    void oneTimeOfAllRanks(Average which, double expected) {
        double[] times = {5, 1, 6};
        Communicator.runLocal(
                3,
                c -> {
                    try (Exchange e = new Exchange(c, 4)) {
                        double mine = times[c.rank()];
                        assertArrayEquals(
                                new double[] {expected, 2 * expected},
                                e.average(which, mine, 2 * mine));
                    }
                });
    }

    @Test
    void everyRankLearnsWhereAllRun() {
        Communicator.runLocal(
                3,
                c -> {
                    try (Exchange e = new Exchange(c, 4)) {
                        List<Report.RankInfo> infos = e.gather(c.rank() % 2);
                        assertEquals(3, infos.size());
                        for (int r = 0; r < 3; r++) {
                            Report.RankInfo info = infos.get(r);
                            assertEquals(r, info.rank());
                            assertEquals(r % 2, info.group());
                            assertEquals(ProcessHandle.current().pid(), info.pid());
                            assertEquals(c.engine(), info.engine());
                            assertTrue(info.processors() > 0);
                        }
                    }
                });
    }

    /** A communicator that leaves out one operation, as an engine without kernels would. */
    private static Communicator without(String operation, Communicator comm) {
        return (Communicator)
                Proxy.newProxyInstance(
                        ExchangeTest.class.getClassLoader(),
                        new Class<?>[] {Communicator.class},
                        (proxy, method, args) -> {
                            if (method.getName().equals(operation)) {
                                return null;
                            }
                            try {
                                return method.invoke(comm, args);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    @Test
    void cardsThatDoNotArriveAreNoticed() {
        Communicator.runLocal(
                2,
                c -> {
                    try (Exchange e = new Exchange(without("allGather", c), 4)) {
                        String message =
                                assertThrows(JcclException.class, () -> e.gather(0)).getMessage();
                        assertTrue(
                                String.valueOf(message).contains("for rank " + (1 - c.rank())),
                                message);
                        assertTrue(String.valueOf(message).contains("moves wrong data"), message);
                        assertTrue(String.valueOf(message).contains("jccl selftest"), message);
                    }
                });
    }

    /** A card that arrives whole, and holds what no rank of this version sends. */
    @ParameterizedTest
    @CsvSource({
        "'x1,0,0,4,host,0,cpu', '\"x1\"', process id",
        "'1,zero,0,4,host,0,cpu', '\"zero\"', group",
        "'1,0,,4,host,0,cpu', '\"\"', device index",
        "'1,0,0,4.5,host,0,cpu', '\"4.5\"', count of processors",
        "'1,0', 2 lines, 7 lines"
    })
    void cardsOfAnotherVersionAreNoticed(String lines, String got, String expected) {
        byte[] text = lines.replace(',', '\n').getBytes(StandardCharsets.UTF_8);
        CRC32 crc = new CRC32();
        crc.update(text);
        byte[] card =
                ByteBuffer.allocate(8 + text.length)
                        .putInt(text.length)
                        .putInt((int) crc.getValue())
                        .put(text)
                        .array();
        Communicator.runLocal(
                1,
                c -> {
                    Communicator other =
                            (Communicator)
                                    Proxy.newProxyInstance(
                                            ExchangeTest.class.getClassLoader(),
                                            new Class<?>[] {Communicator.class},
                                            (proxy, method, args) -> {
                                                if (method.getName().equals("allGather")) {
                                                    ((Buffer) args[0])
                                                            .slice(0, card.length)
                                                            .copyFrom(MemorySegment.ofArray(card));
                                                    return null;
                                                }
                                                return method.invoke(c, args);
                                            });
                    try (Exchange e = new Exchange(other, 4)) {
                        String message =
                                String.valueOf(
                                        assertThrows(JcclException.class, () -> e.gather(0))
                                                .getMessage());
                        assertTrue(message.contains("rank 0 sent " + got), message);
                        assertTrue(message.contains(expected), message);
                        assertTrue(message.contains("jccl version"), message);
                    }
                });
    }

    /** Numbers that cannot follow from what the ranks gave, each with the reduction. */
    @ParameterizedTest
    @ValueSource(doubles = {Double.NaN, -1, 0.5, Double.POSITIVE_INFINITY})
    void numbersThatCannotBeAreNoticed(double wrong) {
        Communicator.runLocal(
                1,
                c -> {
                    Communicator broken =
                            (Communicator)
                                    Proxy.newProxyInstance(
                                            ExchangeTest.class.getClassLoader(),
                                            new Class<?>[] {Communicator.class},
                                            (proxy, method, args) -> {
                                                if (method.getName().equals("allReduce")) {
                                                    ((Buffer) args[0]).set(0, wrong);
                                                    return null;
                                                }
                                                return method.invoke(c, args);
                                            });
                    try (Exchange e = new Exchange(broken, 4)) {
                        String message =
                                assertThrows(JcclException.class, () -> e.combine(ReduceOp.MAX, 2))
                                        .getMessage();
                        assertTrue(String.valueOf(message).contains("gave " + wrong), message);
                        assertTrue(String.valueOf(message).contains("this rank gave 2.0"), message);
                    }
                });
    }

    private static PerfConfig config(Collective collective, List<Long> sizes) {
        return new PerfConfig(
                collective,
                1,
                3,
                sizes.getFirst(),
                sizes.getLast(),
                1,
                2,
                sizes,
                new Timing(
                        20, true, 1, 1, 1, Blocking.NONE, false, 0, 0, Average.MEAN, false, false),
                1,
                List.of(DataType.FLOAT32, DataType.INT8),
                List.of(ReduceOp.Kind.SUM, ReduceOp.Kind.MAX),
                0,
                new PerfConfig.Memory(0, 0, false),
                Split.NONE,
                -1,
                CommunicatorOptions.DEFAULT,
                List.of(),
                List.of());
    }

    /** Ranks that stopped at different operations would wait for each other. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"ALL_REDUCE, 4", "BROADCAST, 2", "SEND_RECV, 2"})
    void ranksStopToWarmUpAtTheSameOperation(Collective collective, int paths) {
        Set<Report.WarmUp> seen = ConcurrentHashMap.newKeySet();
        Patterns patterns = new Patterns(3);
        PerfConfig config = config(collective, List.of(8L, 4096L, 65536L, 1L << 30));
        Communicator.runLocal(
                3,
                c -> {
                    try (Exchange e = new Exchange(c, 64)) {
                        seen.add(new WarmUpPhase(config, c, patterns, e).run());
                        assertEquals(3, e.combine(ReduceOp.SUM, 1)[0]);
                    }
                });
        assertEquals(1, seen.size(), seen::toString);
        Report.WarmUp warmUp = new HashSet<>(seen).iterator().next();
        assertEquals(paths, warmUp.paths());
        assertTrue(warmUp.operations() > 0, warmUp::toString);
        assertTrue(warmUp.steady() <= paths, warmUp::toString);
    }
}
