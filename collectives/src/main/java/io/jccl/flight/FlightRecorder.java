package io.jccl.flight;

import io.jccl.FlightHistory.Operation;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * The latest operations of one rank, always recorded: a few stores into an array, no allocation.
 *
 * <p>The time of an operation is read from {@link StatusPoller}'s clock, which a thread sets every
 * {@value StatusPoller#TICK_MILLIS} ms, since {@link System#nanoTime} takes longer than everything
 * else here. {@code JCCL_FLIGHT_CLOCK=exact} uses it nevertheless.
 *
 * <p><b>Threads:</b> {@link #note} by the thread that uses the communicator, {@link #complete} by
 * one at a time, the rest by any.
 */
public final class FlightRecorder {
    private static final boolean EXACT = FlightSettings.exactClock();
    private static final boolean SITES = FlightSettings.callSites();

    /** Operations that only one engine has, numbered after the collectives. */
    private static final List<String> MORE = List.of("putSignal", "signal", "waitSignal");

    private static final CollectiveOp[] COLLECTIVES = CollectiveOp.values();
    private static final DataType[] TYPES = DataType.values();
    private static final ReduceOp.Kind[] KINDS = ReduceOp.Kind.values();

    // Words of an entry. The first holds, from the lowest bit: operation, type, reduction and
    // flags, eight bits each, then root or peer.
    private static final int WORDS = 4;
    private static final int COUNT = 1;
    private static final int ORDER = 2;
    private static final int TIME = 3;

    private static final long QUEUED = 1L << 24;
    private static final long GROUPED = 1L << 25;
    private static final long IN_PLACE = 1L << 26;

    /** An entry's first word before there was any operation. */
    public static final long NOTHING = CollectiveOp.BARRIER.ordinal();

    private static final VarHandle LAST;
    private static final VarHandle COMPLETED;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            LAST = lookup.findVarHandle(FlightRecorder.class, "last", long.class);
            COMPLETED = lookup.findVarHandle(FlightRecorder.class, "completed", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Entries: one more than operations to remember, since one may be half written; or 0. */
    private final int entries;

    private final long[] words;

    /** Call sites; null unless requested. */
    private final @Nullable StackTraceElement @Nullable [] sites;

    /** The entry of the next operation: its number modulo the entries. */
    private int next = 1;

    private long last;
    private long completed;
    private long collectives;

    /** The thread that used the communicator last; initially the one that created it. */
    private volatile Thread user = Thread.currentThread();

    /** Where the user's thread was when the communicator failed. */
    private volatile @Nullable String failedAt;

    /**
     * An empty one.
     *
     * @param capacity operations to remember; 0 for none
     */
    public FlightRecorder(int capacity) {
        entries = capacity == 0 ? 0 : capacity + 1;
        words = new long[entries * WORDS];
        sites = SITES ? new StackTraceElement[entries] : null;
        StatusPoller.startClock(this);
    }

    // ---- written by the rank

    /** Encodes an operation as the first word of its entry. */
    public static long word(
            CollectiveOp op,
            DataType type,
            ReduceOp.Kind kind,
            int root,
            boolean queued,
            boolean grouped,
            boolean inPlace) {
        return op.ordinal()
                | (long) type.ordinal() << 8
                | (long) kind.ordinal() << 16
                | (queued ? QUEUED : 0)
                | (grouped ? GROUPED : 0)
                | (inPlace ? IN_PLACE : 0)
                | (long) root << 32;
    }

    /**
     * The next position among the operations that all ranks call in the same order; 0 for send and
     * recv.
     */
    public long nextOrder(CollectiveOp op) {
        return op.peerToPeer() ? 0 : ++collectives;
    }

    /**
     * Records an operation that is about to be enqueued.
     *
     * @param word of {@link #word}
     * @param count elements
     * @param order of {@link #nextOrder}
     * @return its number
     */
    public long note(long word, long count, long order) {
        return write(word, count, order);
    }

    /** The same for an operation that only one engine has; returns its number. */
    public long note(String name, int peer) {
        int more = MORE.indexOf(name);
        if (more < 0) {
            throw new IllegalArgumentException(name);
        }
        return write((COLLECTIVES.length + more) | QUEUED | (long) peer << 32, 0, 0);
    }

    private long write(long word, long count, long order) {
        long number = last + 1;
        int entry = next;
        long[] w = words;
        if (w.length > 0) {
            int at = entry * WORDS;
            // A reader that finds any of these words also finds the number of the operation before,
            // by which it knows that the entry is being overwritten.
            VarHandle.storeStoreFence();
            w[at] = word;
            w[at + COUNT] = count;
            w[at + ORDER] = order;
            w[at + TIME] = EXACT ? System.nanoTime() : StatusPoller.now();
            if (sites != null) {
                sites[entry] = CallSite.caller();
            }
        }
        Thread t = Thread.currentThread();
        if (t != user) {
            user = t;
        }
        LAST.setRelease(this, number);
        // Not before: an error on the way, such as a full stack, leaves both as they were.
        next = entry + 1 == entries ? 0 : entry + 1;
        return number;
    }

    /** Records that all operations up to a number have completed. */
    public void complete(long number) {
        if (number > completed) {
            COMPLETED.setRelease(this, number);
        }
    }

    /** Keeps the position of the thread at which the communicator failed. */
    public void failed(Throwable error) {
        if (failedAt == null) {
            Thread t = Thread.currentThread();
            String here = t == user ? CallSite.of(error.getStackTrace()) : null;
            failedAt = here == null ? site() : here + " [" + t.getName() + "]";
        }
    }

    // ---- read by any

    /** The number of the last operation; the first has 1. */
    public long last() {
        return (long) LAST.getAcquire(this);
    }

    /** The number up to which all have completed. */
    public long completed() {
        return Math.min((long) COMPLETED.getAcquire(this), last());
    }

    /** An operation; null if there is none of this number, or it was overwritten. */
    public @Nullable Operation at(long number) {
        if (number < 1 || number > last() || isOverwritten(number)) {
            return null;
        }
        int entry = (int) (number % entries);
        int at = entry * WORDS;
        long word = words[at];
        long count = words[at + COUNT];
        long order = words[at + ORDER];
        long time = words[at + TIME];
        StackTraceElement site = sites == null ? null : sites[entry];
        VarHandle.loadLoadFence();
        return isOverwritten(number)
                ? null
                : operation(number, word, count, order, time, number <= completed(), site);
    }

    /** Whether an entry has been overwritten; the next one may be half written. */
    private boolean isOverwritten(long number) {
        return number <= last() + 1 - entries;
    }

    private static Operation operation(
            long number,
            long word,
            long count,
            long order,
            long time,
            boolean completed,
            @Nullable StackTraceElement site) {
        int op = (int) (word & 0xff);
        boolean known = op < COLLECTIVES.length;
        CollectiveOp c = known ? COLLECTIVES[op] : CollectiveOp.BARRIER;
        DataType type = type(word);
        int root = root(word);
        return new Operation(
                number,
                order,
                known ? c.method() : MORE.get(op - COLLECTIVES.length),
                type,
                count,
                c.reduces() ? ReduceOp.label(kind(word)) : null,
                c.rooted() ? root : -1,
                c.peerToPeer() || !known ? root : -1,
                isQueued(word),
                (word & GROUPED) != 0,
                (word & IN_PLACE) != 0,
                StatusPoller.epochNanos(time),
                completed,
                site == null ? null : CallSite.text(site));
    }

    /** Describes a collective by the first word of its entry, for messages. */
    public static String describe(long word, long count) {
        return op(word).describe(type(word), count, kind(word), root(word));
    }

    static CollectiveOp op(long word) {
        return COLLECTIVES[(int) (word & 0xff)];
    }

    static DataType type(long word) {
        return TYPES[(int) (word >> 8 & 0xff)];
    }

    static ReduceOp.Kind kind(long word) {
        return KINDS[(int) (word >> 16 & 0xff)];
    }

    static int root(long word) {
        return (int) (word >> 32);
    }

    static boolean isQueued(long word) {
        return (word & QUEUED) != 0;
    }

    /**
     * All recorded operations, oldest first.
     *
     * @param now number of the last operation to include
     * @param done number up to which they are completed
     */
    public List<Operation> all(long now, long done) {
        // Copied at once: creating objects takes longer than the rank takes to overwrite the
        // entries.
        long[] copy = words.clone();
        StackTraceElement[] places = sites == null ? null : sites.clone();
        VarHandle.loadLoadFence();
        List<Operation> all = new ArrayList<>();
        for (long n = Math.max(1, last() + 2 - entries); n <= now && copy.length > 0; n++) {
            int entry = (int) (n % entries);
            int at = entry * WORDS;
            all.add(
                    operation(
                            n,
                            copy[at],
                            copy[at + COUNT],
                            copy[at + ORDER],
                            copy[at + TIME],
                            n <= done,
                            places == null ? null : places[entry]));
        }
        return all;
    }

    /** The latest collectives in their order, as text. */
    public SortedMap<Long, String> collectives(int howMany) {
        SortedMap<Long, String> all = new TreeMap<>();
        long now = last();
        for (long n = Math.max(1, now - howMany + 1); n <= now; n++) {
            Operation o = at(n);
            if (o != null && o.sequence() > 0) {
                all.put(o.sequence(), o.describe());
            }
        }
        return all;
    }

    /** The order of the last collective that was called; 0 if there was none. */
    long lastOrder() {
        long now = last();
        for (long n = now; n > Math.max(0, now - entries); n--) {
            Operation o = at(n);
            if (o != null && o.sequence() > 0) {
                return o.sequence();
            }
        }
        return 0;
    }

    /** The position of the user's thread now, or when the communicator failed. */
    public String site() {
        String failed = failedAt;
        return failed != null ? failed : CallSite.of(user);
    }
}
