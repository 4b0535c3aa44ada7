package io.jccl.topology;

/** Topologies for tests, made by hand from public descriptions of machines. */
public final class Machines {
    private Machines() {}

    /**
     * The hybrid cube mesh of a DGX-1 with V100s: 6 NVLinks a GPU of 20 GB/s (NCCL's constant), two
     * PCIe switches a socket with two GPUs each.
     */
    public static Topology dgx1v() {
        int[][] nvlinks = {
            {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
            {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}
        };
        Topology.Builder b = new Topology.Builder("DGX-1V");
        for (int i = 0; i < 8; i++) {
            b.addGpu(i, 70);
        }
        pcie(b, 8, 2, 12, 10);
        for (int[] l : nvlinks) {
            b.link(l[0], l[1], LinkKind.NVLINK, l[2], 20.0 * l[2], Source.NCCL_MODEL);
        }
        return b.build();
    }

    /** GPUs on NVSwitches, and PCIe as in {@link #dgx1v}. */
    public static Topology nvswitch(int gpus, int sm, int links, double perLink) {
        Topology.Builder b = new Topology.Builder(gpus + " GPUs on NVSwitches");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, sm);
        }
        pcie(b, gpus, 2, 24, 16);
        int sw = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        for (int i = 0; i < gpus; i++) {
            b.link(i, sw, LinkKind.NVLINK, links, links * perLink, Source.NCCL_MODEL);
        }
        return b.build();
    }

    /** No NVLink: GPUs on PCIe alone, over two sockets. */
    public static Topology pcieOnly(int gpus, int perSwitch, double pcie, double smp) {
        Topology.Builder b = new Topology.Builder(gpus + " GPUs on PCIe");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, 0);
        }
        pcie(b, gpus, perSwitch, pcie, smp);
        return b.build();
    }

    /** Switches of {@code perSwitch} GPUs, each on a host bridge; half of them on either socket. */
    private static void pcie(Topology.Builder b, int gpus, int perSwitch, double pcie, double smp) {
        int switches = (gpus + perSwitch - 1) / perSwitch;
        int[] numa = {
            b.addSwitch("numa0", Switch.Kind.NUMA), b.addSwitch("numa1", Switch.Kind.NUMA)
        };
        b.link(numa[0], numa[1], LinkKind.SMP, 1, smp, Source.NCCL_MODEL);
        for (int s = 0; s < switches; s++) {
            int sw = b.addSwitch("pcie-switch" + s, Switch.Kind.PCIE_SWITCH);
            int bridge = b.addSwitch("host-bridge" + s, Switch.Kind.HOST_BRIDGE);
            b.link(sw, bridge, LinkKind.PCIE, 1, pcie, Source.NCCL_MODEL);
            b.link(
                    bridge,
                    numa[2 * s / switches],
                    LinkKind.HOST_BRIDGE,
                    1,
                    2 * pcie,
                    Source.DEFAULT);
            for (int g = s * perSwitch; g < Math.min(gpus, (s + 1) * perSwitch); g++) {
                b.link(g, sw, LinkKind.PCIE, 1, pcie, Source.NCCL_MODEL);
            }
        }
    }
}
