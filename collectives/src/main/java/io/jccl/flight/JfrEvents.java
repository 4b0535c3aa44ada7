package io.jccl.flight;

import io.jccl.Algorithm;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.util.Locale;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timestamp;
import org.jspecify.annotations.Nullable;

/**
 * Events about collectives for Java's flight recorder, loaded only if jdk.jfr is present. All are
 * disabled unless a recording enables them.
 */
final class JfrEvents {
    // Only asked whether they are enabled, never committed.
    static final CollectiveEvent COLLECTIVE = new CollectiveEvent();
    static final ProgressEvent PROGRESS = new ProgressEvent();

    private static final DataType[] TYPES = DataType.values();
    private static final ReduceOp.Kind[] KINDS = ReduceOp.Kind.values();
    private static final Algorithm[] ALGORITHMS = Algorithm.values();

    /**
     * Names of operations, each created once. A string in an event costs 2 ns per character, but
     * one of 16 or more characters goes to the recording's pool and costs 14 ns in all, so few long
     * strings are cheap. A race may create a name twice, which is harmless.
     */
    private static final @Nullable String[] NAMES =
            new String
                    [CollectiveOp.values().length
                            * TYPES.length
                            * KINDS.length
                            * ALGORITHMS.length];

    private JfrEvents() {}

    @Name("io.jccl.Collective")
    @Label("Collective")
    @Category("JCCL")
    @Description("An operation of a communicator, from its call to its completion")
    @Enabled(false)
    @StackTrace(false)
    static final class CollectiveEvent extends Event implements FlightEvents.Kept {
        @Label("Communicator")
        @Description("Engine and name; the same on all ranks, another in every job")
        String communicator = "";

        @Label("Rank")
        int rank;

        @Label("World Size")
        int size;

        @Label("Number")
        @Description("Its place among all operations of the rank")
        long number;

        @Label("Sequence")
        @Description("Its place among the collectives, the same on all ranks; 0 for send and recv")
        long sequence;

        @Label("Operation")
        @Description("With type, reduction and algorithm: allReduce(float, sum) by direct")
        String operation = "";

        @Label("Count")
        @Description("Elements in one block")
        long count;

        @Label("Bytes")
        @DataAmount
        long bytes;

        @Label("Root")
        @Description("Root, or for send and recv the other rank; -1 if there is none")
        int root;

        @Label("Channels")
        @Description("Channels that the library uses; 0 if it does not report them")
        int channels;

        @Label("Stream")
        @Description("Whether it went to a stream that runs asynchronously to the caller")
        boolean queued;

        @Label("Failed")
        boolean failed;

        @Label("Enqueued")
        @Description("It ends outside the JVM: the event's end is that of the call")
        boolean enqueued;
    }

    @Name("io.jccl.Progress")
    @Label("Communicator Progress")
    @Category("JCCL")
    @Description("Progress of a rank whose operations complete outside the JVM")
    @Enabled(false)
    @StackTrace(false)
    static final class ProgressEvent extends Event {
        @Label("Communicator")
        String communicator = "";

        @Label("Rank")
        int rank;

        @Label("Number")
        @Description("All operations up to this number have completed")
        long number;

        @Label("Seen")
        @Timestamp(Timestamp.MILLISECONDS_SINCE_EPOCH)
        long seen;
    }

    static FlightEvents.Kept make(String communicator, int rank, int size) {
        CollectiveEvent e = new CollectiveEvent();
        e.communicator = communicator;
        e.rank = rank;
        e.size = size;
        return e;
    }

    static void begin(FlightEvents.Kept event) {
        ((CollectiveEvent) event).begin();
    }

    static void end(
            FlightEvents.Kept event,
            FlightEvents.State state,
            long word,
            long count,
            long number,
            long order,
            Algorithm algorithm,
            int channels) {
        CollectiveEvent e = (CollectiveEvent) event;
        e.end();
        if (!e.shouldCommit()) {
            return;
        }
        CollectiveOp op = FlightRecorder.op(word);
        DataType type = FlightRecorder.type(word);
        e.number = number;
        e.sequence = order;
        e.operation = name(op, type, FlightRecorder.kind(word), algorithm);
        e.count = count;
        e.bytes = count * type.size();
        e.root = op.rooted() || op.peerToPeer() ? FlightRecorder.root(word) : -1;
        e.channels = channels;
        e.queued = FlightRecorder.isQueued(word);
        e.failed = state == FlightEvents.State.FAILED;
        e.enqueued = state == FlightEvents.State.ENQUEUED;
        e.commit();
    }

    private static String name(
            CollectiveOp op, DataType type, ReduceOp.Kind kind, Algorithm algorithm) {
        int i = op.ordinal() * TYPES.length + type.ordinal();
        i = i * KINDS.length + kind.ordinal();
        i = i * ALGORITHMS.length + algorithm.ordinal();
        String name = NAMES[i];
        if (name == null) {
            name =
                    op.method()
                            + (op == CollectiveOp.BARRIER ? "" : "(" + type.label())
                            + (op.reduces() ? ", " + ReduceOp.label(kind) : "")
                            + (op == CollectiveOp.BARRIER ? "" : ")")
                            + " by "
                            + algorithm.name().toLowerCase(Locale.ROOT).replace('_', '-');
            NAMES[i] = name;
        }
        return name;
    }

    static void progress(String communicator, int rank, long completed) {
        ProgressEvent e = new ProgressEvent();
        e.communicator = communicator;
        e.rank = rank;
        e.number = completed;
        e.seen = System.currentTimeMillis();
        e.commit();
    }
}
