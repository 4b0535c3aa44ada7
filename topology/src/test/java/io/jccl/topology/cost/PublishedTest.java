package io.jccl.topology.cost;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Machines;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Cluster;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Predictions against figures that others have measured and published, and where. */
class PublishedTest {
    private static final long GB = 1L << 30;

    /**
     * A measurement of allReduce.
     *
     * @param machine what it was done on
     * @param bytes size
     * @param busbw GB/s
     * @param algorithm the one that the figure is for; null if it was NCCL's choice
     * @param fitted whether a parameter was fitted to it, or the form of the model chosen with it
     *     in sight and found wrong before
     * @param source where it stands
     */
    record Figure(
            String machine,
            Tuning tuning,
            long bytes,
            double busbw,
            @Nullable Algorithm algorithm,
            boolean fitted,
            String source) {
        double predicted() {
            return tuning.predict(bytes).stream()
                    .filter(p -> algorithm == null || p.algorithm() == algorithm)
                    .findFirst()
                    .orElseThrow()
                    .busbwGBps();
        }

        @Override
        public String toString() {
            return machine + (algorithm == null ? "" : ", " + algorithm);
        }
    }

    private static List<Integer> first(int n) {
        return IntStream.range(0, n).boxed().toList();
    }

    static Tuning on(Topology t, int gpus) {
        return CostModel.nccl().tune(t, first(gpus), Operation.ALL_REDUCE);
    }

    static Tuning on(Topology t, int machines, int gpus) {
        return CostModel.nccl().tune(new Cluster(t, machines), first(gpus), Operation.ALL_REDUCE);
    }

    /** 8 GPUs on NVSwitches, each with NICs beside it. */
    static Topology node(int sm, int links, double perLink, int perGpu, double nicGbps) {
        return node(8, sm, links, perLink, perGpu, nicGbps);
    }

