package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.bench.BusyWork;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.internal.Statistics;
import io.jccl.parallel.Compression;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.parallel.ParameterServer;
import io.jccl.parallel.ReducerOptions;
import io.jccl.parallel.ServerOptions;
import io.jccl.parallel.ServerOptions.Consistency;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/**
 * {@code jccl ddp-loop}: the time of a training step with gradients averaged in several ways, side
 * by side in one run. One rank in addition to the workers is the parameter server. Under {@code
 * jccl run} ranks are its processes, otherwise threads.
 */
@Command(
        name = "ddp-loop",
        mixinStandardHelpOptions = true,
        description = "Times steps of data-parallel training with a simulated backward.")
final class DdpLoop implements Callable<Integer> {
    /** Where the backward pass runs. */
    enum Compute {
        /** On the rank's core, as arithmetic that keeps it busy. */
        CORE,
        /** Elsewhere, such as on a GPU: the core is idle for that time. */
        AWAY
    }

    /** One form of a training step. */
    private record Way(
            String name, Runnable step, long bytes, double[] millis, double[] cpuMillis) {}

    @Option(names = "--workers", defaultValue = "2", description = "(default: ${DEFAULT-VALUE})")
    private int workers;

    @Option(names = "--layers", defaultValue = "16", description = "(default: ${DEFAULT-VALUE})")
    private int layers;

    @Option(
            names = "--width",
            defaultValue = "1024",
            description = "of each layer's square matrix of float32 (default: ${DEFAULT-VALUE})")
    private int width;

    @Option(
            names = "--micros",
            defaultValue = "2000",
            description = "backward of a layer (default: ${DEFAULT-VALUE})")
    private double micros;

    @Option(
            names = "--compute",
            defaultValue = "CORE",
            description = "where backward runs: ${COMPLETION-CANDIDATES} (default CORE)")
    private Compute compute = Compute.CORE;

    @Option(
            names = "--bucket",
            defaultValue = "26214400",
            description = "bytes of a bucket (default: ${DEFAULT-VALUE})")
    private long bucket;

    @Option(names = "--steps", defaultValue = "30", description = "(default: ${DEFAULT-VALUE})")
    private int steps;

    @Option(
            names = "--warm-up",
            defaultValue = "20",
            description = "steps (default: ${DEFAULT-VALUE})")
    private int warmUp;

    @Spec private CommandSpec spec = CommandSpec.create();

    @Override
    public Integer call() {
        if (System.getenv("RANK") != null) {
            try (Communicator world = Communicator.fromEnvironment()) {
                run(world);
            }
        } else {
            Communicator.runLocal(workers + 1, this::run);
        }
        return 0;
    }

    private void run(Communicator world) {
        int count = layers * width * width;
        ServerOptions inStep = ServerOptions.synchronous(0.1f);
        ServerOptions bounded = inStep.withConsistency(new Consistency.BoundedStaleness(1));
        boolean worker = world.rank() < world.size() - 1;
        try (Communicator group = world.split(worker ? 0 : 1, 0);
                Buffer parameters = world.device().allocate(DataType.FLOAT32, worker ? count : 0);
                Buffer gradients = world.device().allocate(DataType.FLOAT32, worker ? count : 0);
                ParameterServer one = ParameterServer.create(world, parameters, gradients, inStep);
                ParameterServer two =
                        ParameterServer.create(world, parameters, gradients, bounded)) {
            if (!worker || group == null) {
                serve(one, two);
                return;
            }
            List<Way> ways = new ArrayList<>();
            List<GradientReducer> reducers = new ArrayList<>();
            BusyWork work = new BusyWork();
            long spins = spins(group);
            Runnable layer = () -> backward(work, spins);
            try {
                add(ways, "compute only", 0, () -> repeat(layer));
                GradientReducer plain = reducer(group, reducers, Compression.NONE);
                add(
                        ways,
                        "averaged after backward",
                        plain.wireBytes(),
                        () -> step(plain, layer, false));
                add(ways, "averaged meanwhile", plain.wireBytes(), () -> step(plain, layer, true));
                for (Compression form :
                        List.of(
                                new Compression.Cast(DataType.BFLOAT16),
                                new Compression.TopK(0.01),
                                new Compression.PowerSgd(4))) {
                    GradientReducer r = reducer(group, reducers, form);
                    add(ways, "meanwhile, " + form, r.wireBytes(), () -> step(r, layer, true));
                }
                long bytes = gradients.byteSize();
                add(ways, "parameter server, in step", bytes, () -> step(one, layer));
                add(ways, "parameter server, bound 1", bytes, () -> step(two, layer));
                measure(group, ways);
            } finally {
                reducers.forEach(GradientReducer::close);
            }
        }
    }

