package io.jccl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Collectives of a group meet once less each: every one must still see what the ones before it
 * left, in buffers that change their roles, and ranks need not group alike.
 */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class GroupMeetingTest {
    private static final int BLOCK = 5000;
    private static final int ROUNDS = 12;

    private static void operations(Communicator c, Buffer a, Buffer b, Buffer few, long[][] v) {
        Stream s = c.device().defaultStream();
        c.allToAllv(a, v[0], v[1], b, v[0], v[1], s);
        c.allToAll(b, a, s);
        c.allGather(few, s);
        c.allToAll(a, b, s);
        c.allReduce(b, b, ReduceOp.MAX, s);
        c.allReduce(few, few, ReduceOp.SUM, s);
        c.allToAllv(b, v[0], v[1], a, v[0], v[1], s);
        // In place, so what a rank has copied or pushed may still be read when the next one starts.
        c.allReduce(b, b, ReduceOp.SUM, s);
        c.allReduce(b.slice(b.count() - 4, 4), ReduceOp.SUM, s);
        c.allToAll(a, a, s);
        c.allReduce(a.slice(0, 4), ReduceOp.SUM, s);
    }

    @ParameterizedTest
    @ValueSource(ints = 3)
    void groupedAndSingleCallsGiveTheSame(int ranks) {
        Communicator.runLocal(
                ranks,
                c -> {
                    int n = ranks * BLOCK;
                    long[][] v = new long[2][ranks];
                    for (int r = 0; r < ranks; r++) {
                        v[0][r] = BLOCK;
                        v[1][r] = (long) r * BLOCK;
                    }
                    try (Buffer a = c.device().allocate(DataType.INT32, n);
                            Buffer b = c.device().allocate(DataType.INT32, n);
                            Buffer few = c.device().allocate(DataType.INT32, ranks)) {
                        for (int round = 0; round < ROUNDS; round++) {
                            int[][] single = run(c, a, b, few, v, round, false);
                            // All ranks group, or all but one.
                            boolean grouped = round % 2 == 0 || round % ranks != c.rank();
                            int[][] together = run(c, a, b, few, v, round, grouped);
                            for (int i = 0; i < single.length; i++) {
                                assertArrayEquals(single[i], together[i], "round " + round);
                            }
                        }
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 4})
    void groupedAndSingleCallsGiveTheSameOnOtherRanks(int ranks) {
        groupedAndSingleCallsGiveTheSame(ranks);
    }

    private static int[][] run(
            Communicator c,
            Buffer a,
            Buffer b,
            Buffer few,
            long[][] v,
            int round,
            boolean grouped) {
        for (int i = 0; i < a.count(); i++) {
            a.set(i, 1_000_000.0 * c.rank() + i + round);
        }
        for (int i = 0; i < few.count(); i++) {
            few.set(i, c.rank() + round);
        }
        if (grouped) {
            Group.run(c, () -> operations(c, a, b, few, v));
        } else {
            operations(c, a, b, few, v);
        }
        int[][] results = new int[3][];
        Buffer[] all = {a, b, few};
        for (int k = 0; k < all.length; k++) {
            results[k] = new int[(int) all[k].count()];
            for (int i = 0; i < results[k].length; i++) {
                results[k][i] = (int) all[k].get(i);
            }
        }
        return results;
    }
}
