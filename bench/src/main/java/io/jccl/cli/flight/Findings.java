package io.jccl.cli.flight;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What the recordings of a communicator show. Times are in microseconds.
 *
 * @param communicator which
 * @param engine what carried its data
 * @param size number of ranks
 * @param operations operations recorded, of all ranks
 * @param missing ranks without a recording
 * @param aligned whether clocks were set by the ends of collectives
 * @param divergence the first collective that ranks called differently; null if there is none
 * @param ranks what each recorded rank did
 * @param slowest the slowest links first
 * @param notes what limits all this
 */
record Findings(
        String communicator,
        String engine,
        int size,
        long operations,
        List<Integer> missing,
        boolean aligned,
        @Nullable Divergence divergence,
        List<RankFindings> ranks,
        List<Link> slowest,
        List<String> notes) {
    /**
     * The first collective that not all ranks called alike.
     *
     * @param sequence its place among the collectives
     * @param kind "different" or "missing"
     * @param calls what each recorded rank did
     * @param behind ranks that are named first: those that differ from most, or have not come
     */
    record Divergence(long sequence, String kind, List<Call> calls, List<Integer> behind) {}

    /**
     * A rank's part in a divergence.
     *
     * @param rank which
     * @param call what it called; null if it has not come that far
     * @param last what it called last, if that was before
     */
    record Call(int rank, @Nullable String call, @Nullable String last) {}

    /**
     * One rank.
     *
     * @param rank which
     * @param process its machine and process, where known
     * @param operations how many are recorded
     * @param forgotten how many came before
     * @param offset what was added to its clock
     * @param last its last collective
     * @param unfinished the first operation that failed or had not completed; null if none
     * @param site where its thread was; null if unknown
     * @param lateness how long after the first rank it came to collectives; null if not known
     */
    record RankFindings(
            int rank,
            String process,
            long operations,
            long forgotten,
            double offset,
            @Nullable String last,
            @Nullable String unfinished,
            @Nullable String site,
            @Nullable Lateness lateness) {}

    /**
     * How late a rank came to those collectives that all ranks have.
     *
     * @param collectives how many
     * @param p50 median
     * @param p90 nine of ten came no later
     * @param p99 99 of 100 came no later
     * @param max the latest
     * @param lastShare share of collectives to which it came last, 0 to 1
     */
    record Lateness(
            long collectives, double p50, double p90, double p99, double max, double lastShare) {}

    /**
     * Messages from one rank to another.
     *
     * @param from sender
     * @param to receiver
     * @param messages how many
     * @param bytes their sum
     * @param micros the sum of their times
     * @param gbPerSecond bytes by time, in 10^9 bytes per second
     */
    record Link(int from, int to, long messages, long bytes, double micros, double gbPerSecond) {}
}
