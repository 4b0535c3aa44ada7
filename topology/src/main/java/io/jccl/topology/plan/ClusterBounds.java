package io.jccl.topology.plan;

import io.jccl.topology.Link;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.List;

/**
 * The highest bus bandwidth that any plan over many machines can have.
 *
 * <p>With W the bandwidth from the GPUs of a machine into the network, m machines of n GPUs and N =
 * m n: around a machine {@link Bounds} gives allReduce W m (N-1) / ((m-1) N), allGather and
 * reduceScatter W (N-1) / (N-n), broadcast and reduce W. Around a GPU all its links count, PCIe
 * included, since what comes from the NIC passes over it.
 */
final class ClusterBounds {
    private final Topology t;
    private final Operation op;
    private final List<Integer> gpus;
    private final int n;
    private final int m;
    private final double[] nics;

    private ClusterBounds(Cluster cluster, Operation op, List<Integer> gpus, double[] nics) {
        this.t = cluster.machine();
        this.op = op;
        this.gpus = gpus;
        this.n = gpus.size();
        this.m = cluster.machines();
        this.nics = nics;
    }

    /**
     * The bound and what it follows from.
     *
     * @param nics bandwidth of each NIC in GB/s; 0 if no GPU reaches it
     */
    static Bounds.Bound of(Cluster cluster, Operation op, List<Integer> gpus, double[] nics) {
        return new ClusterBounds(cluster, op, gpus, nics).bound();
    }

    private Bounds.Bound bound() {
        double out = egress();
        double ranks = (double) m * n;
        double factor =
                switch (op) {
                    case ALL_REDUCE -> m * (ranks - 1) / ((m - 1) * ranks);
                    case ALL_GATHER, REDUCE_SCATTER -> (ranks - 1) / (ranks - n);
                    default -> 1;
                };
        double least = out * factor;
        String what = "NICs of a machine, " + Texts.number(out) + " GB/s each way";
        double sum = 0;
        for (int gpu : gpus) {
            double width = 0;
            for (Link link : t.links(gpu)) {
                width += link.gbps();
            }
            sum += width;
            if (op != Operation.ALL_REDUCE && width < least) {
                least = width;
                what = "links of " + t.gpus().get(gpu).name();
            }
        }
        if (op == Operation.ALL_REDUCE && sum / n < least) {
            least = sum / n;
            what = "links of all GPUs together";
        }
        return new Bounds.Bound(least, what);
    }

    /** Maximum flow from the GPUs through the NICs. */
    private double egress() {
        double[] left = new double[2 * t.links().size()];
        for (int arc = 0; arc < left.length; arc++) {
            left[arc] = t.capacity(arc);
        }
        double[] sinks = new double[t.nodes().size()];
        System.arraycopy(nics, 0, sinks, t.gpus().size(), nics.length);
        return MaxFlow.of(t, left, gpus.stream().mapToInt(gpu -> gpu).toArray(), sinks);
    }
}
