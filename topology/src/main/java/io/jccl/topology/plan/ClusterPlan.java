package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import java.util.List;
import java.util.Objects;

/**
 * A plan for many machines: what one of them does, which all do alike, and how the machines are
 * joined.
 *
 * @param cluster the machines
 * @param operation what is done
 * @param gpus the GPUs that take part on each machine: places in its {@link
 *     io.jccl.topology.Topology#gpus()}
 * @param channels what carries the data, all at once
 * @param bandwidthGBps bus bandwidth over all ranks, as in {@link Plan}
 * @param boundGBps the most that any algorithm could reach
 * @param bound what limits it
 * @param why what was considered and chosen, a line each
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
        /** The second: every machine that is inside one tree is a leaf of the other. */
        COMPLEMENT_TREE
    }

    /**
     * One channel. Inside a machine data goes along a chain of all its GPUs, in order of the hops.
     *
     * <p>If a ring leaves by another NIC than it comes in by, every second machine runs its chain
     * backwards, in by {@code nicOut} and out by {@code nicIn}. So data never changes rails, but
     * for one step if the number of machines is odd.
     *
     * @param shape how the machines are joined
     * @param hops of one machine, from the GPU where data comes in to the one where it leaves; no
     *     hops if a machine has one GPU
     * @param entry the GPU at which data comes in
     * @param exit the GPU at which it leaves
     * @param nicIn place in {@link io.jccl.topology.Topology#nics()} of the NIC it comes in by
     * @param nicOut the NIC it leaves by
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
