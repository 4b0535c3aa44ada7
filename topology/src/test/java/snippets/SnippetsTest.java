package snippets;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.topology.Topology;
import io.jccl.topology.plan.Plan;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** Examples of the Javadoc do what their comments say. */
class SnippetsTest {
    @Test
    void readAndPlan() throws IOException {
        Topology topology = Topologies.read(Path.of("../docs/examples/dgx-1.txt"));
        assertEquals(8, topology.gpus().size());
        Plan plan = Topologies.plan(topology);
        assertEquals(90, plan.bandwidthGBps(), 1e-9); // as docs/tutorials/topology.md has it
    }
}
