package io.jccl.device;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.contract.Narrow;
import io.jccl.contract.Numbers;
import io.jccl.error.JcclException;
import io.jccl.testkit.Messages;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 1, unit = TimeUnit.MINUTES)
class BufferTest {
    private final Device host = Device.host();

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT8E4M3", "FLOAT8E5M2"})
    void everyCodeIsReadAndWrittenBack(DataType type) {
        Narrow format = Narrow.of(type);
        try (Buffer buffer = host.allocate(type, 1)) {
            MemorySegment memory = buffer.asSegment();
            for (int code = 0; code < format.codes(); code++) {
                Numbers.setBits(memory, 0, type.size(), code);
                double value = buffer.get(0);
                assertEquals(format.decode(code), value, type + " code " + code);
                buffer.set(0, value);
                long back = Numbers.bits(memory, 0, type.size());
                if (Double.isNaN(value)) {
                    assertTrue(Double.isNaN(buffer.get(0)), type + " NaN code " + code);
                } else {
                    assertEquals(format.encode(value), back, type + " code " + code + " again");
                }
            }
        }
    }

    /**
     * The middle between neighbours, where ties go to the even one, and one float64 step beside.
     */
    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT8E4M3", "FLOAT8E5M2"})
    void valuesBetweenCodesAreRoundedOnce(DataType type) {
        Narrow format = Narrow.of(type);
        try (Buffer buffer = host.allocate(type, 1)) {
            for (int code = 0; code + 1 < format.codes() / 2; code++) {
                double middle = (format.decode(code) + format.decode(code + 1)) / 2;
                if (Double.isFinite(middle)) {
                    for (double v : around(middle)) {
                        assertSets(buffer, v);
                        assertSets(buffer, -v);
                    }
                }
            }
        }
    }

