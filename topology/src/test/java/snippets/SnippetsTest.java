package snippets;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

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
        // Small messages are a matter of latency, large ones of bandwidth.
        assertNotEquals(
                Topologies.fastest(plan.topology(), 8).replaceFirst(":.*", ""),
                Topologies.fastest(plan.topology(), 1 << 30).replaceFirst(":.*", ""));
        assertEquals(90, plan.bandwidthGBps(), 1e-9); // as docs/tutorials/topology.md has it
    }
}
