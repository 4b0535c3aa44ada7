package io.jccl.host;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;

/**
 * The memory through which the ranks of one communicator meet: who is where, what each asks for,
 * and small payloads. It is a plain run of bytes, so that threads and processes share the same
 * protocol.
 *
 * <pre>
 * header            magic, number of ranks, abort word and text
 * state[rank]       tick, closed flag, place of the scratch memory, joining handshake
 * slot[rank][2]     what the rank asks for in odd and even operations, with a small payload
 * channel[2][src][dst]  cells for point-to-point messages: the user's, and those of algorithms
 * </pre>
 *
 * <p>A word is written by one side only, on a cache line of its own: pairs of lines are kept apart
 * because processors fetch them together.
 */
final class Control {
    static final ValueLayout.OfLong LONG_LAYOUT = ValueLayout.JAVA_LONG;
    static final VarHandle LONG = LONG_LAYOUT.varHandle();

    /** "JCCL" and the version of this layout. */
    static final long MAGIC = 0x4a43434c_00000002L;

    static final int MAX_RANKS = 256;

    /** Room in a slot for a payload; above, peers read each other's buffers. */
    static final long EAGER = 4096;

    private static final long LINE_PAIR = 128;

    // Header.
    static final long MAGIC_AT = 0;
    static final long RANKS_AT = 8;

    /** A random number, written last when the control memory of a run is ready. */
    static final long NONCE_AT = 16;

    static final long GO_AT = 64;
    private static final long ABORT_AT = 128;
    private static final long ABORT_TEXT_AT = 136;
    private static final int ABORT_TEXT_MAX = 3000;
    private static final long HEADER = 4096;

    // State of a rank.
    private static final long STATE = 512;
    static final long TICK = 0;
    static final long CLOSED = 128;
    static final long JOIN = 136;
    static final long JOIN_ECHO = 256;
    static final long SCRATCH_CHUNK = 384;
    static final long SCRATCH_AT = 392;
    static final long PID = 400;

    /** Where the rank runs, see {@link HostPlan#home}. */
    static final long HOME = 408;

    // Slot.
    static final long SEQ = 0;
    static final long SIGNATURE = 8;
    static final long COUNT = 16;
    static final long FACTOR = 24;
    static final long PAYLOAD = 32;
    static final long SEND_CHUNK = 32;
    static final long SEND_AT = 40;
    static final long RECV_CHUNK = 48;
    static final long RECV_AT = 56;
    static final long TABLES = roundUp(PAYLOAD + EAGER);

    // Channel and its cells.
    static final int CELLS = 4;
    static final long INLINE = 192;
    static final long CONSUMED = 0;
    private static final long FIRST_CELL = LINE_PAIR;
    private static final long CELL = 256;
    static final long CELL_SEQ = 0;
    static final long CELL_TYPE = 8;
    static final long CELL_COUNT = 16;
    static final long CELL_BYTES = 24;
    static final long CELL_CHUNK = 32;
    static final long CELL_AT = 40;
    static final long CELL_PAYLOAD = 64;

    final MemorySegment memory;
    final int ranks;
    private final long slotBytes;
    private final long slotsAt;
    private final long channelsAt;

    Control(MemorySegment memory, int ranks) {
        this.memory = memory;
        this.ranks = ranks;
        slotBytes = slotBytes(ranks);
        slotsAt = HEADER + ranks * STATE;
        channelsAt = slotsAt + 2L * ranks * slotBytes;
    }

    private static long roundUp(long bytes) {
        return (bytes + LINE_PAIR - 1) / LINE_PAIR * LINE_PAIR;
    }

    private static long slotBytes(int ranks) {
        return roundUp(TABLES + 4L * ranks * Long.BYTES);
    }

    private static final long CHANNEL = FIRST_CELL + CELLS * CELL;

    /** Bytes needed for a number of ranks. */
    static long size(int ranks) {
        return HEADER
                + ranks * STATE
                + 2L * ranks * slotBytes(ranks)
                + 2L * ranks * ranks * CHANNEL;
    }

    long state(int rank) {
        return HEADER + rank * STATE;
    }

    long slot(int rank, int parity) {
        return slotsAt + (2L * rank + parity) * slotBytes;
    }

    /** Place of one of the four tables of a v-variant: send counts, displacements, then recv. */
    long table(int rank, int parity, int which) {
        return slot(rank, parity) + TABLES + (long) which * ranks * Long.BYTES;
    }

    long channel(int set, int source, int target) {
        return channelsAt + (((long) set * ranks + source) * ranks + target) * CHANNEL;
    }

    static long cell(long channel, long number) {
        return channel + FIRST_CELL + (number - 1) % CELLS * CELL;
    }

    long get(long at) {
        return memory.get(LONG_LAYOUT, at);
    }

    void set(long at, long value) {
        memory.set(LONG_LAYOUT, at, value);
    }

    /** The random number by which runs are told apart. */
    long nonce() {
        return acquire(NONCE_AT);
    }

    long acquire(long at) {
        return (long) LONG.getAcquire(memory, at);
    }

    void release(long at, long value) {
        LONG.setRelease(memory, at, value);
    }

    /** What ended the communicator. */
    enum AbortKind {
        FAILED,
        MISMATCH,
        TIMEOUT
    }

    /** Records why the communicator ended; only the first call counts. */
    void abort(int rank, AbortKind kind, String reason) {
        // Taken, text written, then published: readers see a whole text.
        if (!LONG.compareAndSet(memory, ABORT_AT, 0L, -1L)) {
            return;
        }
        byte[] text = reason.getBytes(StandardCharsets.UTF_8);
        int length = Math.min(text.length, ABORT_TEXT_MAX);
        memory.set(ValueLayout.JAVA_INT, ABORT_TEXT_AT, length);
        MemorySegment.copy(text, 0, memory, ValueLayout.JAVA_BYTE, ABORT_TEXT_AT + 4, length);
        release(ABORT_AT, (long) kind.ordinal() << 32 | rank + 1);
    }

    /** Whether the communicator has ended. */
    boolean aborted() {
        return acquire(ABORT_AT) > 0;
    }

    int abortRank() {
        return (int) acquire(ABORT_AT) - 1;
    }

    AbortKind abortKind() {
        return AbortKind.values()[(int) (acquire(ABORT_AT) >>> 32)];
    }

    String abortText() {
        int length = memory.get(ValueLayout.JAVA_INT, ABORT_TEXT_AT);
        byte[] text = new byte[length];
        MemorySegment.copy(memory, ValueLayout.JAVA_BYTE, ABORT_TEXT_AT + 4, text, 0, length);
        return new String(text, StandardCharsets.UTF_8);
    }
}
