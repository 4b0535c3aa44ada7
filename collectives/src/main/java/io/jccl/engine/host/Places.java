package io.jccl.engine.host;

import java.util.BitSet;

/** How the ranks of a machine share its CPUs, which determines how they wait for each other. */
enum Places {
    /** Each has its own CPUs. */
    APART,

    /** They share enough CPUs, but the scheduler may put two on one. */
    TOGETHER,

    /** There are more ranks than CPUs, so some wait for a core, not for data. */
    CROWDED;

    /**
     * Determines it.
     *
     * @param cpus by rank, the CPUs that it may use, one bit each; none if that is not known
     * @param available processors that the JVM of one of them reports: fewer than its CPUs if a
     *     container limits its CPU time
     * @param rank the rank of that JVM
     */
    static Places of(long[][] cpus, int available, int rank) {
        BitSet all = new BitSet();
        boolean apart = cpus.length > 1;
        boolean known = true;
        for (long[] words : cpus) {
            BitSet one = BitSet.valueOf(words);
            known &= !one.isEmpty();
            apart &= !all.intersects(one);
            all.or(one);
        }
        boolean limited = !known || available < BitSet.valueOf(cpus[rank]).cardinality();
        int processors = known ? all.cardinality() : available;
        if (cpus.length > (limited ? Math.min(available, processors) : processors)) {
            return CROWDED;
        }
        return known && apart ? APART : TOGETHER;
    }
}
