package io.jccl.cli.perf;

import io.jccl.NcclSteering;
import io.jccl.bench.Collective;
import io.jccl.cli.topo.TopologyText;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.ThisMachine;
import io.jccl.topology.read.TopologyReader;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The prediction of a machine's plan for a benchmark, and the NCCL settings that it implies.
 *
 * @param plan for the first GPUs, as many as there are ranks
 * @param tuning predicts times
 * @param steering the settings passed to NCCL, or those that would be
 */
record Forecast(Plan plan, Tuning tuning, NcclSteering steering) implements AutoCloseable {
    /** The word for the machine that this runs on. */
    static final String AUTO = "auto";

    /**
     * Plans.
     *
     * @param source {@link #AUTO}, or a file that {@code jccl topo --file} reads
     * @param collective what is measured
     * @param ranks how many GPUs
     * @param mode whether the settings are passed to NCCL
     * @param largest size that the algorithm is chosen for
     * @throws IllegalArgumentException if there is none; the message has the reason
     */
    static Forecast of(
            String source, Collective collective, int ranks, NcclSteering.Mode mode, long largest) {
        Operation op;
        try {
            op = Operation.of(collective.command());
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(
                    "--plan: nothing is predicted for "
                            + collective.command()
                            + "; leave out --plan",
                    e);
        }
        Topology machine = machine(source);
        if (machine.gpus().size() < ranks || ranks < 2) {
            throw new IllegalArgumentException(
                    "--plan "
                            + source
                            + ": it has "
                            + machine.gpus().size()
                            + " GPUs, expected one for each of "
                            + ranks
                            + " ranks, of which a plan needs 2 or more");
        }
        List<Integer> gpus = IntStream.range(0, ranks).boxed().toList();
        Plan plan = Planner.plan(machine, op, gpus, 0);
        NcclSteering steering =
                NcclSteering.builder(plan)
                        .mode(mode)
                        .algorithm(op, largest)
                        .topologyFile()
                        .graphFile()
                        .build();
        return new Forecast(plan, CostModel.nccl().tune(machine, gpus, op), steering);
    }

    private static Topology machine(String source) {
        ReadOptions options = ReadOptions.DEFAULT.withName(source);
        if (source.equals(AUTO)) {
            return ThisMachine.read(options.withName("this machine"));
        }
        try {
            return TopologyReader.topology(TopologyText.read("--plan", Path.of(source)), options);
        } catch (IOException e) {
            throw new IllegalArgumentException(e.getMessage() + "; or give auto", e);
        }
    }

    /** The fastest algorithm and protocol for a size; null if there is nothing to send. */
    @Nullable Prediction at(long bytes) {
        return bytes < 1 ? null : tuning.choose(bytes);
    }

    @Override
    public void close() {
        steering.close();
    }
}
