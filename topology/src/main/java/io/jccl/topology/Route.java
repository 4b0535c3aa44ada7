package io.jccl.topology;

import java.util.List;

/**
 * A path of links from one node to another.
 *
 * @param from id of the node it starts at
 * @param to id of the node it ends at
 * @param arcs the arcs it uses, in order (see {@link Link}); empty if {@code from} is {@code to}
 * @param gbps GB/s per direction of its narrowest arc, without other traffic
 */
public record Route(int from, int to, List<Integer> arcs, double gbps) {
    /** Copies the list. */
    public Route {
        arcs = List.copyOf(arcs);
    }
}
