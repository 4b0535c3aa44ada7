package io.jccl.topology;

import java.util.Objects;

/**
 * A full-duplex link. It has two arcs, one per direction, each with the whole {@link #gbps}: arc
 * {@code 2 * id} leads from {@code a} to {@code b}, arc {@code 2 * id + 1} back. All traffic over
 * an arc shares its bandwidth.
 *
 * @param id index in {@link Topology#links()}
 * @param a id of one end
 * @param b id of the other end
 * @param kind its technology
 * @param count how many physical links are bonded: 4 for NV4, 1 elsewhere
 * @param gbps GB/s (10^9 bytes) per direction, of all {@code count} together
 * @param source where {@code gbps} comes from
 */
public record Link(int id, int a, int b, LinkKind kind, int count, double gbps, Source source) {
    /** Checks the arguments. */
    public Link {
        Objects.requireNonNull(kind, "kind");
        Objects.requireNonNull(source, "source");
        if (a == b || a < 0 || b < 0) {
            throw new IllegalArgumentException(
                    "the ends of a link must be two nodes, found " + a + " and " + b);
        }
        if (count < 1) {
            throw new IllegalArgumentException("count is " + count + ", expected at least 1");
        }
        if (!(gbps > 0) || Double.isInfinite(gbps)) {
            throw new IllegalArgumentException(
                    "bandwidth is " + gbps + " GB/s, expected a finite number above 0");
        }
    }

    /**
     * The arc that leaves a node.
     *
     * @param from id of one of the ends
     * @return the arc from there to the other end
     */
    public int arcFrom(int from) {
        if (from == a) {
            return 2 * id;
        }
        if (from == b) {
            return 2 * id + 1;
        }
        throw new IllegalArgumentException("node " + from + " is not an end of " + this);
    }

    /**
     * The other end.
     *
     * @param node id of one of the ends
     * @return id of the other
     */
    public int opposite(int node) {
        return arcFrom(node) % 2 == 0 ? b : a;
    }
}
