package io.jccl.cli.flight;

import java.util.Arrays;

/**
 * The recorded operations of one rank of one communicator, in order of their numbers. Takes about
 * 50 bytes per operation.
 *
 * <p><b>Threads:</b> filled by one; any may read after {@link #sort}.
 */
final class Track {
    /** State of an operation. */
    static final byte ENQUEUED = 0;

    static final byte COMPLETED = 1;
    static final byte FAILED = 2;
    static final byte PENDING = 3;

    /** An end that was not recorded. */
    static final long UNKNOWN = Long.MIN_VALUE;

    private static final int FIRST = 1024;

    /** Bits that hold an index while numbers are sorted. */
    private static final int INDEX_BITS = 24;

    final int rank;
    int size;
    long[] number = new long[FIRST];
    long[] sequence = new long[FIRST];
    long[] count = new long[FIRST];
    long[] bytes = new long[FIRST];
    long[] start = new long[FIRST];
    long[] end = new long[FIRST];
    int[] signature = new int[FIRST];
    byte[] state = new byte[FIRST];

    /** All operations up to this number have completed, as observed by the rank; 0 if unknown. */
    long progress;

    /** Position of its thread; empty if unknown. */
    String site = "";

    /** Its machine and process; empty if unknown. */
    String process = "";

    /** Number of operations before the first known one. */
    long forgotten;

    Track(int rank) {
        this.rank = rank;
    }

    void add(
            long number,
            long sequence,
            int signature,
            long count,
            long bytes,
            long start,
            long end,
            byte state) {
        if (size == this.number.length) {
            grow();
        }
        int i = size++;
        this.number[i] = number;
        this.sequence[i] = sequence;
        this.signature[i] = signature;
        this.count[i] = count;
        this.bytes[i] = bytes;
        this.start[i] = start;
        this.end[i] = end;
        this.state[i] = state;
    }

    private void grow() {
        int length = number.length * 3 / 2;
        if (length >= 1 << INDEX_BITS) {
            throw new IllegalArgumentException(
                    "rank "
                            + rank
                            + " has more than "
                            + ((1 << INDEX_BITS) / 3 * 2)
                            + " operations on one communicator; give recordings of a shorter time");
        }
        number = Arrays.copyOf(number, length);
        sequence = Arrays.copyOf(sequence, length);
        count = Arrays.copyOf(count, length);
        bytes = Arrays.copyOf(bytes, length);
        start = Arrays.copyOf(start, length);
        end = Arrays.copyOf(end, length);
        signature = Arrays.copyOf(signature, length);
        state = Arrays.copyOf(state, length);
    }

    /**
     * Adds the operations of another recording of the same rank; {@link #sort} removes duplicates.
     */
    void addAll(Track other, int[] signatures) {
        for (int i = 0; i < other.size; i++) {
            add(
                    other.number[i],
                    other.sequence[i],
                    signatures[other.signature[i]],
                    other.count[i],
                    other.bytes[i],
                    other.start[i],
                    other.end[i],
                    other.state[i]);
        }
        progress = Math.max(progress, other.progress);
        site = site.isEmpty() ? other.site : site;
        process = process.isEmpty() ? other.process : process;
    }

    /** Sorts operations; of duplicates keeps the one with an end, since recordings may overlap. */
    void sort() {
        if (size == 0) {
            return;
        }
        long base = Long.MAX_VALUE;
        for (int i = 0; i < size; i++) {
            base = Math.min(base, number[i]);
        }
        long[] keys = new long[size];
        boolean sorted = true;
        for (int i = 0; i < size; i++) {
            keys[i] = ((number[i] - base) << INDEX_BITS) | i;
            sorted &= i == 0 || number[i] > number[i - 1];
        }
        if (!sorted) {
            Arrays.sort(keys);
            permute(keys);
        }
        forgotten = number[0] - 1;
        for (int i = 0; i < size; i++) {
            if (number[i] <= progress && state[i] != FAILED) {
                state[i] = COMPLETED;
            }
        }
    }

    private void permute(long[] keys) {
        int mask = (1 << INDEX_BITS) - 1;
        int[] order = new int[size];
        int n = 0;
        for (long key : keys) {
            int i = (int) key & mask;
            if (n > 0 && number[order[n - 1]] == number[i]) {
                if (end[order[n - 1]] == UNKNOWN) {
                    order[n - 1] = i;
                }
                continue;
            }
            order[n++] = i;
        }
        number = pick(number, order, n);
        sequence = pick(sequence, order, n);
        count = pick(count, order, n);
        bytes = pick(bytes, order, n);
        start = pick(start, order, n);
        end = pick(end, order, n);
        int[] s = new int[n];
        byte[] t = new byte[n];
        for (int i = 0; i < n; i++) {
            s[i] = signature[order[i]];
            t[i] = state[order[i]];
        }
        signature = s;
        state = t;
        size = n;
    }

    private static long[] pick(long[] from, int[] order, int n) {
        long[] to = new long[n];
        for (int i = 0; i < n; i++) {
            to[i] = from[order[i]];
        }
        return to;
    }

    /** The sequence of the first collective; 0 if there is none. */
    long firstSequence() {
        for (int i = 0; i < size; i++) {
            if (sequence[i] > 0) {
                return sequence[i];
            }
        }
        return 0;
    }

    /** Index of the last collective; -1 if there is none. */
    int lastCollective() {
        for (int i = size - 1; i >= 0; i--) {
            if (sequence[i] > 0) {
                return i;
            }
        }
        return -1;
    }

    /**
     * Index of the first operation that has not completed; -1 if there is none or it is unknown.
     */
    int unfinished() {
        for (int i = 0; i < size; i++) {
            if (state[i] == FAILED || state[i] == PENDING) {
                return i;
            }
        }
        return -1;
    }
}
