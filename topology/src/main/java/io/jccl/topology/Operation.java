package io.jccl.topology;

import java.util.Locale;

/** Collective operations that can be planned. */
public enum Operation {
    /** Every rank gets the reduction of all ranks' buffers. */
    ALL_REDUCE,
    /** Every rank gets all ranks' parts. */
    ALL_GATHER,
    /** Every rank gets its part of the reduction. */
    REDUCE_SCATTER,
    /** Every rank gets the root's buffer. */
    BROADCAST,
    /** The root gets the reduction of all ranks' buffers. */
    REDUCE,
    /** Every rank gets its part of every rank's buffer. */
    ALL_TO_ALL,
    /** The root gets all ranks' parts. */
    GATHER,
    /** Every rank gets its part of the root's buffer. */
    SCATTER,
    /** Every rank sends to the next one. */
    SEND_RECV;

    /**
     * Its name on the command line, as in nccl-tests: {@code all_reduce}, {@code alltoall}.
     *
     * @return the name
     */
    public String command() {
        return switch (this) {
            case ALL_TO_ALL -> "alltoall";
            case SEND_RECV -> "sendrecv";
            default -> name().toLowerCase(Locale.ROOT);
        };
    }

    /**
     * Finds an operation by name.
     *
     * @param command as {@link #command()} returns it; other common spellings are accepted
     * @return the operation
     */
    public static Operation of(String command) {
        String plain = command.toLowerCase(Locale.ROOT).replaceAll("[-_]", "");
        for (Operation o : values()) {
            if (o.name().replace("_", "").toLowerCase(Locale.ROOT).equals(plain)) {
                return o;
            }
        }
        StringBuilder known = new StringBuilder();
        for (Operation o : values()) {
            known.append(known.isEmpty() ? "" : ", ").append(o.command());
        }
        throw new IllegalArgumentException(
                "unknown operation " + command + ": expected one of " + known);
    }

    /**
     * The factor of busbw = factor * algbw, where algbw is the size that nccl-tests prints divided
     * by the time. Source: nccl-tests, doc/PERFORMANCE.md.
     *
     * @param ranks number of ranks, at least 1
     * @return the factor
     */
    public double busFactor(int ranks) {
        double n = ranks;
        return switch (this) {
            case ALL_REDUCE -> 2 * (n - 1) / n;
            case ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER -> (n - 1) / n;
            case BROADCAST, REDUCE, SEND_RECV -> 1;
        };
    }
}
