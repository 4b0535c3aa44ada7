package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.testkit.Messages;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(value = 1, unit = TimeUnit.MINUTES)
class ReduceOpTest {
    private static final CommunicatorOptions OPTIONS =
            new CommunicatorOptions(Duration.ofSeconds(20), Algorithm.AUTO);

    /** Worked out by hand: what two ranks hold, and the result. */
    @ParameterizedTest
    @CsvSource({
        "INT8, sum, 100, 100, -56",
        "INT8, prod, 16, 16, 0",
        "INT8, avg, 100, 100, -28",
        "INT8, avg, -3, 0, -1",
        "INT8, min, -128, 127, -128",
        "UINT8, sum, 200, 100, 44",
        "UINT8, avg, 200, 100, 22",
        "UINT8, avg, 3, 0, 1",
        "UINT8, max, 128, 127, 128",
        "INT32, sum, 2147483647, 1, -2147483648",
        "INT32, avg, 2147483647, 1, -1073741824",
        "INT32, avg, -5, 0, -2",
        "UINT32, min, 4294967295, 1, 1",
        "UINT32, avg, 4294967295, 4294967295, 2147483647",
        "INT64, sum, 9223372036854775807, 1, -9223372036854775808",
        "INT64, prod, 4294967296, 4294967296, 0",
        "UINT64, max, 1, -1, -1",
        "UINT64, min, 1, -1, 1",
        "UINT64, avg, -1, 0, 9223372036854775807"
    })
    void integers(DataType type, String label, long first, long second, long expected) {
        ReduceOp op = ofLabel(label);
        Communicator.runLocal(
                2,
                OPTIONS,
                comm -> {
                    try (Buffer buffer = comm.device().allocate(type, 1)) {
                        buffer.setLong(0, comm.rank() == 0 ? first : second);
                        comm.allReduce(buffer, op, comm.device().defaultStream());
                        assertEquals(expected, buffer.getLong(0));
                    }
                });
    }

    /** Three ranks. The narrow rows are wrong if a sum is rounded before it is complete. */
    @ParameterizedTest
    @CsvSource({
        "FLOAT32, sum, 1, 2, 4, 7",
        "FLOAT32, avg, 1, 1, 2, 1.3333333730697632",
        "FLOAT64, avg, 1, 1, 2, 1.3333333333333333",
        "FLOAT16, sum, 2048, 1, 1, 2050",
        "FLOAT16, sum, 65504, 65504, -65504, 65504",
        "FLOAT16, sum, 65504, 65504, 1, Infinity",
        "FLOAT16, avg, 65504, 65504, 65504, 65504",
        "BFLOAT16, sum, 256, 1, 1, 258",
        "FLOAT8E4M3, sum, 448, 448, -448, 448",
        "FLOAT8E4M3, sum, 448, 448, 0, 448",
        "FLOAT8E4M3, prod, 16, -16, 16, -448",
        "FLOAT8E4M3, sum, 16, 1, 1, 18",
        "FLOAT8E5M2, sum, 57344, 57344, 0, 57344",
        "FLOAT8E5M2, sum, 8, 1, 1, 10",
        "FLOAT8E4M3, sum, NaN, 1, 1, NaN",
        "FLOAT32, min, -0.0, 0.0, 0.0, -0.0",
        "FLOAT32, max, -0.0, 0.0, -0.0, 0.0",
        "FLOAT64, min, 1, NaN, 2, NaN",
        "FLOAT16, max, 1, 2, NaN, NaN",
        "BFLOAT16, min, NaN, 2, 1, NaN",
        "FLOAT32, max, -Infinity, -1, -2, -1",
        "FLOAT32, sum, Infinity, -Infinity, 1, NaN"
    })
    void floats(DataType type, String label, double a, double b, double c, double expected) {
        double[] values = {a, b, c};
        ReduceOp op = ofLabel(label);
        for (Algorithm algorithm : Algorithm.values()) {
            Communicator.runLocal(
                    3,
                    OPTIONS.withAlgorithm(algorithm),
                    comm -> {
                        try (Buffer buffer = comm.device().allocate(type, 1)) {
                            buffer.set(0, values[comm.rank()]);
                            comm.allReduce(buffer, op, comm.device().defaultStream());
                            assertEquals(expected, buffer.get(0), algorithm::toString);
                        }
                    });
        }
    }

