package io.jccl.ras;

import java.util.List;
import java.util.Locale;
import java.util.Set;

/**
 * The report of NCCL's RAS service on a job.
 *
 * @param version NCCL's version, {@code ?} if it was not given
 * @param groups the communicators; NCCL before 2.28.7 joins those of one size and state
 * @param findings what is not as it should be, in the order of the answer
 * @param processes the process ids that the answer names, of ranks that gave data; empty if it does
 *     not name those of healthy ranks (NCCL before 2.28.7)
 * @param whole false if the answer ended before its time: it may lack communicators and findings
 */
public record RasReport(
        String version,
        List<Group> groups,
        List<Finding> findings,
        Set<Long> processes,
        boolean whole) {

    /**
     * Communicators of one size and state.
     *
     * @param id the hash of a communicator, or the number of the group such as {@code #0}
     * @param communicators how many
     * @param size ranks of each
     * @param ranks ranks that gave data
     * @param status the furthest state of any rank: INIT, RUNNING, FINALIZE, ABORT; NOCOMM if no
     *     rank knows it
     * @param errors {@code OK}, or some of INCOMPLETE, ERROR and MISMATCH
     */
    public record Group(
            String id, int communicators, int size, int ranks, String status, String errors) {}

    /** What is wrong. */
    public enum Kind {
        /** A process is unreachable, and given up. */
        DEAD,
        /** A rank, or a process, gave no data. */
        MISSING,
        /** A rank has launched fewer operations of a kind than another one. */
        BEHIND,
        /** Ranks are in different states. */
        STATUS,
        /** A rank has met an error of NCCL's. */
        ERROR,
        /** Processes did not answer each other in time, so data may be missing. */
        TIMEOUT;

        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /**
     * One thing that is wrong.
     *
     * @param kind what
     * @param communicator its hash, empty if it concerns the job
     * @param rank the rank, -1 if none or several
     * @param detail who, and what of it
     */
    public record Finding(Kind kind, String communicator, int rank, String detail) {
        @Override
        public String toString() {
            return kind
                    + ": "
                    + (rank < 0 ? "" : "rank " + rank + " ")
                    + detail
                    + (communicator.isEmpty() ? "" : " [communicator " + communicator + "]");
        }
    }
}
