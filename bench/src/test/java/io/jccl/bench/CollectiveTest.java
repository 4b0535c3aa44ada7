package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.Shape.Layout;
import java.util.Arrays;
import java.util.EnumSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class CollectiveTest {
    @ParameterizedTest
    @CsvSource({
        "ALL_REDUCE, 1.75",
        "ALL_GATHER, 0.875",
        "REDUCE_SCATTER, 0.875",
        "BROADCAST, 1",
        "REDUCE, 1",
        "SCATTER, 0.875",
        "GATHER, 0.875",
        "ALL_TO_ALL, 0.875",
        "ALL_TO_ALL_V, 0.875",
        "ALL_GATHER_V, 0.875",
        "REDUCE_SCATTER_V, 0.875",
        "SCATTER_V, 0.875",
        "GATHER_V, 0.875",
        "SEND_RECV, 1",
        "HYPERCUBE, 1",
        "BARRIER, 0",
    })
    void busFactorOfEightRanks(Collective collective, double factor) {
        assertEquals(factor, collective.busFactor(8));
    }

    /** What nccl-tests divides by the time: of a hypercube, what comes from other ranks. */
    @ParameterizedTest
    @EnumSource
    void algorithmBandwidthCountsTheWholeSize(Collective collective) {
        assertEquals(collective == Collective.HYPERCUBE ? 0.875 : 1, collective.algFactor(8));
    }

    @Test
    void aHypercubeNeedsAPowerOfTwo() {
        for (int n = 1; n <= 16; n *= 2) {
            Collective.HYPERCUBE.checkRanks(n);
        }
        String message =
                assertThrows(
                                IllegalArgumentException.class,
                                () -> Collective.HYPERCUBE.checkRanks(6))
                        .getMessage();
        assertTrue(
                String.valueOf(message).contains("6 ranks")
                        && String.valueOf(message).contains("4 or 8 ranks"),
                message);
        Collective.ALL_REDUCE.checkRanks(6);
    }

    @Test
    void blocksAreRoundedDownTo16Bytes() {
        assertEquals(new Shape(250, 250, 250, 0, 0, 3), Layout.FLAT.shape(1000, 4, 3));
        assertEquals(new Shape(80, 80, 240, 80, 0, 3), Layout.GATHERED.shape(1000, 4, 3));
        assertEquals(new Shape(80, 240, 80, 0, 80, 3), Layout.SCATTERED.shape(1000, 4, 3));
        assertEquals(new Shape(80, 240, 240, 0, 0, 3), Layout.EXCHANGED.shape(1000, 4, 3));
        assertEquals(new Shape(0, 0, 0, 0, 0, 2), Layout.EXCHANGED.shape(8, 4, 2));
        assertEquals(320, Layout.GATHERED.shape(1000, 1, 3).count());
        assertEquals(40, Layout.GATHERED.shape(1000, 8, 3).count());
    }

    @Test
    void unevenCountsAgreeAndAddUp() {
        for (int n = 1; n <= 17; n++) {
            Shape shape = Layout.UNEVEN.shape(1 << 20, 4, n);
            for (int i = 0; i < n; i++) {
                assertEquals(shape.send(), Arrays.stream(shape.unevenCounts(i, true)).sum());
                assertEquals(shape.recv(), Arrays.stream(shape.unevenCounts(i, false)).sum());
                for (int j = 0; j < n; j++) {
                    assertEquals(shape.unevenCounts(i, true)[j], shape.unevenCounts(j, false)[i]);
                }
            }
        }
    }

    @Test
    void unevenBlocksAddUpToTheSize() {
        assertEquals(new Shape(80, 160, 240, 0, 0, 3), Layout.GATHERED_UNEVEN.shape(1000, 4, 3));
        Shape scattered = Layout.SCATTERED_UNEVEN.shape(1000, 4, 3);
        assertEquals(new Shape(80, 240, 160, 0, 0, 3), scattered);
        assertEquals("[0, 80, 160]", Arrays.toString(scattered.unevenBlocks()));
        assertEquals("[248]", Arrays.toString(Layout.UNEVEN.shape(1000, 4, 1).unevenBlocks()));
    }

    /** Each element of a result is expected once, from within what its source sends. */
    @ParameterizedTest
    @EnumSource
    void expectationsCoverTheResult(Collective collective) {
        for (int n = 1; n <= 5; n++) {
            Shape shape = collective.layout().shape(4096, 4, n);
            for (int root = 0; root < n; root++) {
                for (int rank = 0; rank < n; rank++) {
                    int[] seen = new int[(int) shape.recv()];
                    collective.expected(
                            rank,
                            root,
                            shape,
                            (at, count, source, from) -> {
                                assertEquals(0, Math.min(0, shape.send() - from - count));
                                for (long i = at; i < at + count; i++) {
                                    seen[(int) i]++;
                                }
                            });
                    boolean receives =
                            rank == root
                                    || !EnumSet.of(
                                                    Collective.REDUCE,
                                                    Collective.GATHER,
                                                    Collective.GATHER_V)
                                            .contains(collective);
                    int[] once = new int[seen.length];
                    // Where blocks are unequal, the buffers of all have room for the largest.
                    boolean own = collective.layout() == Layout.SCATTERED_UNEVEN;
                    int filled = own ? (int) shape.unevenBlocks()[rank] : once.length;
                    Arrays.fill(once, 0, filled, receives ? 1 : 0);
                    assertEquals(Arrays.toString(once), Arrays.toString(seen));
                }
            }
        }
    }
}
