package io.jccl.topology.plan;

import java.util.ArrayList;
import java.util.List;

/**
 * One of the paths along which a plan moves a share of the data. All channels are used at once; a
 * channel's share is proportional to {@link #gbps()}.
 *
 * <p><b>Threads:</b> immutable.
 */
public sealed interface Channel permits Channel.Ring, Channel.Tree, Channel.Exchange {
    /**
     * The rate over each of its hops. Summed over all channels of a plan, no arc exceeds its
     * bandwidth.
     *
     * @return GB/s (10^9 bytes)
     */
    double gbps();

    /**
     * The hops, each in the direction away from the root or around the ring. A tree of an allReduce
     * uses every hop in the opposite direction too; a tree of a reduce uses only that direction.
     *
     * @return the hops
     */
    List<Hop> hops();

    /**
     * A directed ring.
     *
     * @param hops hop <i>i</i> ends where hop <i>i+1</i> starts, the last ends where the first
     *     starts
     * @param gbps see {@link Channel#gbps()}
     */
    record Ring(List<Hop> hops, double gbps) implements Channel {
        /** Checks that the hops form a cycle. */
        public Ring {
            hops = List.copyOf(hops);
            for (int i = 0; i < hops.size(); i++) {
                if (hops.get(i).to() != hops.get((i + 1) % hops.size()).from()) {
                    throw new IllegalArgumentException("hops do not make a ring: " + hops);
                }
            }
        }

        /**
         * GPUs in the order in which data visits them.
         *
         * @return indices in {@link io.jccl.topology.Topology#gpus()}
         */
        public List<Integer> order() {
            List<Integer> order = new ArrayList<>(hops.size());
            for (Hop hop : hops) {
                order.add(hop.from());
            }
            return order;
        }
    }

    /**
     * A spanning tree.
     *
     * @param root index of the root GPU
     * @param hops from parents to children, parents first
     * @param gbps see {@link Channel#gbps()}
     */
    record Tree(int root, List<Hop> hops, double gbps) implements Channel {
        /** Copies the list. */
        public Tree {
            hops = List.copyOf(hops);
        }
    }

    /**
     * Direct exchange: every pair at once.
     *
     * @param hops one for each ordered pair that exchanges data
     * @param gbps GB/s of each hop
     */
    record Exchange(List<Hop> hops, double gbps) implements Channel {
        /** Copies the list. */
        public Exchange {
            hops = List.copyOf(hops);
        }
    }
}
