package io.jccl.cli.flight;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The findings of a communicator's recordings. Times are in microseconds.
 *
 * @param communicator its id
 * @param engine its communication backend
 * @param size number of ranks
 * @param operations operations recorded, of all ranks
 * @param missing ranks without a recording
 * @param aligned whether clocks were aligned by the ends of collectives
 * @param divergence the first collective that ranks called differently; null if there is none
 * @param ranks findings per recorded rank
 * @param slowest links, slowest first
 * @param notes limitations of the analysis
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
     * The first collective that ranks called differently.
     *
     * @param sequence its number among the collectives
     * @param kind "different" or "missing"
     * @param calls the call of each recorded rank
     * @param behind ranks to name first: those that differ from the majority or are missing
     */
    record Divergence(long sequence, String kind, List<Call> calls, List<Integer> behind) {}

    /**
     * A rank's part in a divergence.
     *
     * @param rank the rank
     * @param call its call; null if it has not reached the collective
     * @param last its last call, if that was earlier
     */
    record Call(int rank, @Nullable String call, @Nullable String last) {}

    /**
     * The findings of one rank.
     *
     * @param rank the rank
     * @param process its machine and process, if known
     * @param operations number of recorded operations
     * @param forgotten number of earlier, overwritten ones
     * @param offset offset added to its clock
     * @param last its last collective
     * @param unfinished the first operation that failed or had not completed; null if none
     * @param site position of its thread; null if unknown
     * @param lateness its delay after the first rank at collectives; null if unknown
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
     * Delay of a rank at the collectives that all ranks have recorded.
     *
     * @param collectives number of collectives
     * @param p50 median
     * @param p90 90th percentile
     * @param p99 99th percentile
     * @param max maximum
     * @param lastShare fraction of collectives at which it was the last, 0 to 1
     */
    record Lateness(
            long collectives, double p50, double p90, double p99, double max, double lastShare) {}

    /**
     * Messages from one rank to another.
     *
     * @param from sender
     * @param to receiver
     * @param messages number of messages
     * @param bytes their total size
     * @param micros their total time
     * @param gbPerSecond bytes by time, in 10^9 bytes per second
     */
    record Link(int from, int to, long messages, long bytes, double micros, double gbPerSecond) {}
}