    private static double[] around(double v) {
        return new double[] {
            v, Math.nextUp(v), Math.nextDown(v), Math.nextUp((float) v), Math.nextDown((float) v)
        };
    }

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT8E4M3", "FLOAT8E5M2"})
    void valuesBeyondTheLargestSaturateOrBecomeInfinite(DataType type) {
        Narrow format = Narrow.of(type);
        try (Buffer buffer = host.allocate(type, 1)) {
            double max = format.max();
            double step = max - format.decode(format.encode(max) - 1);
            for (double v :
                    new double[] {
                        max,
                        max + step / 2,
                        max + step,
                        2 * max,
                        1e30,
                        3.5e38,
                        1e300,
                        Double.MAX_VALUE,
                        Double.POSITIVE_INFINITY,
                        Double.MIN_VALUE,
                        1e-300,
                        0.0
                    }) {
                for (double x : around(v)) {
                    assertSets(buffer, x);
                    assertSets(buffer, -x);
                }
            }
            buffer.set(0, Double.NaN);
            assertTrue(Double.isNaN(buffer.get(0)));
            buffer.set(0, Double.POSITIVE_INFINITY);
            boolean saturates = type.size() == 1;
            assertEquals(saturates ? max : Double.POSITIVE_INFINITY, buffer.get(0));
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT8E4M3", "FLOAT8E5M2"})
    void randomValuesAreRoundedToNearest(DataType type) {
        long seed = Long.getLong("jccl.seed", System.nanoTime() & 0xFFFFFFF);
        System.out.println("BufferTest: -Djccl.seed=" + seed);
        SplittableRandom random = new SplittableRandom(seed);
        try (Buffer buffer = host.allocate(type, 1)) {
            for (int i = 0; i < 100_000; i++) {
                int exponent = random.nextInt(-140, 130);
                assertSets(buffer, Math.scalb(random.nextDouble(-1, 1), exponent));
            }
        }
    }

    private static void assertSets(Buffer buffer, double value) {
        DataType type = buffer.dataType();
        buffer.set(0, value);
        long actual = Numbers.bits(buffer.asSegment(), 0, type.size());
        long expected = Narrow.of(type).encode(value);
        if (actual != expected && !Double.isNaN(value)) {
            throw new AssertionError(
                    type
                            + " from "
                            + value
                            + " ("
                            + Double.toHexString(value)
                            + ") is "
                            + Numbers.text(type, actual)
                            + ", expected "
                            + Numbers.text(type, expected));
        }
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void integersAreCutOffAndWrap(DataType type) {
        double[] values = {
            0,
            -0.0,
            0.9,
            -0.9,
            1.5,
            -1.5,
            127,
            128,
            255,
            256,
            -128,
            -129,
            -300.7,
            2147483647.0,
            2147483648.0,
            4294967295.0,
            4294967296.5,
            -2147483649.0,
            0x1p53,
            0x1p62,
            0x1p63,
            0x1.8p63,
            -0x1p63
        };
        try (Buffer buffer = host.allocate(type, 3)) {
            for (double value : values) {
                if (value >= 0x1p63 && type != DataType.UINT64) {
                    continue; // C leaves open what does not fit a 64-bit integer
                }
                buffer.set(1, value);
                if (type.isInteger()) {
                    long expected = new BigDecimal(value).toBigInteger().longValue();
                    expected = Numbers.integer(type, Numbers.mask(type, expected));
                    assertEquals(expected, buffer.getLong(1), type + " from " + value);
                    boolean large = type == DataType.UINT64 && expected < 0;
                    double back = large ? expected + 0x1p64 : expected;
                    assertEquals(back, buffer.get(1), type + " from " + value);
                }
                assertEquals(0, buffer.get(0));
                assertEquals(0, buffer.get(2));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void longsKeepAllBits(DataType type) {
        try (Buffer buffer = host.allocate(type, 1)) {
            if (!type.isInteger()) {
                assertThrows(UnsupportedOperationException.class, () -> buffer.getLong(0));
                assertThrows(UnsupportedOperationException.class, () -> buffer.setLong(0, 1));
                return;
            }
            for (long v : new long[] {0, 1, -1, 200, Long.MIN_VALUE, Long.MAX_VALUE, 1L << 31}) {
                buffer.setLong(0, v);
                long expected = Numbers.integer(type, Numbers.mask(type, v));
                assertEquals(expected, buffer.getLong(0), type + " from " + v);
            }
        }
    }

    @Test
    void wideFloatsAreStoredAsTheyAre() {
        try (Buffer f = host.allocate(DataType.FLOAT32, 1);
                Buffer d = host.allocate(DataType.FLOAT64, 1)) {
            for (double v : new double[] {0.1, -0.0, Double.MIN_VALUE, 1e300, Double.NaN}) {
                f.set(0, v);
                d.set(0, v);
                assertEquals((double) (float) v, f.get(0));
                assertEquals(v, d.get(0));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void newMemoryIsZeroAndAligned(DataType type) {
        for (long count : new long[] {0, 1, 7, 1000}) {
            try (Buffer buffer = host.allocate(type, count)) {
                assertEquals(count, buffer.count());
                assertEquals(count * type.size(), buffer.byteSize());
                assertEquals(type, buffer.dataType());
                assertEquals(Device.Kind.HOST, buffer.device().kind());
                assertEquals(count * type.size(), buffer.asSegment().byteSize());
                if (count > 0) {
                    assertEquals(0, buffer.address() % 64);
                    assertEquals(buffer.asSegment().address(), buffer.address());
                }
                for (byte b : buffer.asSegment().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE)) {
                    assertEquals(0, b);
                }
            }
        }
    }

    @Test
    void reusedMemoryIsZeroAgain() {
        for (int i = 0; i < 50; i++) {
            try (Buffer buffer = host.allocate(DataType.UINT8, 5000)) {
                long dirty = buffer.asSegment().mismatch(MemorySegment.ofArray(new byte[5000]));
                assertEquals(-1, dirty);
                buffer.asSegment().fill((byte) 9);
            }
        }
    }

    @Test
    void slicesShareTheElements() {
        try (Buffer all = host.allocate(DataType.INT32, 10)) {
            Buffer part = all.slice(3, 4);
            part.setLong(0, 5);
            all.setLong(6, 7);
            assertEquals(5, all.getLong(3));
            assertEquals(7, part.getLong(3));
            assertEquals(all.address() + 12, part.address());
            assertEquals(7, part.slice(3, 1).getLong(0));
            assertEquals(0, all.slice(10, 0).count());
            for (long[] bad : new long[][] {{-1, 2}, {0, 11}, {10, 1}, {3, -1}, {11, 0}}) {
                assertThrows(
                        IndexOutOfBoundsException.class,
                        () -> all.slice(bad[0], bad[1]),
                        () -> bad[0] + ", " + bad[1]);
            }
            assertThrows(IndexOutOfBoundsException.class, () -> part.slice(2, 3));
            assertThrows(IndexOutOfBoundsException.class, () -> all.slice(1, Long.MAX_VALUE));
            for (long i : new long[] {-1, 4, Long.MAX_VALUE, Long.MAX_VALUE / 2}) {
                assertThrows(IndexOutOfBoundsException.class, () -> part.getLong(i), "get " + i);
                assertThrows(IndexOutOfBoundsException.class, () -> part.set(i, 1), "set " + i);
            }
            assertSame(all.slice(3, 4), all.slice(3, 4), "no garbage in a loop");
            assertEquals(5, all.slice(3, 5).count());
            assertEquals(all.address() + 16, all.slice(4, 5).address());
            part.close();
            assertDoesNotThrow(() -> all.getLong(3), "closing a view leaves the memory");
        }
    }

    @Test
    void closedBuffersRefuse() {
        Buffer buffer = host.allocate(DataType.FLOAT32, 4);
        Buffer part = buffer.slice(1, 2);
        buffer.close();
        buffer.close();
        assertThrows(IllegalStateException.class, buffer::asSegment);
        assertThrows(IllegalStateException.class, () -> buffer.get(0));
        assertThrows(IllegalStateException.class, () -> buffer.set(0, 1));
        assertThrows(IllegalStateException.class, buffer::zero);
        assertThrows(IllegalStateException.class, () -> part.get(0), "a view ends with its buffer");
        assertThrows(IllegalStateException.class, part::asSegment);
    }

    @Test
    void wrapsWhatOthersOwn() {
        float[] array = {1, 2, 3};
        Buffer overArray = Buffer.wrap(MemorySegment.ofArray(array), DataType.FLOAT32);
        overArray.set(1, 9);
        assertEquals(9, array[1]);
        overArray.close();
        overArray.close();
        array[2] = 4;

        ByteBuffer direct = ByteBuffer.allocateDirect(16);
        Buffer overDirect = Buffer.wrap(MemorySegment.ofBuffer(direct), DataType.INT32);
        overDirect.setLong(0, -1);
        assertEquals(-1, direct.get(3));

        try (Arena arena = Arena.ofShared()) {
            MemorySegment memory = arena.allocate(40);
            Buffer odd = Buffer.wrap(memory.asSlice(1, 32), DataType.FLOAT64);
            odd.set(3, 2.5);
            assertEquals(2.5, odd.get(3));
            Buffer raw = Buffer.wrapAddress(memory.address() + 1, DataType.FLOAT64, 4);
            assertEquals(2.5, raw.get(3));
            assertEquals(memory.address() + 1, raw.address());
            raw.close();
            assertEquals(2.5, odd.get(3));
        }
    }

    @Test
    void wrapRefusesWhatOtherThreadsCannotUse() {
        MemorySegment seven = MemorySegment.ofArray(new byte[7]);
        String message =
                Messages.of(
                        IllegalArgumentException.class, () -> Buffer.wrap(seven, DataType.FLOAT32));
        assertTrue(message.contains("7") && message.contains("4"), message);
        MemorySegment readOnly = MemorySegment.ofArray(new byte[8]).asReadOnly();
        assertThrows(IllegalArgumentException.class, () -> Buffer.wrap(readOnly, DataType.FLOAT32));
        try (Arena confined = Arena.ofConfined()) {
            MemorySegment memory = confined.allocate(8);
            assertThrows(
                    IllegalArgumentException.class, () -> Buffer.wrap(memory, DataType.FLOAT32));
        }
        assertThrows(
                IllegalArgumentException.class,
                () -> Buffer.wrapAddress(4096, DataType.FLOAT32, -1));
        assertThrows(
                IllegalArgumentException.class, () -> Buffer.wrapAddress(0, DataType.FLOAT32, 1));
        assertEquals(0, Buffer.wrapAddress(0, DataType.FLOAT32, 0).count());
    }

    @ParameterizedTest
    @ValueSource(longs = {-1, Long.MIN_VALUE, Long.MAX_VALUE, Long.MAX_VALUE / 8 + 1})
    void impossibleCountsAreRefused(long count) {
        String message =
                Messages.of(
                        IllegalArgumentException.class,
                        () -> host.allocate(DataType.FLOAT64, count));
        assertTrue(message.contains(Long.toString(count)), message);
    }

    @Test
    void memoryThatIsNotToBeHadIsAnErrorOfOurs() {
        long count = 1L << 56;
        String message =
                Messages.of(JcclException.class, () -> host.allocate(DataType.UINT8, count));
        assertTrue(message.matches("(?s).*\\d.*"), message);
    }

    @Test
    void arraysAreCopiedInAndOut() {
        float[] in = {1, -2, 3.5f};
        float[] out = new float[3];
        try (Buffer buffer = host.allocate(DataType.FLOAT32, 3);
                Buffer other = host.allocate(DataType.INT32, 3)) {
            buffer.copyFrom(in).copyTo(out);
            assertArrayEquals(in, out);
            assertThrows(IllegalArgumentException.class, () -> buffer.copyFrom(new float[2]));
            assertThrows(IllegalArgumentException.class, () -> buffer.copyTo(new float[4]));
            assertThrows(IllegalArgumentException.class, () -> other.copyFrom(in));
            assertFalse(buffer.zero().get(2) != 0);
        }
    }
}
