package io.jccl.engine;

import io.jccl.Algorithm;
import io.jccl.ReduceOp;
import java.util.Arrays;
import java.util.Locale;
import java.util.Objects;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timestamp;

/**
 * What a flight recording tells about collectives. Touched only where jdk.jfr is there. All off
 * unless the recording enables them.
 */
final class JfrEvents {
    // Asked whether they are enabled, never committed.
    static final CollectiveEvent COLLECTIVE = new CollectiveEvent();
    static final ProgressEvent PROGRESS = new ProgressEvent();

    // Made once: an event allocates nothing.
    private static final String[] REDUCTIONS =
            Arrays.stream(ReduceOp.Kind.values()).map(ReduceOp::label).toArray(String[]::new);
    private static final String[] ALGORITHMS =
            Arrays.stream(Algorithm.values())
                    .map(a -> a.name().toLowerCase(Locale.ROOT).replace('_', '-'))
                    .toArray(String[]::new);

    private JfrEvents() {}

    @Name("io.jccl.Collective")
    @Label("Collective")
    @Category("JCCL")
    @Description("An operation of a communicator, from its call to its completion")
    @Enabled(false)
    @StackTrace(false)
    static final class CollectiveEvent extends Event implements FlightEvents.Kept {
        @Label("Engine")
        String engine = "";

        @Label("Communicator")
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
        String operation = "";

        @Label("Type")
        String type = "";

        @Label("Count")
        @Description("Elements in one block")
        long count;

        @Label("Bytes")
        @DataAmount
        long bytes;

        @Label("Reduction")
        String reduction = "";

        @Label("Root")
        @Description("Root, or for send and recv the other rank; -1 if there is none")
        int root;

        @Label("Algorithm")
        String algorithm = "";

        @Label("Channels")
        @Description("Channels that the library uses; 0 if it does not say")
        int channels;

        @Label("Stream")
        @Description("Whether it went to a stream that works beside the caller")
        boolean queued;

        @Label("State")
        @Description("completed, failed, or enqueued where the end is a Progress event")
        String state = "";
    }

    @Name("io.jccl.Progress")
    @Label("Communicator Progress")
    @Category("JCCL")
    @Description("How far a rank is whose operations complete beside the JVM")
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

    static void begin(EngineCommunicator owner, Request r) {
        CollectiveEvent e = (CollectiveEvent) r.event;
        if (e == null) {
            e = new CollectiveEvent();
            e.engine = owner.engine();
            e.communicator = owner.communicatorId();
            e.rank = owner.rank();
            e.size = owner.size();
            r.event = e;
        }
        r.traced = true;
        e.begin();
    }

    static void end(Request r, String state) {
        CollectiveEvent e = (CollectiveEvent) Objects.requireNonNull(r.event);
        r.traced = false;
        e.end();
        if (!e.shouldCommit()) {
            return;
        }
        Collective op = r.op;
        long count = op.vector() ? r.vectorCount() : r.count;
        e.number = r.sequence;
        e.sequence = r.order;
        e.operation = op.method();
        e.type = r.type.label();
        e.count = count;
        e.bytes = count * r.type.size();
        e.reduction = op.reduces() ? REDUCTIONS[r.reduceOp.kind().ordinal()] : "";
        e.root = op.rooted() || op.peerToPeer() ? r.root : -1;
        e.algorithm = ALGORITHMS[r.owner.algorithmOf(r).ordinal()];
        e.channels = r.owner.channels();
        e.queued = r.queued;
        e.state = state;
        e.commit();
    }

    static void progress(EngineCommunicator owner, long completed) {
        ProgressEvent e = new ProgressEvent();
        e.communicator = owner.communicatorId();
        e.rank = owner.rank();
        e.number = completed;
        e.seen = System.currentTimeMillis();
        e.commit();
    }
}
