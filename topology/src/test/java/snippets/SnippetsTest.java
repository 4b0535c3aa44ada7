package snippets;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Topology;
import io.jccl.topology.plan.Plan;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Examples of the Javadoc do what their comments say. */
class SnippetsTest {
    @Test
    void readAndPlan(@TempDir Path folder) throws IOException {
        Topology topology = Topologies.read(Path.of("../docs/examples/dgx-1.txt"));
        assertEquals(8, topology.gpus().size());
        Plan plan = Topologies.plan(topology);
        // Small messages are a matter of latency, large ones of bandwidth.
        assertNotEquals(
                Topologies.fastest(plan.topology(), 8).replaceFirst(":.*", ""),
                Topologies.fastest(plan.topology(), 1 << 30).replaceFirst(":.*", ""));
        double simulated = Topologies.simulate(plan);
        assertTrue(simulated > 0 && simulated <= plan.bandwidthGBps(), () -> "at " + simulated);
        Topology again = Topologies.ncclXml(topology, folder.resolve("dgx-1.xml"));
        assertEquals(8, again.gpus().size());
        assertEquals(90, plan.bandwidthGBps(), 1e-9); // as docs/tutorials/topology.md has it
    }
}
