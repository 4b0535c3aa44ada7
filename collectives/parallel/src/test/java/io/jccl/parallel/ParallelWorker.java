package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** A rank as a process of its own; prints what becomes of it. */
final class ParallelWorker {
    private ParallelWorker() {}

    /**
     * Runs one rank.
     *
     * @param args what to run, the seed, the timeout in seconds, with a plus sign if it begins when
     *     all ranks run, {@code host} or {@code mpi}, and where to print, if not to the standard
     *     output: a file for each rank
     * @throws IOException if that file is not to be had
     */
    public static void main(String[] args) throws IOException {
        if (args.length > 4) {
            int rank = Workers.rank(System.getenv());
            System.setOut(new PrintStream(args[4] + "." + rank, StandardCharsets.UTF_8));
        }
        if (args[2].startsWith("+")) {
            Workers.meet(Device.host());
        }
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(
                        Duration.ofSeconds(Long.parseLong(args[2])));
        long seed = Long.parseLong(args[1]);
        long start = System.nanoTime();
        try (Communicator c =
                args[3].equals("mpi")
                        ? Communicator.mpi(options)
                        : Communicator.fromEnvironment(options)) {
            start = System.nanoTime();
            switch (args[0]) {
                case "all" -> all(c, seed);
                case "unused" -> unused(c);
                case "experts" -> ExpertBodies.layers(c, seed, 1);
                case "experts-forever" -> ExpertBodies.forever(c);
                case "power-sgd" -> powerSgd(c);
                case "train" -> train(c);
                case "serve" -> serve(c);
                default -> throw new IllegalArgumentException(args[0]);
            }
            System.out.println("OK");
        } catch (RuntimeException | Error e) {
            System.out.println(
                    String.format(
                            Locale.ROOT,
                            "ERROR %s %d %s",
                            e.getClass().getSimpleName(),
                            (System.nanoTime() - start) / 1_000_000,
                            String.valueOf(e.getMessage()).replace('\n', ' ')));
            e.printStackTrace(System.out);
        }
        System.out.println("CLOSED");
    }

    /** The others need not be ready: a rank that leaves early takes them with it. */
    private static void unused(Communicator c) {
        ParallelBodies.unused(c);
        ConsistencyCheck.gather(c, 1);
        System.out.println("SAME STORY");
        ConsistencyCheck.gather(c, 1);
    }

    /** In one job, for starting the JVMs of a job takes longer than a part of this. */
    private static void all(Communicator c, long seed) {
        ParallelBodies.mesh(c, seed);
        ParallelBodies.reducer(c, seed);
        ParallelBodies.compressed(c, seed);
        ParallelBodies.sync(c, seed);
        if (c.size() > 1) {
            if (!c.engine().equals("mpi")) {
                // MPI ends the job after an error, at once or when a rank leaves: see "unused".
                ParallelBodies.unused(c);
            }
            ParallelBodies.serverInStep(c, seed);
            ParallelBodies.serverBounded(c, seed);
        }
        LinearRanks.check(c, seed, 3);
        for (PipelineSchedule schedule : PipelineSchedule.values()) {
            PipelineReport report = PipelineRanks.check(c, schedule, 5, seed);
            if (report.stages().size() != c.size()) {
                throw new AssertionError(report);
            }
        }
        ExpertBodies.layers(c, seed, 1, 5);
    }

    private static void powerSgd(Communicator c) {
        List<Parameter> parameters = List.of(new Parameter("w", 8, 8, DataType.FLOAT32));
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.PowerSgd(1));
        GradientReducer.create(c, parameters, options).close();
    }

    /** Trains until something happens; whatever it is, closing has to work. */
    private static void train(Communicator c) {
        List<Parameter> parameters = new ArrayList<>();
        for (int p = 0; p < 8; p++) {
            parameters.add(new Parameter("layer" + p, 200, 200, DataType.FLOAT32));
        }
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(1 << 17, 1 << 18);
        try (GradientReducer reducer = GradientReducer.create(c, parameters, options)) {
            for (int step = 0; ; step++) {
                reducer.begin(true);
                for (int p = 7; p >= 0; p--) {
                    Buffer g = reducer.gradient(p);
                    for (int i = 0; i < g.count(); i += 10) {
                        g.set(i, step + i);
                    }
                    reducer.ready(p);
                }
                reducer.finish();
                if (step == 20) {
                    System.out.println("RUNNING");
                }
            }
        }
    }

    private static void serve(Communicator c) {
        ServerOptions options =
                ServerOptions.synchronous(0.1f)
                        .withConsistency(new ServerOptions.Consistency.BoundedStaleness(2));
        try (Buffer parameters = c.device().allocate(DataType.FLOAT32, 50_000);
                Buffer gradients = c.device().allocate(DataType.FLOAT32, 50_000);
                ParameterServer server =
                        ParameterServer.create(c, parameters, gradients, options)) {
            if (server.isServer()) {
                System.out.println("RUNNING");
                server.serve();
                return;
            }
            for (int step = 0; ; step++) {
                server.pull();
                server.push();
                if (step == 20) {
                    System.out.println("RUNNING");
                }
            }
        }
    }
}
