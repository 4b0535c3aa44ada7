package io.jccl;

import io.jccl.device.DataType;
import java.time.Instant;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * What one rank has called last: the flight recorder's ring, read at one moment. See {@link
 * Communicator#history()}.
 *
 * @param communicator tells communicators apart, of all jobs; the same on all ranks
 * @param engine what carries the data, as {@link Communicator#engine()} says
 * @param rank whose history it is
 * @param size number of ranks
 * @param host name of its machine
 * @param process number of its process
 * @param last the number of its last operation, counted from 1 over all kinds of them; 0 if there
 *     was none
 * @param completed the number up to which all of them are known to have completed. On NCCL that is
 *     seen every 50 ms
 * @param at where the thread that used the communicator last is now, as class, method and line, or
 *     where it was when the communicator failed; null if unknown
 * @param takenNanos when it was read, in nanoseconds since 1970 by this process's clock
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
    /** Keeps a copy of the list. */
    public FlightHistory {
        Objects.requireNonNull(communicator, "communicator");
        operations = List.copyOf(operations);
    }

    /**
     * One operation of the history.
     *
     * @param number its place among all operations of the rank, from 1
     * @param sequence its place among the collectives, which all ranks call alike, from 1; 0 for
     *     send, recv and one-sided operations
     * @param name name of the method of {@link Communicator}
     * @param type type of its elements
     * @param count elements in one block; for the v-variants the sum of this rank's blocks
     * @param reduction the reduction, such as {@code "sum"}; null if it does not reduce
     * @param root the root; -1 if it has none
     * @param peer the other rank of a send or recv; -1 if it is none
     * @param queued whether it went to a stream that works beside the caller
     * @param grouped whether it was one of a {@link Group}
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
         * What was called, without when and where.
         *
         * @return such as {@code allReduce(float, count 1024, sum)}
         */
        public String describe() {
            if (name.equals("barrier")) {
                return name;
            }
            StringBuilder s = new StringBuilder(name).append('(');
            String comma = "";
            // One-sided operations have bytes of their own.
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
     * The history for people: a line for each operation.
     *
     * @return lines, each with its end
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
