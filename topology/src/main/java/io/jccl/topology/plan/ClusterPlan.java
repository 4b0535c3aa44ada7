package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import java.util.List;
import java.util.Objects;

/**
 * A plan for many machines: the part of one machine, which is the same for all, and how the
 * machines are joined.
 *
 * @param cluster the machines
 * @param operation the operation
 * @param gpus the participating GPUs of each machine: indices in its {@link
 *     io.jccl.topology.Topology#gpus()}
 * @param channels the rails that carry the data, all used at once
 * @param bandwidthGBps bus bandwidth over all ranks, as in {@link Plan}
 * @param boundGBps the most that any algorithm could reach
 * @param bound what limits it
 * @param why the reasons for the choice, one per line
 */
public record ClusterPlan(
        Cluster cluster,
        Operation operation,
        List<Integer> gpus,
        List<Rail> channels,
        double bandwidthGBps,
        double boundGBps,
        String bound,
        List<String> why) {
    /** How a rail joins the machines. */
    public enum Shape {
        /** Machine <i>i</i> sends to <i>i+1</i>, the last to the first. */
        RING,
        /** The first of a pair of complementary binary trees over the machines. */
        TREE,
        /** The second of the pair: every inner machine of one tree is a leaf of the other. */
        COMPLEMENT_TREE
    }

    /**
     * One channel. Inside a machine data goes along a chain of all its GPUs, in order of the hops.
     *
     * <p>If a ring leaves by another NIC than it enters by, every second machine runs its chain
     * backwards, in by {@code nicOut} and out by {@code nicIn}. Data then never changes rails,
     * except for one step if the number of machines is odd.
     *
     * @param shape how the machines are joined
     * @param hops of one machine, from the GPU where data enters to the one where it leaves; none
     *     if a machine has one GPU
     * @param entry the GPU at which data enters
     * @param exit the GPU at which it leaves
     * @param nicIn index in {@link io.jccl.topology.Topology#nics()} of the NIC by which it enters
     * @param nicOut index of the NIC by which it leaves
     * @param gbps GB/s over each hop and over the network
     */
    public record Rail(
            Shape shape, List<Hop> hops, int entry, int exit, int nicIn, int nicOut, double gbps) {
        /** Copies the list. */
        public Rail {
            Objects.requireNonNull(shape, "shape");
            hops = List.copyOf(hops);
        }
    }

    /** Copies the lists. */
    public ClusterPlan {
        Objects.requireNonNull(cluster, "cluster");
        Objects.requireNonNull(operation, "operation");
        Objects.requireNonNull(bound, "bound");
        gpus = List.copyOf(gpus);
        channels = List.copyOf(channels);
        why = List.copyOf(why);
    }
}
