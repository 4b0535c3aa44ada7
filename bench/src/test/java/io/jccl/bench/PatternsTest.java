package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class PatternsTest {
    /** Every input and answer is read back from its bytes and recomputed with exact arithmetic. */
    @ParameterizedTest
    @EnumSource
    void answersAreExact(DataType type) {
        answersAreExact(type, new int[] {1, 2, 7});
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void answersAreExactForAllNumbersOfRanks(DataType type) {
        answersAreExact(type, IntStream.rangeClosed(1, 16).toArray());
    }

    private static void answersAreExact(DataType type, int[] ranks) {
        for (ReduceOp.Kind op : ReduceOp.Kind.values()) {
            for (int n : ranks) {
                ByteBuffer[] inputs = new ByteBuffer[n];
                for (int rank = 0; rank < n; rank++) {
                    inputs[rank] = table(type, op, rank, n);
                }
                ByteBuffer answers = table(type, op, Patterns.REDUCED, n);
                for (int i = 0; i < Patterns.PERIOD; i += 1 + i % 7) {
                    BigDecimal expected = reduce(type, op, inputs, i);
                    BigDecimal actual = value(answers, i, type);
                    assertEquals(
                            0,
                            expected.compareTo(actual),
                            type + " " + op + " n=" + n + " [" + i + "] " + expected + " "
                                    + actual);
                }
            }
        }
    }

    private static ByteBuffer table(DataType type, ReduceOp.Kind op, int rank, int n) {
        return ByteBuffer.wrap(Patterns.bytes(type, op, 7, rank, n)).order(ByteOrder.nativeOrder());
    }

    private static BigDecimal value(ByteBuffer from, int i, DataType type) {
        return type.isInteger()
                ? new BigDecimal(BigInteger.valueOf(Encoding.getLong(from, i, type)))
                : new BigDecimal(Encoding.getDouble(from, i, type));
    }

    private static BigDecimal reduce(DataType type, ReduceOp.Kind op, ByteBuffer[] in, int i) {
        BigDecimal result = scaled(type, op, in, 0, i);
        for (int rank = 1; rank < in.length; rank++) {
            BigDecimal x = scaled(type, op, in, rank, i);
            result =
                    switch (op) {
                        case SUM, AVG, PRE_MUL_SUM -> result.add(x);
                        case PROD -> result.multiply(x);
                        case MIN -> result.min(x);
                        case MAX -> result.max(x);
                    };
        }
        if (op != ReduceOp.Kind.AVG) {
            return result;
        }
        BigDecimal n = BigDecimal.valueOf(in.length);
        return type.isInteger()
                ? result.divide(n, 0, RoundingMode.DOWN)
                : result.divide(n, RoundingMode.UNNECESSARY);
    }

    private static BigDecimal scaled(
            DataType type, ReduceOp.Kind op, ByteBuffer[] in, int rank, int i) {
        int factor = op == ReduceOp.Kind.PRE_MUL_SUM ? Patterns.factor(rank) : 1;
        return value(in[rank], i, type).multiply(BigDecimal.valueOf(factor));
    }

    @ParameterizedTest
    @EnumSource
    void noAnswerIsPoison(DataType type) {
        byte[] poison = new byte[type.size()];
        Arrays.fill(poison, Patterns.poison(type));
        for (int op = -1; op < ReduceOp.Kind.values().length; op++) {
            ReduceOp.Kind kind = op < 0 ? null : ReduceOp.Kind.values()[op];
            byte[] table = Patterns.bytes(type, kind, 3, kind == null ? 1 : Patterns.REDUCED, 3);
            for (int i = 0; i < table.length; i += type.size()) {
                assertTrue(
                        !Arrays.equals(poison, 0, poison.length, table, i, i + type.size()),
                        type + " " + kind);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void valuesVary(DataType type) {
        for (ReduceOp.Kind op : ReduceOp.Kind.values()) {
            Set<BigDecimal> seen = new HashSet<>();
            ByteBuffer table = table(type, op, Patterns.REDUCED, 4);
            for (int i = 0; i < Patterns.PERIOD; i++) {
                seen.add(value(table, i, type));
            }
            assertTrue(seen.size() >= 3, type + " " + op + " " + seen);
        }
        assertNotEquals(
                Arrays.toString(Patterns.bytes(type, null, 1, 0, 2)),
                Arrays.toString(Patterns.bytes(type, null, 1, 1, 2)));
        assertNotEquals(
                Arrays.toString(Patterns.bytes(type, null, 1, 0, 2)),
                Arrays.toString(Patterns.bytes(type, null, 2, 0, 2)));
    }

    @Test
    void encodingRefusesWhatIsInexact() {
        ByteBuffer to = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
        for (DataType type : DataType.values()) {
            if (type.isInteger()) {
                Encoding.putLong(to, 0, type, 100);
                assertEquals(100, Encoding.getLong(to, 0, type));
            } else {
                Encoding.putDouble(to, 0, type, -1.5);
                assertEquals(-1.5, Encoding.getDouble(to, 0, type));
            }
        }
        assertThrows(
                ArithmeticException.class,
                () -> Encoding.putDouble(to, 0, DataType.FLOAT8E4M3, 17));
        assertThrows(
                ArithmeticException.class, () -> Encoding.putDouble(to, 0, DataType.FLOAT8E5M2, 9));
        assertThrows(
                ArithmeticException.class, () -> Encoding.putDouble(to, 0, DataType.BFLOAT16, 257));
        assertThrows(ArithmeticException.class, () -> Encoding.putLong(to, 0, DataType.INT8, 128));
    }

    @Test
    void float8FormatsHaveTheirLimits() {
        ByteBuffer to = ByteBuffer.allocate(1);
        Encoding.putDouble(to, 0, DataType.FLOAT8E4M3, 448);
        assertEquals(0x7e, to.get(0));
        Encoding.putDouble(to, 0, DataType.FLOAT8E4M3, Math.scalb(1.0, -9));
        assertEquals(1, to.get(0));
        Encoding.putDouble(to, 0, DataType.FLOAT8E5M2, 57344);
        assertEquals(0x7b, to.get(0));
        Encoding.putDouble(to, 0, DataType.FLOAT8E5M2, Double.POSITIVE_INFINITY);
        assertEquals(0x7c, to.get(0));
    }
}
