package io.jccl.topology.cost;

/** NCCL's protocols: how a receiver learns that data has arrived. */
public enum Protocol {
    /** A flag with every 4 bytes: lowest latency, at most half of the bandwidth. */
    LL,
    /** A flag with every 120 bytes; needs NVLink, and GPUs from Volta on. */
    LL128,
    /** Memory fences: full bandwidth, highest latency. */
    SIMPLE
}
