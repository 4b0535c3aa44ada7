package snippets;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Examples of the Javadoc. SnippetsTest runs them. */
final class Topologies {
    private Topologies() {}

    static Topology read(Path dump) throws IOException {
        // @start region="read"
        String text = Files.readString(dump); // of nvidia-smi topo -m, or NCCL's XML
        Topology topology = TopologyReader.topology(text, ReadOptions.DEFAULT);
        int gpus = topology.gpus().size();
        // @end
        if (gpus == 0) {
            throw new IllegalStateException("no GPU in " + dump);
        }
        return topology;
    }

    static Plan plan(Topology topology) {
        // @start region="plan"
        Plan plan = Planner.plan(topology, Operation.ALL_REDUCE, List.of(0, 1, 2, 3), 0);
        double busBandwidth = plan.bandwidthGBps(); // GB/s, as nccl-tests prints it
        double most = plan.boundGBps(); // what no algorithm can exceed on these links
        List<String> reasons = plan.why();
        // @end
        if (busBandwidth > most || reasons.isEmpty()) {
            throw new IllegalStateException(plan.toString());
        }
        return plan;
    }

    static String fastest(Topology topology, long bytes) {
        // @start region="cost"
        Prediction p =
                CostModel.nccl().choose(topology, List.of(0, 1, 2, 3), Operation.ALL_REDUCE, bytes);
        String choice = p.algorithm() + " " + p.protocol() + ": " + p.timeUs() + " us";
        // @end
        return choice;
    }
}