    static Topology node(int gpus, int sm, int links, double perLink, int perGpu, double nicGbps) {
        Topology.Builder b = new Topology.Builder(gpus + " GPUs with " + perGpu + " NICs each");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, sm);
        }
        for (int i = 0; i < gpus * perGpu; i++) {
            b.add(new Nic(b.nextId(), "mlx5_" + i, null, nicGbps));
        }
        int nvs = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        int numa = b.addSwitch("numa0", Switch.Kind.NUMA);
        for (int i = 0; i < gpus; i++) {
            b.link(i, nvs, LinkKind.NVLINK, links, links * perLink, Source.NCCL_MODEL);
            int sw = b.addSwitch("pcie" + i, Switch.Kind.PCIE_SWITCH);
            b.link(i, sw, LinkKind.PCIE, 1, Math.max(24, perGpu * nicGbps), Source.NCCL_MODEL);
            b.link(sw, numa, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
            for (int k = 0; k < perGpu; k++) {
                b.link(
                        gpus + perGpu * i + k,
                        sw,
                        LinkKind.PCIE,
                        1,
                        Math.max(24, perGpu * nicGbps),
                        Source.NCCL_MODEL);
            }
        }
        return b.build();
    }

    /** 8 A100s, every two of them beside a NIC of 200 Gbit/s. */
    private static Topology shared() {
        Topology.Builder b = new Topology.Builder("8 GPUs with 4 NICs");
        for (int i = 0; i < 8; i++) {
            b.addGpu(i, 80);
        }
        for (int i = 0; i < 4; i++) {
            b.add(new Nic(b.nextId(), "mlx5_" + i, null, 25));
        }
        int nvs = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        int numa = b.addSwitch("numa0", Switch.Kind.NUMA);
        for (int i = 0; i < 8; i++) {
            b.link(i, nvs, LinkKind.NVLINK, 12, 240, Source.NCCL_MODEL);
        }
        for (int k = 0; k < 4; k++) {
            int sw = b.addSwitch("pcie" + k, Switch.Kind.PCIE_SWITCH);
            b.link(8 + k, sw, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
            b.link(2 * k, sw, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
            b.link(2 * k + 1, sw, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
            b.link(sw, numa, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
        }
        return b.build();
    }

    /** Pairs of GPUs with bridged NVLinks, every GPU on its own host bridge of its socket. */
    private static Topology bridged(int gpus, int sm, int links, double perLink, double pcie) {
        Topology.Builder b = new Topology.Builder(gpus + " GPUs in bridged pairs");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, sm);
        }
        int n0 = b.addSwitch("numa0", Switch.Kind.NUMA);
        int n1 = b.addSwitch("numa1", Switch.Kind.NUMA);
        b.link(n0, n1, LinkKind.SMP, 1, 10, Source.NCCL_MODEL);
        for (int i = 0; i < gpus; i++) {
            int bridge = b.addSwitch("host-bridge" + i, Switch.Kind.HOST_BRIDGE);
            b.link(i, bridge, LinkKind.PCIE, 1, pcie, Source.NCCL_MODEL);
            int numa = i < Math.max(gpus / 2, 2) ? n0 : n1;
            b.link(bridge, numa, LinkKind.HOST_BRIDGE, 1, 2 * pcie, Source.NCCL_MODEL);
        }
        for (int i = 0; links > 0 && i + 1 < gpus; i += 2) {
            b.link(i, i + 1, LinkKind.NVLINK, links, links * perLink, Source.NCCL_MODEL);
        }
        return b.build();
    }

    /** Four GPUs, every pair joined by as many links. */
    static Topology board(int sm, int links, double perLink) {
        Topology.Builder b = new Topology.Builder("4 GPUs on a board");
        for (int i = 0; i < 4; i++) {
            b.addGpu(i, sm);
        }
        for (int i = 0; i < 4; i++) {
            for (int j = i + 1; j < 4; j++) {
                b.link(i, j, LinkKind.NVLINK, links, links * perLink, Source.NCCL_MODEL);
            }
        }
        return b.build();
    }

    static Stream<Figure> figures() {
        Topology a100 = node(80, 12, 20, 1, 25);
        Topology h100 = node(90, 18, 20.6, 1, 50);
        return Stream.of(
                new Figure(
                        "8x A100 SXM",
                        on(a100, 8),
                        8 * GB,
                        235.3,
                        null,
                        true,
                        "microsoft/superbenchmark, tests/data/nccl_allreduce.log"),
                new Figure(
                        "8x A100 SXM",
                        on(a100, 8),
                        16 * GB,
                        234.9,
                        null,
                        false,
                        "stas00/ml-engineering, network/README.md"),
                new Figure(
                        "4x DGX A100, 8x HDR",
                        on(a100, 4, 8),
                        4 * GB,
                        191.6,
                        null,
                        false,
                        "NVIDIA/deepops"),
                new Figure(
                        "2x 8 A100, 4x HDR",
                        on(shared(), 2, 8),
                        8 * GB,
                        91,
                        null,
                        true,
                        "NVIDIA/nccl-tests issue 100"),
                new Figure(
                        "2x A100 PCIe, NV12",
                        on(bridged(8, 80, 12, 20, 24), 2),
                        8 * GB,
                        208,
                        null,
                        true,
                        "NVIDIA/nccl-tests issue 178"),
                new Figure(
                        "3x A100 PCIe",
                        on(bridged(8, 80, 12, 20, 24), 3),
                        8 * GB,
                        20,
                        null,
                        true,
                        "NVIDIA/nccl-tests issue 178"),
                new Figure(
                        "8x H100 SXM",
                        on(h100, 8),
                        8 * GB,
                        480,
                        Algorithm.NVLS,
                        true,
                        "NVIDIA/nccl-tests issue 212"),
                new Figure(
                        "8x H100 SXM",
                        on(h100, 8),
                        8 * GB,
                        370,
                        Algorithm.RING,
                        false,
                        "NVIDIA/nccl-tests issue 212"),
                new Figure(
                        "8x H200",
                        on(h100, 8),
                        4 * GB,
                        475,
                        null,
                        false,
                        "NVIDIA/nccl-tests issue 272"),
                new Figure(
                        "8x H800",
                        on(node(90, 8, 20.6, 1, 50), 8),
                        8 * GB,
                        215,
                        null,
                        false,
                        "NVIDIA/nccl issue 1374"),
                new Figure(
                        "2x AWS p5, 32x 100 Gbit/s EFA",
                        on(node(90, 18, 20.6, 4, 12.5), 2, 8),
                        2 * GB,
                        437.8,
                        null,
                        false,
                        "public record of 2 x p5 over EFA"),
                new Figure(
                        "2x 8 H100, 8x 400 Gbit/s RoCE",
                        on(h100, 2, 8),
                        8 * GB,
                        430,
                        null,
                        false,
                        "NVIDIA/nccl issue 1221"),
                new Figure(
                        "4x 8 H100, 8x 400 Gbit/s",
                        on(h100, 4, 8),
                        16 * GB,
                        365.84,
                        null,
                        false,
                        "NVIDIA/nccl-tests issue 309"),
                new Figure(
                        "3x 4 GB200 of three racks, no NVLS",
                        on(node(4, 100, 18, 40.1, 1, 50), 3, 4),
                        16 * GB,
                        196.72,
                        Algorithm.RING,
                        false,
                        "NVIDIA/nccl issue 1801"),
                new Figure(
                        "3x 4 GB200 of three racks, no NVLS",
                        on(node(4, 100, 18, 40.1, 1, 50), 3, 4),
                        16 * GB,
                        234.43,
                        Algorithm.TREE,
                        true,
                        "NVIDIA/nccl issue 1801"),
                new Figure(
                        "3x 8 GB200 of three racks, no NVLS",
                        on(node(8, 100, 18, 40.1, 1, 50), 3, 8),
                        16 * GB,
                        393.66,
                        Algorithm.RING,
                        false,
                        "NVIDIA/nccl issue 1801"),
                new Figure(
                        "3x 8 GB200 of three racks, no NVLS",
                        on(node(8, 100, 18, 40.1, 1, 50), 3, 8),
                        16 * GB,
                        485.68,
                        Algorithm.TREE,
                        true,
                        "NVIDIA/nccl issue 1801"),
                new Figure(
                        "2 racks of 72 GB200",
                        on(node(72, 100, 18, 40.1, 1, 50), 2, 72),
                        16 * GB,
                        810.41,
                        null,
                        false,
                        "coreweave/nccl-tests, README.md"),
                new Figure(
                        "20 racks of 72 GB200",
                        on(node(72, 100, 18, 40.1, 1, 50), 20, 72),
                        16 * GB,
                        405.74,
                        null,
                        true,
                        "coreweave/nccl-tests, README.md"),
                new Figure(
                        "GB200 NVL72",
                        on(node(72, 100, 18, 40.1, 1, 50), 72),
                        4 * GB,
                        839,
                        null,
                        true,
                        "coreweave/nccl-tests PR 43"));
    }

    @ParameterizedTest
    @MethodSource("figures")
    void within10Percent(Figure f) {
        double ratio = f.predicted() / f.busbw();
        assertEquals(1, ratio, 0.1, f + ": " + f.predicted() + " of " + f.busbw());
    }

    /** stas00/ml-engineering, network/README.md: NVLS from 5 GPUs on (H200), from 6 on (B200). */
    @Test
    void nvlsFromSomeGpusOn() {
        for (int n = 2; n <= 8; n++) {
            assertEquals(
                    n >= 5,
                    on(node(90, 18, 20.6, 1, 50), n).choose(8 * GB).algorithm() == Algorithm.NVLS);
            assertEquals(
                    n >= 6,
                    on(node(100, 18, 40.1, 1, 50), n).choose(8 * GB).algorithm() == Algorithm.NVLS);
        }
    }

    /** No published figure stands behind these: links times NCCL's planning constant. */
    @Test
    void plausible() {
        assertEquals(120, on(Machines.dgx1v(), 8).choose(4 * GB).busbwGBps(), 12);
        assertEquals(120, on(node(16, 70, 6, 20, 1, 12.5), 16).choose(4 * GB).busbwGBps(), 12);
        assertEquals(230, on(board(80, 4, 20), 4).choose(4 * GB).busbwGBps(), 23);
        assertTrue(
                on(bridged(2, 86, 4, 12, 24), 2).choose(4 * GB).busbwGBps()
                        > 2 * on(bridged(2, 86, 0, 12, 24), 2).choose(4 * GB).busbwGBps());
    }
}
