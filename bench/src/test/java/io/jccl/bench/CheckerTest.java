package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class CheckerTest {
    @ParameterizedTest
    @EnumSource
    void countsEachWrongElementOnce(DataType type) {
        long count = 3L * Patterns.PERIOD + 17;
        MemorySegment table = MemorySegment.ofArray(Patterns.bytes(type, null, 1, 0, 1));
        try (Buffer buffer = Device.host().allocate(type, count + 5)) {
            Checker.fill(buffer, 5, count, table, 100);
            assertEquals(0, Checker.wrong(buffer, 5, count, table, 100, 0));
            MemorySegment memory = buffer.asSegment();
            long last = (count + 5) * type.size() - 1;
            // Both ends of one element, the last byte of all, and two neighbours.
            flip(memory, 5L * type.size());
            flip(memory, 6L * type.size() - (type.size() == 1 ? 0 : 1));
            flip(memory, last);
            flip(memory, 5000L * type.size());
            flip(memory, 5001L * type.size());
            long wrong = type.size() == 1 ? 5 : 4;
            assertEquals(wrong, Checker.wrong(buffer, 5, count, table, 100, 0));
        }
    }

    @Test
    void averagesMayDifferByTheirRoundings() {
        DataType type = DataType.FLOAT16;
        ReduceOp.Kind op = ReduceOp.Kind.AVG;
        assertEquals(0, Patterns.tolerance(type, op, 4));
        assertEquals(0, Patterns.tolerance(DataType.INT32, op, 3));
        assertEquals(0, Patterns.tolerance(type, ReduceOp.Kind.SUM, 3));
        double most = Patterns.tolerance(type, op, 3);
        assertEquals(5 * 127 / 2048.0, most);
        byte[] bytes = Patterns.bytes(type, op, 1, Patterns.REDUCED, 3);
        MemorySegment table = MemorySegment.ofArray(bytes);
        try (Buffer buffer = Device.host().allocate(type, 100)) {
            Checker.fill(buffer, 0, 100, table, 7);
            buffer.set(3, buffer.get(3) + 0.25);
            buffer.set(4, buffer.get(4) + 0.5);
            buffer.set(5, Double.NaN);
            assertEquals(3, Checker.wrong(buffer, 0, 100, table, 7, 0));
            assertEquals(2, Checker.wrong(buffer, 0, 100, table, 7, most));
        }
    }

    private static void flip(MemorySegment memory, long at) {
        byte b = memory.get(ValueLayout.JAVA_BYTE, at);
        memory.set(ValueLayout.JAVA_BYTE, at, (byte) (b ^ 1));
    }
}
