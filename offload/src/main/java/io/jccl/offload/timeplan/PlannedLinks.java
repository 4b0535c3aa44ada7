package io.jccl.offload.timeplan;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Cluster;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Times from the topology's cost model; its plans are cached. */
final class PlannedLinks implements Links {
    private record Key(Operation op, List<Integer> gpus, int machines) {}

    private final Topology machine;
    private final Map<Key, Tuning> tunings = new ConcurrentHashMap<>();

    PlannedLinks(Topology machine) {
        this.machine = machine;
    }

    @Override
    public double seconds(Operation op, List<Integer> gpus, int machines, long bytes) {
        Key key = new Key(op, gpus, machines);
        Tuning tuning = tunings.get(key);
        if (tuning == null) {
            if (machines > 1 && machine.nics().isEmpty()) {
                throw new IllegalArgumentException(
                        machine.name()
                                + " has no NIC, and "
                                + machines
                                + " machines are asked for; give --nic-gbit, or one machine");
            }
            tuning =
                    machines == 1
                            ? CostModel.nccl().tune(machine, gpus, op)
                            : CostModel.nccl().tune(new Cluster(machine, machines), gpus, op);
            tunings.put(key, tuning);
        }
        return tuning.choose(Math.max(1, bytes)).timeUs() * 1e-6;
    }
}
