package io.jccl;

import io.jccl.device.DataType;
import java.time.Instant;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The most recent operations of one rank: a snapshot of the flight recorder. See {@link
 * Communicator#history()}.
 *
 * @param communicator identifies the communicator across jobs; the same on all ranks
 * @param engine the communication backend, see {@link Communicator#engine()}
 * @param rank the rank whose history this is
 * @param size number of ranks
 * @param host name of its machine
 * @param process id of its process
 * @param last number of its last operation, counted from 1 over all kinds of operation; 0 if there
 *     was none
 * @param completed number up to which all operations are known to have completed; with NCCL it is
 *     polled every 50 ms
 * @param at class, method and line at which the thread that last used the communicator is now, or
 *     was when the communicator failed; null if unknown
 * @param takenNanos when the snapshot was taken, in nanoseconds since 1970 by this process's clock
 * @param operations the last operations, oldest first
 */
public record FlightHistory(
        String communicator,
        String engine,
        int rank,
        int size,
        String host,
        long process,
        long last,
        long completed,
        @Nullable String at,
        long takenNanos,
        List<Operation> operations) {
    /** Copies the list. */
    public FlightHistory {
        Objects.requireNonNull(communicator, "communicator");
        operations = List.copyOf(operations);
    }

    /**
     * One operation of the history.
     *
     * @param number its number among all operations of the rank, from 1
     * @param sequence its number among the collectives, which is the same on all ranks, from 1; 0
     *     for send, recv and one-sided operations
     * @param name name of the method of {@link Communicator}
     * @param type type of its elements
     * @param count elements in one block; for the v-variants the sum of this rank's blocks
     * @param reduction the reduction, such as {@code "sum"}; null if it does not reduce
     * @param root the root; -1 if it has none
     * @param peer the other rank of a send or recv; -1 for other operations
     * @param queued whether it was enqueued on a stream that runs asynchronously to the caller
     * @param grouped whether it was part of a {@link Group}
     * @param inPlace whether its buffers are the same memory
     * @param enqueuedNanos when it was called, in nanoseconds since 1970 by this process's clock, a
     *     multiple of about 10 ms; exact with {@code JCCL_FLIGHT_CLOCK=exact}
     * @param completed whether it is known to have completed
     * @param site where it was called; null unless {@code JCCL_FLIGHT_CALLSITES=1}
     */
    public record Operation(
            long number,
            long sequence,
            String name,
            DataType type,
            long count,
            @Nullable String reduction,
            int root,
            int peer,
            boolean queued,
            boolean grouped,
            boolean inPlace,
            long enqueuedNanos,
            boolean completed,
            @Nullable String site) {
        /**
         * The operation and its arguments, without time and place.
         *
         * @return such as {@code allReduce(float, count 1024, sum)}
         */
        public String describe() {
            if (name.equals("barrier")) {
                return name;
            }
            StringBuilder s = new StringBuilder(name).append('(');
            String comma = "";
            // One-sided operations set the number of bytes themselves.
            if (sequence > 0 || name.equals("send") || name.equals("recv")) {
                s.append(type.label());
                comma = ", ";
                if (!name.endsWith("v") || name.equals("recv")) {
                    s.append(comma).append("count ").append(count);
                }
            }
            if (reduction != null) {
                s.append(comma).append(reduction);
            }
            if (root >= 0) {
                s.append(comma).append("root ").append(root);
            }
            if (peer >= 0) {
                s.append(comma).append("peer ").append(peer);
            }
            return s.append(')').toString();
        }

        /**
         * Bytes in {@link #count} elements.
         *
         * @return 0 or more
         */
        public long bytes() {
            return count * type.size();
        }
    }

    /**
     * The history as readable text, one line per operation.
     *
     * @return lines, each ending in a line feed
     */
    public String toText() {
        StringBuilder s = new StringBuilder();
        s.append("rank ").append(rank).append(" of ").append(size);
        s.append(" of communicator ").append(communicator).append(" (").append(engine);
        s.append("), process ").append(process).append(" on ").append(host).append(": ");
        s.append(completed).append(" of ").append(last).append(" operations completed");
        if (at != null) {
            s.append(", at ").append(at);
        }
        s.append('\n');
        for (Operation o : operations) {
            s.append(o.number).append(o.completed ? " completed " : " pending   ");
            s.append(Instant.ofEpochSecond(0, o.enqueuedNanos)).append(' ');
            if (o.sequence > 0) {
                s.append('#').append(o.sequence).append(' ');
            }
            s.append(o.describe());
            if (o.grouped) {
                s.append(", grouped");
            }
            if (o.inPlace) {
                s.append(", in place");
            }
            if (o.queued) {
                s.append(", on a stream");
            }
            if (o.site != null) {
                s.append(", at ").append(o.site);
            }
            s.append('\n');
        }
        return s.toString();
    }

    /**
     * The history for {@code jccl flight}, as one JSON object with the names of this record's
     * components, and {@code "jcclFlight": 1}.
     *
     * @return JSON text
     */
    public String toJson() {
        StringBuilder s = new StringBuilder("{\"jcclFlight\":1");
        text(s, "communicator", communicator);
        text(s, "engine", engine);
        number(s, "rank", rank);
        number(s, "size", size);
        text(s, "host", host);
        number(s, "process", process);
        number(s, "last", last);
        number(s, "completed", completed);
        text(s, "at", at);
        number(s, "takenNanos", takenNanos);
        s.append(",\"operations\":[");
        for (int i = 0; i < operations.size(); i++) {
            Operation o = operations.get(i);
            s.append(i == 0 ? "\n{" : ",\n{").append("\"number\":").append(o.number);
            number(s, "sequence", o.sequence);
            text(s, "name", o.name);
            text(s, "type", o.type.label());
            number(s, "count", o.count);
            number(s, "bytes", o.bytes());
            text(s, "reduction", o.reduction);
            number(s, "root", o.root);
            number(s, "peer", o.peer);
            s.append(",\"queued\":").append(o.queued);
            s.append(",\"grouped\":").append(o.grouped);
            s.append(",\"inPlace\":").append(o.inPlace);
            number(s, "enqueuedNanos", o.enqueuedNanos);
            s.append(",\"completed\":").append(o.completed);
            text(s, "site", o.site);
            s.append('}');
        }
        return s.append("]}\n").toString();
    }

    private static void number(StringBuilder s, String name, long value) {
        s.append(",\"").append(name).append("\":").append(value);
    }

    private static void text(StringBuilder s, String name, @Nullable String value) {
        s.append(",\"").append(name).append("\":");
        if (value == null) {
            s.append("null");
            return;
        }
        s.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                s.append('\\').append(c);
            } else if (c < ' ') {
                s.append(String.format("\\u%04x", (int) c));
            } else {
                s.append(c);
            }
        }
        s.append('"');
    }
}
