package io.jccl.bench.probe;

import java.util.Locale;

/** Parts of a probe, in the order in which they run. */
public enum ProbeSection {
    /** Products of matrices. */
    MATMUL(30),
    /** A Transformer layer. */
    LAYER(25),
    /** Bandwidth by working set. */
    MEMORY(18),
    /** Operations on whole tensors. */
    ELEMENTWISE(8),
    /** Between cores and devices. */
    LATENCY(3),
    /** Between host and devices. */
    COPY(8),
    /** Sums over ranks. */
    ALLREDUCE(8);

    private final int weight;

    ProbeSection(int weight) {
        this.weight = weight;
    }

    /** Its share of the time. */
    int weight() {
        return weight;
    }

    /** As on the command line. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
