package io.jccl.cli.topo;

import io.jccl.topology.Gpu;
import io.jccl.topology.Nic;
import io.jccl.topology.PathCode;
import io.jccl.topology.Route;
import io.jccl.topology.Topology;
import io.jccl.topology.read.NvlinkStatus;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The rows of {@link Findings} about devices and links. */
final class FindingsRows {
    private final Topology topology;

    FindingsRows(Topology topology) {
        this.topology = topology;
    }

    /** All GPUs, with their active links if known. */
    List<Findings.GpuRow> gpus(@Nullable NvlinkStatus status) {
        List<Findings.GpuRow> rows = new ArrayList<>();
        for (Gpu gpu : topology.gpus()) {
            NvlinkStatus.GpuLinks links =
                    status == null ? null : status.gpu(gpu.index()).orElse(null);
            String model = gpu.model() != null || links == null ? gpu.model() : links.model();
            rows.add(
                    new Findings.GpuRow(
                            gpu.index(),
                            gpu.name(),
                            gpu.cpuAffinity(),
                            gpu.numaAffinity(),
                            gpu.gpuNumaId(),
                            model,
                            gpu.sm() == 0 ? null : gpu.sm() / 10 + "." + gpu.sm() % 10,
                            gpu.busId(),
                            links == null ? null : links.active(),
                            links == null || links.rawGbps() == 0 ? null : links.rawGbps()));
        }
        return rows;
    }

    List<Findings.NicRow> nics() {
        return topology.nics().stream()
                .map(n -> new Findings.NicRow(n.name(), n.device(), n.gbps() > 0 ? n.gbps() : null))
                .toList();
    }

    /**
     * All pairs of a GPU and a GPU or NIC.
     *
     * @param paths whether the topology has bandwidths of routes
     */
    List<Findings.Pair> pairs(boolean paths) {
        List<Findings.Pair> pairs = new ArrayList<>();
        for (Gpu a : topology.gpus()) {
            for (Gpu b : topology.gpus()) {
                if (a.id() < b.id()) {
                    pairs.add(pair(a, b.id(), b.name(), false, paths));
                }
            }
        }
        for (Gpu a : topology.gpus()) {
            for (Nic nic : topology.nics()) {
                pairs.add(pair(a, nic.id(), nic.name(), true, paths));
            }
        }
        return pairs;
    }

    private Findings.Pair pair(Gpu a, int b, String name, boolean toNic, boolean paths) {
        PathCode code = topology.code(a.id(), b);
        boolean known =
                paths && code.kind() != PathCode.Kind.P2P && code.kind() != PathCode.Kind.UNKNOWN;
        Route route = known ? topology.route(a.id(), b) : null;
        return new Findings.Pair(
                a.name(),
                name,
                toNic,
                code.text(),
                kind(code.kind()),
                switch (code.kind()) {
                    case NV -> code.count();
                    case P2P, UNKNOWN -> 0;
                    default -> 1;
                },
                route == null ? null : route.gbps());
    }

    /** Values of a link's {@code kind} in JSON. */
    private static String kind(PathCode.Kind kind) {
        return switch (kind) {
            case SELF -> "self";
            case NV -> "nvlink";
            case PIX, PXB -> "pcie";
            case PHB, NODE -> "host_bridge";
            case SYS -> "smp";
            case P2P -> "p2p";
            case UNKNOWN -> "unknown";
        };
    }
}
