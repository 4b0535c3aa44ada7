package io.jccl.topology.read;

/**
 * A logical CPU of Linux. CPUs with the same {@link #l3} share that cache; the same holds for
 * {@link #l2}.
 *
 * @param id its number
 * @param core its core: the number of the lowest CPU on it, which is unique in the machine
 * @param socket physical package, 0 if unknown
 * @param numa NUMA node, 0 if unknown
 * @param l2 its level 2 cache: the number of the lowest CPU that shares it; -1 if unknown
 * @param l3 its level 3 cache, in the same way
 */
public record Cpu(int id, int core, int socket, int numa, int l2, int l3) {}