    @Test
    void factorsBelongToTheirRank() {
        double[] floatFactors = {0.5, -2, 3};
        long[] longFactors = {Long.MAX_VALUE, -1, 1L << 33};
        Communicator.runLocal(
                3,
                OPTIONS,
                comm -> {
                    var stream = comm.device().defaultStream();
                    int rank = comm.rank();
                    try (Buffer f = comm.device().allocate(DataType.FLOAT32, 1);
                            Buffer i = comm.device().allocate(DataType.INT32, 1);
                            Buffer l = comm.device().allocate(DataType.INT64, 1)) {
                        f.set(0, rank + 1);
                        comm.allReduce(f, ReduceOp.preMulSum(floatFactors[rank]), stream);
                        assertEquals(0.5 - 4 + 9, f.get(0));

                        i.setLong(0, 10);
                        comm.allReduce(i, ReduceOp.preMulSum(floatFactors[rank]), stream);
                        assertEquals(0 - 20 + 30, i.getLong(0), "the integer part of 0.5 is 0");

                        i.setLong(0, 3);
                        comm.allReduce(i, ReduceOp.preMulSum(longFactors[rank]), stream);
                        assertEquals(-3 - 3, i.getLong(0), "factors wrap to 32 bits");

                        l.setLong(0, 3);
                        comm.allReduce(l, ReduceOp.preMulSum(longFactors[rank]), stream);
                        long expected = 3 * (longFactors[0] + longFactors[1] + longFactors[2]);
                        assertEquals(expected, l.getLong(0));
                    }
                });
    }

    /** 0.1 has no exact float32: the factor is rounded first for all types but float64. */
    @Test
    void factorIsRoundedToFloat32() {
        Communicator.runLocal(
                1,
                OPTIONS,
                comm -> {
                    var stream = comm.device().defaultStream();
                    try (Buffer f = comm.device().allocate(DataType.FLOAT32, 1);
                            Buffer d = comm.device().allocate(DataType.FLOAT64, 1)) {
                        f.set(0, 3);
                        d.set(0, 3);
                        comm.allReduce(f, ReduceOp.preMulSum(0.1), stream);
                        comm.allReduce(d, ReduceOp.preMulSum(0.1), stream);
                        assertEquals(0.1f * 3, (float) f.get(0));
                        assertEquals(0.1 * 3, d.get(0));
                    }
                });
    }

    @Test
    void labelsAndEquality() {
        assertEquals("mulsum", ReduceOp.preMulSum(2.0).label());
        assertEquals("avg", ReduceOp.AVG.toString());
        assertTrue(ReduceOp.preMulSum(2.5).toString().contains("2.5"));
        assertEquals(ReduceOp.preMulSum(2.0), ReduceOp.preMulSum(2.0));
        assertEquals(ReduceOp.preMulSum(2.0).hashCode(), ReduceOp.preMulSum(2.0).hashCode());
        assertNotEquals(ReduceOp.preMulSum(2.0), ReduceOp.preMulSum(3.0));
        assertNotEquals(ReduceOp.preMulSum(1.0), ReduceOp.SUM);
        assertNotEquals(ReduceOp.SUM, ReduceOp.AVG);
        assertEquals(7, ReduceOp.preMulSum(7.9).factorBits(DataType.INT64));
        assertEquals(
                Float.floatToRawIntBits(0.1f),
                ReduceOp.preMulSum(0.1).factorBits(DataType.FLOAT16));
    }

    @Test
    void algorithmNames() {
        for (Algorithm a : Algorithm.values()) {
            assertEquals(a, Algorithm.ofName(a.name()));
            assertEquals(a, Algorithm.ofName(a.name().toLowerCase(java.util.Locale.ROOT)));
            assertEquals(a, Algorithm.ofName(a.name().replace('_', '-')));
        }
        assertEquals(Algorithm.RECURSIVE_DOUBLING, Algorithm.ofName("rd"));
        String message =
                Messages.of(IllegalArgumentException.class, () -> Algorithm.ofName("butterfly"));
        assertTrue(message.contains("butterfly") && message.contains("ring"), message);
    }

    @Test
    void optionsAreChecked() {
        CommunicatorOptions options = CommunicatorOptions.DEFAULT;
        assertEquals(Duration.ofMinutes(10), options.timeout());
        assertEquals(Algorithm.AUTO, options.algorithm());
        assertEquals(Algorithm.RING, options.withAlgorithm(Algorithm.RING).algorithm());
        for (Duration bad : List.of(Duration.ZERO, Duration.ofSeconds(-1))) {
            assertThrows(IllegalArgumentException.class, () -> options.withTimeout(bad));
        }
    }

    private static ReduceOp ofLabel(String label) {
        return List.of(ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
                .stream()
                .filter(op -> op.label().equals(label))
                .findFirst()
                .orElseThrow();
    }
}
