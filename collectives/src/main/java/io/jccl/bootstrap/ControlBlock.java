package io.jccl.bootstrap;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.error.JcclException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The memory through which the ranks of one communicator coordinate: their state, the operation
 * that each requests, and small payloads. It is a plain sequence of bytes, so threads and processes
 * use the same protocol.
 *
 * <pre>
 * header            magic, number of ranks, question, abort word and text
 * state[rank] tick, closed flag, position of the scratch memory, joining handshake
 * answer[rank]      how far the rank is, when another one has asked
 * slot[rank][2] request of the rank in odd and even operations, with a small payload
 * channel[2][src][dst]  cells for point-to-point messages: the user's, and those of algorithms
 * </pre>
 *
 * <p>A word is written by one side only, on its own cache line: pairs of lines are kept apart
 * because processors fetch them together.
 */
public final class ControlBlock {
    static final ValueLayout.OfLong LONG_LAYOUT = ValueLayout.JAVA_LONG;
    static final VarHandle LONG = LONG_LAYOUT.varHandle();

    /** "JCCL" and the version of this layout. */
    static final long MAGIC = 0x4a43434c_00000004L;

    static final int MAX_RANKS = 256;

    /** Bytes of payload in a slot; for larger payloads, peers read each other's buffers. */
    public static final long EAGER = 4096;

    private static final long LINE_PAIR = 128;

    // Header.
    static final long MAGIC_AT = 0;
    static final long RANKS_AT = 8;

    /** A random number, written last when the control memory of a run is ready. */
    static final long NONCE_AT = 16;

    /** 1 when all ranks have joined. */
    static final long GO_AT = 64;

    private static final long APART = -1;

    private static final long ABORT_AT = 128;
    private static final long ABORT_TEXT_AT = 136;
    private static final long BEING_WRITTEN = -1;
    private static final long WRITE_WAIT_NANOS = 1_000_000_000;
    private static final long WRITE_PARK_NANOS = 50_000;
    private static final long HEADER = 64 << 10;
    private static final int ABORT_TEXT_MAX = (int) (HEADER - ABORT_TEXT_AT - 4);

    /** The number of the latest status request. */
    private static final long ASK_AT = 72;

    // Answer of a rank: the number of the request, then length and text.
    private static final long ANSWER = 1024;
    private static final long ANSWER_TEXT = 8;
    public static final int ANSWER_ROOM = (int) (ANSWER - ANSWER_TEXT - 4);

    // State of a rank.
    private static final long STATE = 1024;
    public static final long TICK = 0;
    public static final long CLOSED = 128;
    public static final long JOIN = 136;
    static final long JOIN_ECHO = 256;
    public static final long SCRATCH_CHUNK = 384;
    public static final long SCRATCH_AT = 392;
    public static final long PID = 400;

    /** Where the rank runs: the memory and the last-level cache next to it. */
    public static final long HOME = 408;

    /** How many words of {@link #CPUS} are valid; 0 until the rank has written them. */
    public static final long CPU_COUNT = 504;

    /** The CPUs that the rank may use, one bit each. */
    public static final long CPUS = 512;

    public static final int CPU_WORDS = 64;

    // Slot.
    public static final long SEQ = 0;
    public static final long SIGNATURE = 8;
    public static final long COUNT = 16;
    public static final long FACTOR = 24;
    public static final long PAYLOAD = 32;
    public static final long SEND_CHUNK = 32;
    public static final long SEND_AT = 40;
    public static final long RECV_CHUNK = 48;
    public static final long RECV_AT = 56;
    static final long TABLES = roundUp(PAYLOAD + EAGER);

    // Channel and its cells.
    public static final int CELLS = 4;
    public static final long INLINE = 192;
    public static final long CONSUMED = 0;
    private static final long FIRST_CELL = LINE_PAIR;
    private static final long CELL = 256;
    public static final long CELL_SEQ = 0;
    public static final long CELL_TYPE = 8;
    public static final long CELL_COUNT = 16;
    public static final long CELL_BYTES = 24;
    public static final long CELL_CHUNK = 32;
    public static final long CELL_AT = 40;
    public static final long CELL_PAYLOAD = 64;

    public final MemorySegment memory;
    public final int ranks;
    private final long slotBytes;
    private final long slotsAt;
    private final long channelsAt;

