package snippets;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.nccl.TopologyXml;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import io.jccl.topology.simulate.Simulation;
import io.jccl.topology.simulate.Simulator;
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

    static double simulate(Plan plan) {
        // @start region="simulate"
        Simulation simulation = Simulator.run(plan, 64 << 20, 1 << 18); // bytes, in all and a chunk
        boolean right = simulation.correct(); // each rank ends with the data that it should have
        double busBandwidth = simulation.busbwGBps(); // below the plan's, by the start and the end
        // @end
        return right ? busBandwidth : Double.NaN;
    }

    static Topology ncclXml(Topology topology, Path file) throws IOException {
        // @start region="xml"
        Files.writeString(file, TopologyXml.write(topology)); // for NCCL_TOPO_FILE
        Topology again = TopologyXml.read(Files.readString(file), false, ""); // no damage allowed
        // @end
        return again;
    }

    static String fastest(Topology topology, long bytes) {
        // @start region="cost"
        Tuning tuning = CostModel.nccl().tune(topology, List.of(0, 1, 2, 3), Operation.ALL_REDUCE);
        Prediction p = tuning.choose(bytes); // and of any other size
        String choice = p.algorithm() + " " + p.protocol() + ": " + p.timeUs() + " us";
        // @end
        return choice;
    }
}
