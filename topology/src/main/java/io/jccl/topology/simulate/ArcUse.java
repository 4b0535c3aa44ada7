package io.jccl.topology.simulate;

/**
 * The traffic of an arc in a simulation.
 *
 * @param arc see {@link io.jccl.topology.Link}; in a cluster, an arc of each machine
 * @param name its ends, for display
 * @param bytes bytes it carried
 * @param use share of its capacity that was used, 0 to 1
 */
public record ArcUse(int arc, String name, double bytes, double use) {}
