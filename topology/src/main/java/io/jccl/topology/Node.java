package io.jccl.topology;

/** A vertex of a {@link Topology}. Immutable. */
public sealed interface Node permits Gpu, Nic, Switch {
    /**
     * Its index in {@link Topology#nodes()}: GPUs first, then NICs, then switches.
     *
     * @return 0 to the number of nodes, exclusive
     */
    int id();

    /**
     * Unique in its topology: {@code GPU0}, {@code mlx5_0}, {@code pcie-switch1}, {@code numa0}.
     *
     * @return the name, as printed where it comes from a dump
     */
    String name();
}
