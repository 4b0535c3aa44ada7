package io.jccl.bench.jmh;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import io.jccl.topology.simulate.Simulation;
import io.jccl.topology.simulate.Simulator;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.function.IntBinaryOperator;
import java.util.stream.IntStream;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** Time to parse a dump, to plan for it, and to simulate a plan for 100,000 ranks. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(1)
public class TopologyBench {
    /** Pairs of the hybrid cube mesh and how many NVLinks join them. */
    private static final int[][] MESH = {
        {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
        {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}
    };

    /** One machine, or many. */
    public enum Machine {
        /** 8 GPUs, hybrid cube mesh, 4 NICs. */
        MESH_8,
        /** 72 GPUs on NVSwitches, 18 NICs. */
        NVL72,
        /** 1,024 machines of 8 GPUs on NVSwitches and 8 NICs. */
        CLUSTER_1024
    }

    /** The machine that is parsed and planned for. */
    @Param({"MESH_8", "NVL72", "CLUSTER_1024"})
    public Machine machine = Machine.MESH_8;

    @SuppressWarnings("NullAway.Init") // set by start()
    private String dump;

    @SuppressWarnings("NullAway.Init") // set by start()
    private Topology topology;

    @SuppressWarnings("NullAway.Init") // set by start()
    private ReadOptions options;

    /** Creates the dump. */
    @Setup
    public void start() {
        options = ReadOptions.DEFAULT.withGpuModel(machine == Machine.MESH_8 ? "V100" : "B200");
        dump =
                switch (machine) {
                    case MESH_8 -> print(8, 4, TopologyBench::mesh);
                    case NVL72 -> print(72, 18, (a, b) -> 18);
                    case CLUSTER_1024 -> print(8, 8, (a, b) -> 18);
                };
        topology = TopologyReader.topology(dump, options);
    }

    /**
     * Parses the dump.
     *
     * @return the graph
     */
    @Benchmark
    public Topology parse() {
        return TopologyReader.topology(dump, options);
    }

    /**
     * Plans on a graph that is already parsed.
     *
     * @return the plan
     */
    @Benchmark
    public Object plan() {
        return plan(topology);
    }

    /**
     * Parses and plans: nothing is kept from the previous iteration.
     *
     * @return the plan
     */
    @Benchmark
    public Object parseAndPlan() {
        return plan(TopologyReader.topology(dump, options));
    }

    /** A plan for 100,000 ranks, created once. */
    @State(Scope.Benchmark)
    public static class Large {
        @SuppressWarnings("NullAway.Init") // set by start()
        private ClusterPlan plan;

        /** Creates the plan. */
        @Setup
        public void start() {
            Topology t =
                    TopologyReader.topology(
                            print(8, 8, (a, b) -> 18), ReadOptions.DEFAULT.withGpuModel("H100"));
            plan =
                    Planner.plan(
                            new Cluster(t, 12_500),
                            Operation.ALL_REDUCE,
                            IntStream.range(0, 8).boxed().toList());
        }
    }

    /**
     * Simulates the plan; does not depend on {@code machine}.
     *
     * @param large the plan to simulate
     * @return the result
     */
    @Benchmark
    public Simulation simulate100k(Large large) {
        return Simulator.run(large.plan, 1L << 30, 1 << 20);
    }

    private Object plan(Topology t) {
        var gpus = IntStream.range(0, t.gpus().size()).boxed().toList();
        if (machine == Machine.CLUSTER_1024) {
            return Planner.plan(new Cluster(t, 1024), Operation.ALL_REDUCE, gpus);
        }
        Plan plan = Planner.plan(t, Operation.ALL_REDUCE, gpus, 0);
        return plan;
    }

    private static int mesh(int a, int b) {
        for (int[] pair : MESH) {
            if (pair[0] == Math.min(a, b) && pair[1] == Math.max(a, b)) {
                return pair[2];
            }
        }
        return 0;
    }

    /** As nvidia-smi would print it: as many GPUs as NICs near each other, two sockets. */
    private static String print(int gpus, int nics, IntBinaryOperator nvlinks) {
        StringBuilder b = new StringBuilder();
        int all = gpus + nics;
        for (int i = 0; i < all; i++) {
            b.append('\t').append(name(gpus, i));
        }
        b.append("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
        for (int i = 0; i < all; i++) {
            b.append(name(gpus, i));
            for (int j = 0; j < all; j++) {
                b.append('\t').append(code(gpus, nics, i, j, nvlinks));
            }
            if (i < gpus) {
                int socket = 2 * i / gpus;
                b.append(String.format(Locale.ROOT, "\t%d-%d", 40 * socket, 40 * socket + 39));
                b.append('\t').append(socket).append("\tN/A");
            }
            b.append('\n');
        }
        return b.toString();
    }

    private static String name(int gpus, int device) {
        return device < gpus ? "GPU" + device : "NIC" + (device - gpus);
    }

    private static String code(int gpus, int nics, int i, int j, IntBinaryOperator nvlinks) {
        if (i == j) {
            return " X ";
        }
        int links = i < gpus && j < gpus ? nvlinks.applyAsInt(i, j) : 0;
        if (links > 0) {
            return "NV" + links;
        }
        int a = i < gpus ? i * nics / gpus : i - gpus;
        int b = j < gpus ? j * nics / gpus : j - gpus;
        if (a == b) {
            return "PIX";
        }
        return 2 * a / nics == 2 * b / nics ? "NODE" : "SYS";
    }
}
