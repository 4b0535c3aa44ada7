package io.jccl.bench;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/** Fills buffers with a repeating table and counts the elements that differ from one. */
final class Checker {
    private Checker() {}

    /**
     * Writes elements of a table.
     *
     * @param to destination
     * @param at index of the first element there
     * @param count number of elements
     * @param table {@link Patterns#PERIOD} elements
     * @param from index of the first one in the endlessly repeated table
     */
    static void fill(Buffer to, long at, long count, MemorySegment table, long from) {
        if (to.device().kind() != Device.Kind.HOST) {
            try (Buffer part = to.slice(at, count);
                    Buffer stage = Device.host().allocate(to.dataType(), count)) {
                fill(stage, 0, count, table, from);
                part.copyFrom(stage.asSegment());
            }
            return;
        }
        MemorySegment memory = to.asSegment();
        int size = to.dataType().size();
        for (long done = 0; done < count; ) {
            long start = (from + done) % Patterns.PERIOD;
            long length = Math.min(Patterns.PERIOD - start, count - done);
            MemorySegment.copy(table, start * size, memory, (at + done) * size, length * size);
            done += length;
        }
    }

    /**
     * Sets all bytes.
     *
     * @param to where to
     */
    static void poison(Buffer to, byte value) {
        if (to.device().kind() == Device.Kind.HOST) {
            to.asSegment().fill(value);
            return;
        }
        try (Buffer stage = Device.host().allocate(to.dataType(), to.count())) {
            to.copyFrom(stage.asSegment().fill(value));
        }
    }

    /**
     * Counts elements that differ from a table's.
     *
     * @param in buffer to check
     * @param at index of the first element there
     * @param count number of elements
     * @param table {@link Patterns#PERIOD} elements
     * @param from index of the first one in the endlessly repeated table
     * @param most maximum difference; 0 if their bits must be equal
     * @return number of elements that differ
     */
    static long wrong(Buffer in, long at, long count, MemorySegment table, long from, double most) {
        if (in.device().kind() != Device.Kind.HOST) {
            try (Buffer part = in.slice(at, count);
                    Buffer stage = Device.host().allocate(in.dataType(), count)) {
                part.copyTo(stage.asSegment());
                return wrong(stage, 0, count, table, from, most);
            }
        }
        if (most > 0) {
            return far(in, at, count, table, from, most);
        }
        MemorySegment memory = in.asSegment();
        int size = in.dataType().size();
        long wrong = 0;
        for (long done = 0; done < count; ) {
            long start = (from + done) % Patterns.PERIOD;
            long length = Math.min(Patterns.PERIOD - start, count - done);
            wrong += wrong(memory, (at + done) * size, table, start * size, length, size);
            done += length;
        }
        return wrong;
    }

    private static long far(
            Buffer in, long at, long count, MemorySegment table, long from, double most) {
        double[] wanted = new double[Patterns.PERIOD];
        try (Buffer host = Device.host().allocate(in.dataType(), wanted.length)) {
            host.copyFrom(table);
            Arrays.setAll(wanted, host::get);
        }
        long wrong = 0;
        for (long i = 0; i < count; i++) {
            double off = in.get(at + i) - wanted[(int) ((from + i) % wanted.length)];
            wrong += Math.abs(off) <= most ? 0 : 1; // NaN is wrong
        }
        return wrong;
    }

    private static long wrong(
            MemorySegment memory, long at, MemorySegment table, long from, long count, int size) {
        long wrong = 0;
        long bytes = count * size;
        for (long done = 0; done < bytes; ) {
            long same =
                    MemorySegment.mismatch(
                            memory, at + done, at + bytes, table, from + done, from + bytes);
            if (same < 0) {
                break;
            }
            wrong++;
            done += (same / size + 1) * size;
        }
        return wrong;
    }
}
