package io.jccl.topology.read;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Nic;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.Warning;
import java.util.List;

/** Puts what the caller knows into a graph that was not made from a matrix. */
final class TopologyOverrides {
    private TopologyOverrides() {}

    /**
     * The same graph with the options' name and bandwidths.
     *
     * @param t the graph
     * @param options a name, and bandwidths where they are set
     * @param warnings additional warnings
     */
    static Topology of(Topology t, ReadOptions options, List<Warning> warnings) {
        Topology.Builder b = new Topology.Builder(options.name());
        t.gpus().forEach(b::add);
        for (Nic nic : t.nics()) {
            double gbps = options.nicGbps() > 0 ? options.nicGbps() : nic.gbps();
            b.add(new Nic(nic.id(), nic.name(), nic.device(), gbps));
        }
        t.switches().forEach(sw -> b.addSwitch(sw.name(), sw.kind()));
        for (Link l : t.links()) {
            boolean told = l.kind() == LinkKind.NVLINK && options.nvlinkGbps() > 0;
            b.link(
                    l.a(),
                    l.b(),
                    l.kind(),
                    l.count(),
                    told ? l.count() * options.nvlinkGbps() : l.gbps(),
                    told ? Source.USER : l.source());
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