    public ControlBlock(MemorySegment memory, int ranks) {
        this.memory = memory;
        this.ranks = ranks;
        slotBytes = slotBytes(ranks);
        slotsAt = HEADER + ranks * (STATE + ANSWER);
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
    public static long size(int ranks) {
        return HEADER
                + ranks * (STATE + ANSWER)
                + 2L * ranks * slotBytes(ranks)
                + 2L * ranks * ranks * CHANNEL;
    }

    public long state(int rank) {
        return HEADER + rank * STATE;
    }

    public long slot(int rank, int parity) {
        return slotsAt + (2L * rank + parity) * slotBytes;
    }

    /** Position of one of the four tables of a v-variant: send counts, displacements, then recv. */
    public long table(int rank, int parity, int which) {
        return slot(rank, parity) + TABLES + (long) which * ranks * Long.BYTES;
    }

    public long channel(int set, int source, int target) {
        return channelsAt + (((long) set * ranks + source) * ranks + target) * CHANNEL;
    }

    public static long cell(long channel, long number) {
        return channel + FIRST_CELL + (number - 1) % CELLS * CELL;
    }

    public long get(long at) {
        return memory.get(LONG_LAYOUT, at);
    }

    public void set(long at, long value) {
        memory.set(LONG_LAYOUT, at, value);
    }

    /** The random number that distinguishes runs. */
    long nonce() {
        return acquire(NONCE_AT);
    }

    public long acquire(long at) {
        return (long) LONG.getAcquire(memory, at);
    }

    public void release(long at, long value) {
        LONG.setRelease(memory, at, value);
    }

    /** What ended the communicator. */
    public enum AbortKind {
        FAILED,
        MISMATCH,
        TIMEOUT;

        public static AbortKind of(Throwable error) {
            return switch (error) {
                case CollectiveMismatchException m -> MISMATCH;
                case CollectiveTimeoutException t -> TIMEOUT;
                default -> FAILED;
            };
        }
    }

    /**
     * Decides for all ranks whether they begin together. The first call of all counts.
     *
     * @return what has been decided
     */
    public boolean decide(boolean together) {
        long mine = together ? 1 : APART;
        long decided = (long) LONG.compareAndExchange(memory, GO_AT, 0L, mine);
        return (decided == 0 ? mine : decided) > 0;
    }

    /** Whether {@link #decide} has let the ranks begin. */
    public boolean together() {
        return acquire(GO_AT) > 0;
    }

    /** Records why the communicator ended; only the first call counts, and returns true. */
    public boolean abort(int rank, AbortKind kind, String reason) {
        return abort(rank, kind, -1, reason);
    }

    /**
     * The same.
     *
     * @param printer the rank that prints the reason; -1 for none
     */
    public boolean abort(int rank, AbortKind kind, int printer, String reason) {
        byte[] text = reason.getBytes(StandardCharsets.UTF_8);
        // Claimed, text written, then published: readers see the complete text.
        if (!LONG.compareAndSet(memory, ABORT_AT, 0L, BEING_WRITTEN)) {
            // The first caller may still be writing, or may have been stopped while writing.
            long until = System.nanoTime() + WRITE_WAIT_NANOS;
            while (acquire(ABORT_AT) == BEING_WRITTEN && System.nanoTime() - until < 0) {
                LockSupport.parkNanos(WRITE_PARK_NANOS);
            }
            return false;
        }
        long word = (long) (printer + 1) << 40 | (long) kind.ordinal() << 32 | rank + 1;
        try {
            setText(ABORT_TEXT_AT, text, ABORT_TEXT_MAX);
        } finally {
            release(ABORT_AT, word);
        }
        return true;
    }

    /** Whether the communicator has ended. */
    public boolean aborted() {
        return acquire(ABORT_AT) > 0;
    }

    public int abortRank() {
        return (int) acquire(ABORT_AT) - 1;
    }

    public AbortKind abortKind() {
        long word = acquire(ABORT_AT);
        return word == BEING_WRITTEN
                ? AbortKind.FAILED
                : AbortKind.values()[(int) (word >>> 32) & 0xff];
    }

    /** The rank that prints why the communicator ended; -1 for none. */
    public int abortPrinter() {
        return (int) (acquire(ABORT_AT) >>> 40) - 1;
    }

    public String abortText() {
        return text(ABORT_TEXT_AT);
    }

    /** Throws if the communicator has ended. */
    public void checkOpen() {
        if (aborted()) {
            throw ended();
        }
    }

    /** The error of a rank whose communicator was ended by another rank. */
    public JcclException ended() {
        String text = "rank " + abortRank() + " gave up: " + abortText();
        return switch (abortKind()) {
            case MISMATCH -> new CollectiveMismatchException(text);
            case TIMEOUT -> new CollectiveTimeoutException(text);
            case FAILED -> new RankFailedException(text);
        };
    }

    private void setText(long at, byte[] text, int room) {
        int length = Math.min(text.length, room);
        memory.set(ValueLayout.JAVA_INT, at, length);
        MemorySegment.copy(text, 0, memory, ValueLayout.JAVA_BYTE, at + 4, length);
    }

    private String text(long at) {
        byte[] text = new byte[memory.get(ValueLayout.JAVA_INT, at)];
        MemorySegment.copy(memory, ValueLayout.JAVA_BYTE, at + 4, text, 0, text.length);
        return new String(text, StandardCharsets.UTF_8);
    }

    /** Requests the status of every rank; returns the number of the request. */
    public long ask() {
        return 1 + (long) LONG.getAndAdd(memory, ASK_AT, 1L);
    }

    /** The number of the latest status request; 0 if there was none. */
    public long asked() {
        return acquire(ASK_AT);
    }

    private long answerAt(int rank) {
        return HEADER + ranks * STATE + rank * ANSWER;
    }

    /** Answers a status request; called by one thread of the rank at a time. */
    public void answer(int rank, long question, String text) {
        long at = answerAt(rank);
        release(at, 0);
        VarHandle.fullFence();
        setText(at + ANSWER_TEXT, text.getBytes(StandardCharsets.UTF_8), ANSWER_ROOM);
        release(at, question);
    }

    /** The answer of a rank to a request or to a later one; null if there is none yet. */
    public @Nullable String answerTo(long question, int rank) {
        long at = answerAt(rank);
        long said = acquire(at);
        if (said < question) {
            return null;
        }
        String text = text(at + ANSWER_TEXT);
        VarHandle.acquireFence();
        return acquire(at) == said ? text : null;
    }
}
