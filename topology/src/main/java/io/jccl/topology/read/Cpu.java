package io.jccl.topology.read;

/**
 * A logical CPU of Linux. Two with the same {@link #l3} share that cache, and likewise {@link #l2}.
 *
 * @param id its number
 * @param core its core: the number of the lowest CPU on it, so unique in the machine
 * @param socket physical package, 0 if the system does not say
 * @param numa NUMA node, 0 if the system does not say
 * @param l2 its level 2 cache: the number of the lowest CPU that shares it; -1 if the system does
 *     not say
 * @param l3 its level 3 cache, likewise
 */
public record Cpu(int id, int core, int socket, int numa, int l2, int l3) {}
