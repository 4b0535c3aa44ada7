package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.parallel.ParameterSync.Tensor;
import io.jccl.testkit.Messages;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Replicas made equal, and differences found. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ParameterSyncTest {
    private static List<Tensor> tensors(Communicator c, DataType type, long... counts) {
        List<Tensor> all = new ArrayList<>();
        for (long count : counts) {
            all.add(new Tensor("t" + all.size(), c.device().allocate(type, count)));
        }
        return all;
    }

    @ParameterizedTest
    @ValueSource(ints = 3)
    void broadcastMakesEqual(int ranks) {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("ParameterSyncTest: " + ranks + " ranks, -Djccl.seed=" + seed);
        Communicator.runLocal(ranks, c -> ParallelBodies.sync(c, seed));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void broadcastMakesEqualOnMoreRanks(int ranks) {
        broadcastMakesEqual(ranks);
    }

    @Tag("exhaustive")
    @Test
    void oneElementInManyIsFound() {
        Communicator.runLocal(
                4,
                c -> {
                    List<Tensor> tensors = tensors(c, DataType.FLOAT32, 10, 3_000_001, 5);
                    if (c.rank() == 2) {
                        tensors.get(1).values().set(2_345_678, -0.0);
                        tensors.get(2).values().set(0, 1);
                    }
                    ParameterSync.Difference d = ParameterSync.compare(c, tensors).orElseThrow();
                    assertEquals("t1", d.tensor());
                    assertEquals(1, d.index());
                    assertEquals(0, d.reference());
                    assertEquals(List.of(2), d.ranks());
                    assertEquals(2_345_678, d.element());
                    assertEquals(0.0, d.expected());
                    assertEquals(-0.0, d.found());
                    String m =
                            Messages.of(
                                    IllegalStateException.class,
                                    () -> ParameterSync.requireEqual(c, tensors));
                    assertTrue(m.contains("'t1'") && m.contains("2345678"), m);
                    ParameterSync.broadcast(c, tensors, 2);
                    ParameterSync.requireEqual(c, tensors);
                    assertEquals(1, tensors.get(2).values().get(0));
                });
    }

    /** The odd one out is named, also if it is rank 0. */
    @Test
    void majorityIsTheReference() {
        Communicator.runLocal(
                3,
                c -> {
                    List<Tensor> tensors = tensors(c, DataType.BFLOAT16, 7);
                    tensors.getFirst().values().set(6, c.rank() == 0 ? 3 : 5);
                    ParameterSync.Difference d = ParameterSync.compare(c, tensors).orElseThrow();
                    assertEquals(1, d.reference());
                    assertEquals(List.of(0), d.ranks());
                    assertEquals(6, d.element());
                    assertEquals(5, d.expected());
                    assertEquals(3, d.found());
                    assertTrue(d.toString().contains("rank 0"), d.toString());
                });
    }

    @Test
    void differentTensorsAreNamed() {
        Communicator.runLocal(
                2,
                c -> {
                    List<Tensor> tensors = tensors(c, DataType.FLOAT32, 4, 5 + c.rank());
                    for (boolean compare : new boolean[] {true, false}) {
                        String m =
                                Messages.of(
                                        CollectiveMismatchException.class,
                                        () -> {
                                            if (compare) {
                                                ParameterSync.compare(c, tensors);
                                            } else {
                                                ParameterSync.broadcast(c, tensors, 0);
                                            }
                                        });
                        assertTrue(m.contains("t1, 5 of float") && m.contains("t1, 6"), m);
                    }
                    try (Buffer none = c.device().allocate(DataType.INT8, 0)) {
                        ParameterSync.requireEqual(c, List.of(new Tensor("none", none)));
                        ParameterSync.requireEqual(c, List.of());
                    }
                });
    }
}
