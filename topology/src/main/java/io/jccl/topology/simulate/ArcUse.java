package io.jccl.topology.simulate;

/**
 * What an arc carried.
 *
 * @param arc see {@link io.jccl.topology.Link}; in a cluster, an arc of each machine
 * @param name from where to where, for people
 * @param bytes how many
 * @param use share of what it could have carried in the time, 0 to 1
 */
public record ArcUse(int arc, String name, double bytes, double use) {}