    /** Equally many on all workers, so that none waits for a slower one. */
    private long spins(Communicator group) {
        Stream stream = group.device().defaultStream();
        try (Buffer spins = group.device().allocate(DataType.INT64, 1)) {
            group.barrier(stream);
            if (group.rank() == 0) {
                spins.setLong(0, new BusyWork().steps(micros));
            }
            group.broadcast(spins, 0, stream);
            return spins.getLong(0);
        }
    }

    private void add(List<Way> ways, String name, long bytes, Runnable step) {
        ways.add(new Way(name, step, bytes, new double[steps], new double[steps]));
    }

    private static void serve(ParameterServer one, ParameterServer two) {
        Thread other = Thread.ofPlatform().daemon().start(two::serve);
        one.serve();
        try {
            other.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private GradientReducer reducer(
            Communicator group, List<GradientReducer> all, Compression form) {
        List<Parameter> parameters = new ArrayList<>();
        for (int l = 0; l < layers; l++) {
            parameters.add(new Parameter("layer" + l, width, width, DataType.FLOAT32));
        }
        ReducerOptions options =
                ReducerOptions.DEFAULT
                        .withBuckets(Math.min(1 << 20, bucket), bucket)
                        .withCompression(form);
        GradientReducer made = GradientReducer.create(group, parameters, options);
        all.add(made);
        for (int l = 0; l < layers; l++) {
            Buffer g = made.gradient(l);
            for (long i = 0; i < g.count(); i++) {
                // Of full rank and different every time, so that no form is favoured.
                g.set(i, ((i * 2654435761L + l * 40503L) % 2001 - 1000) * 1e-6);
            }
        }
        return made;
    }

    private void backward(BusyWork work, long spins) {
        if (compute == Compute.CORE) {
            work.spin(spins);
            return;
        }
        long end = System.nanoTime() + (long) (micros * 1e3);
        for (long left = end - System.nanoTime(); left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private void repeat(Runnable layer) {
        for (int l = 0; l < layers; l++) {
            layer.run();
        }
    }

    private void step(GradientReducer r, Runnable layer, boolean meanwhile) {
        r.begin(true);
        for (int l = layers - 1; l >= 0; l--) {
            layer.run();
            if (meanwhile) {
                r.ready(l);
            }
        }
        for (int l = layers - 1; l >= 0 && !meanwhile; l--) {
            r.ready(l);
        }
        r.finish();
    }

    private void step(ParameterServer server, Runnable layer) {
        server.pull();
        repeat(layer);
        server.push();
    }

    /** The forms take turns, so that other load on the machine affects all of them equally. */
    private void measure(Communicator group, List<Way> ways) {
        Stream stream = group.device().defaultStream();
        for (int i = -warmUp; i < steps; i++) {
            for (Way way : ways) {
                group.barrier(stream);
                double cpu = cpuMillis();
                long start = System.nanoTime();
                way.step.run();
                group.barrier(stream);
                if (i >= 0) {
                    way.millis[i] = (System.nanoTime() - start) * 1e-6;
                    way.cpuMillis[i] = cpuMillis() - cpu;
                }
            }
        }
        if (group.rank() == 0) {
            report(group, ways);
        }
    }

    /**
     * Processor time of all threads of this process, in units of 10 ms: only many steps give a
     * usable figure.
     */
    private static double cpuMillis() {
        return ProcessHandle.current()
                .info()
                .totalCpuDuration()
                .map(d -> d.toNanos() * 1e-6)
                .orElse(Double.NaN);
    }

    private void report(Communicator group, List<Way> ways) {
        PrintWriter out = spec.commandLine().getOut();
        out.printf(
                Locale.ROOT,
                "# %d workers (%s), %d layers of %d x %d float32, backward %.0f us a layer (%s), %d"
                        + " steps%n",
                group.size(),
                group.engine(),
                layers,
                width,
                width,
                micros,
                compute,
                steps);
        out.printf(
                Locale.ROOT,
                "%-60s %10s %10s %10s %10s %9s%n",
                "step",
                "median ms",
                "least ms",
                "CPU ms",
                "MB sent",
                "hidden");
        double alone = Statistics.median(ways.get(0).millis);
        double after = Statistics.median(ways.get(1).millis);
        for (int i = 0; i < ways.size(); i++) {
            Way way = ways.get(i);
            double ms = Statistics.median(way.millis);
            @Nullable Double hidden = i == 2 ? 100 * (after - ms) / (after - alone) : null;
            out.printf(
                    Locale.ROOT,
                    "%-60s %10.2f %10.2f %10.1f %10.2f %9s%n",
                    way.name,
                    ms,
                    Arrays.stream(way.millis).min().orElse(0),
                    Arrays.stream(way.cpuMillis).average().orElse(0),
                    way.bytes * 1e-6,
                    hidden == null ? "" : String.format(Locale.ROOT, "%.0f %%", hidden));
        }
        out.flush();
    }
}
