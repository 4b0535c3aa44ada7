package io.jccl.topology.read;

import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.Warning;
import java.util.List;

/** Puts what the caller knows into a graph that was not made from a matrix. */
final class TopologyOverrides {
    private TopologyOverrides() {}

    /**
     * The same graph with the options' name, and with their model and bandwidths where these are
     * set.
     *
     * @param warnings additional warnings
     * @throws IllegalArgumentException if the model is not known
     */
    static Topology of(Topology t, ReadOptions options, List<Warning> warnings) {
        Topology.Builder b = new Topology.Builder(options.name());
        GpuModels.Model model = GpuModels.given(options);
        for (Gpu gpu : t.gpus()) {
            b.add(
                    model == null
                            ? gpu
                            : new Gpu(
                                    gpu.id(),
                                    gpu.name(),
                                    gpu.index(),
                                    options.gpuModel(),
                                    model.sm(),
                                    Source.USER,
                                    gpu.busId(),
                                    gpu.cpuAffinity(),
                                    gpu.numaAffinity(),
                                    gpu.gpuNumaId()));
        }
        for (Nic nic : t.nics()) {
            double gbps = options.nicGbps() > 0 ? options.nicGbps() : nic.gbps();
            b.add(new Nic(nic.id(), nic.name(), nic.device(), gbps));
        }
        t.switches().forEach(sw -> b.addSwitch(sw.name(), sw.kind()));
        for (Link l : t.links()) {
            double gbps = l.gbps();
            Source source = l.source();
            if (l.kind() == LinkKind.NVLINK && options.nvlinkGbps() > 0) {
                gbps = l.count() * options.nvlinkGbps();
                source = Source.USER;
            } else if (l.kind() == LinkKind.NVLINK && model != null) {
                gbps = l.count() * LinkModel.nvlink(model.sm());
                source = Source.GPU_MODEL;
            }
            b.link(l.a(), l.b(), l.kind(), l.count(), gbps, source);
        }
        for (int i = 0; i < t.gpus().size() + t.nics().size(); i++) {
            for (int j = i + 1; j < t.gpus().size() + t.nics().size(); j++) {
                b.code(i, j, t.code(i, j));
            }
        }
        b.machinesOf(t);
        t.warnings().forEach(b::warn);
        warnings.forEach(b::warn);
        return b.build();
    }
}
