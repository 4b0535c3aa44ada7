package io.jccl.topology.cost;

/**
 * The time of an operation beyond the latency and bandwidth that NCCL ranks by: its launch, and
 * filling its pipeline. Immutable.
 *
 * @param p launch, and sizes of chunks
 * @param fillUs most that filling takes, microseconds
 * @param halfBytes size at which it takes half of that
 * @param gbps bandwidth at which a round of chunks is filled, GB/s of the operation's size; 0 if
 *     there are no rounds
 * @param units how many chunks a round has
 */
record Start(Parameters p, double fillUs, double halfBytes, double gbps, double units) {

    /** Only a launch. */
    static Start launch(Parameters p) {
        return new Start(p, 0, 1, 0, 0);
    }

    /** A pipeline whose steps wait for each other. */
    static Start pipeline(Parameters p, double fillUs, double halfBytes) {
        return new Start(p, fillUs, halfBytes, 0, 0);
    }

    /**
     * Rounds of chunks, of which the first has to be through before anything comes out; and filling
     * that takes half of its time if there is one round.
     */
    static Start rounds(Parameters p, double gbps, double units, double fillUs) {
        return new Start(p, fillUs, 1024 * p.nvlsChunk[0] * units, gbps, units);
    }

    /** Microseconds for an operation of a size. */
    double us(long bytes) {
        double us = p.launch + fillUs * bytes / (bytes + halfBytes);
        if (gbps > 0) {
            int at = 0;
            while (at < p.nvlsRounds.length && bytes < p.nvlsRounds[at] * units * chunk(at)) {
                at++;
            }
            us += Math.min((double) bytes, units * chunk(at)) / (1000 * gbps);
        }
        return us;
    }

    private double chunk(int at) {
        return 1024 * p.nvlsChunk[at];
    }
}
