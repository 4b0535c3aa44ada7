package io.jccl.topology;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class TopologyTest {
    @Test
    void routesTakeTheWidestLinkAndNeverPassThroughGpus() {
        Topology t = Machines.dgx1v();
        Route near = t.route(0, 3);
        assertNotNull(near);
        assertEquals(40, near.gbps());
        assertEquals(1, near.arcs().size());
        // GPU0 and GPU7 have no NVLink to each other: over both sockets.
        Route far = t.route(0, 7);
        assertNotNull(far);
        assertEquals(10, far.gbps());
        assertEquals(7, far.arcs().size());
        assertEquals("SYS", t.code(0, 7).text());
        assertEquals("NV2", t.code(0, 3).text());
    }

    @Test
    void codesAreDerivedAsNvidiaSmiPrintsThem() {
        Topology t = Machines.pcieOnly(8, 2, 12, 10);
        assertEquals("X", t.code(0, 0).text());
        assertEquals("PIX", t.code(0, 1).text());
        assertEquals("NODE", t.code(0, 2).text());
        assertEquals("SYS", t.code(0, 7).text());
        assertEquals("NV18", Machines.nvswitch(8, 90, 18, 20.6).code(2, 5).text());
    }

    /** As on a Power9: nvidia-smi shows NVLinks to CPUs as the path between the CPUs. */
    @Test
    void nvlinksThroughCpusAreNoNvlinkPath() {
        Topology.Builder b = new Topology.Builder("NVLink to the CPUs");
        for (int i = 0; i < 3; i++) {
            b.addGpu(i, 70);
        }
        int near = b.addSwitch("numa0", Switch.Kind.NUMA);
        int far = b.addSwitch("numa8", Switch.Kind.NUMA);
        b.link(0, near, LinkKind.NVLINK, 3, 60, Source.NCCL_MODEL);
        b.link(1, near, LinkKind.NVLINK, 3, 60, Source.NCCL_MODEL);
        b.link(2, far, LinkKind.NVLINK, 3, 60, Source.NCCL_MODEL);
        b.link(near, far, LinkKind.SMP, 1, 32, Source.NCCL_MODEL);
        Topology t = b.build();
        assertEquals("PHB", t.code(0, 1).text());
        assertEquals("SYS", t.code(0, 2).text());
    }

    @Test
    void unconnectedNodesHaveNoRoute() {
        Topology.Builder b = new Topology.Builder("apart");
        b.addGpu(0, 0);
        b.addGpu(1, 0);
        assertNull(b.build().route(0, 1));
    }

    @Test
    void pathCodes() {
        assertEquals(new PathCode("NV12", PathCode.Kind.NV, 12), PathCode.of("NV12"));
        assertEquals(PathCode.Kind.SYS, PathCode.of("SOC").kind());
        assertEquals(PathCode.Kind.P2P, PathCode.of("CNS").kind());
        for (String odd : List.of("NV", "NV0", "NVB", "NV1x", "C2C", "", "pix")) {
            assertEquals(PathCode.Kind.UNKNOWN, PathCode.of(odd).kind(), odd);
        }
    }

    @Test
    void badLinksAndNamesAreRefused() {
        Topology.Builder b = new Topology.Builder("bad");
        int a = b.addGpu(0, 0);
        int c = b.addGpu(0, 0);
        assertThrows(
                IllegalArgumentException.class,
                () -> b.link(a, 7, LinkKind.PCIE, 1, 12, Source.DEFAULT));
        assertThrows(
                IllegalArgumentException.class,
                () -> b.link(a, c, LinkKind.PCIE, 1, Double.NaN, Source.DEFAULT));
        assertThrows(IllegalArgumentException.class, b::build);
    }
}
