package io.jccl.cli.check;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.bench.Soak;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Subcommand;
import io.jccl.cli.shell.Verdict;
import io.jccl.cli.shell.Version;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.internal.Statistics;
import io.jccl.rendezvous.LaunchEnvironment;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Runs very many random operations and checks that no resource usage grows. */
@Command(
        footer = {
            "",
            "Exit status: 0 if every result was correct and nothing grew, 1 if not, 2 for a"
                    + " mistake on the command line.",
        })
public final class SoakCommand extends Subcommand {
    /** Readings in a run. */
    private static final int READINGS = 10;

    /** Progress updates between two readings. */
    private static final int PARTS = 20;

    /**
     * From this reading on nothing may grow: code is compiled, pools and rings have their final
     * size.
     */
    private static final int WARM = 4;

    /**
     * Memory may grow by this much after the middle of the run, and more if most steps between two
     * readings add little: a leak is in each step, the JVM, which compiles a hot method late, in a
     * few.
     */
    private static final long SLACK = 16L << 20;

    @Mixin private RankOptions ranks = new RankOptions();

    @Option(
            names = {"-n", "--operations"},
            paramLabel = "<count>",
            converter = Count.Positive.class,
            description = "How many (default: ${DEFAULT-VALUE}).")
    private int operations = 1_000_000;

    @Option(
            names = "--seed",
            paramLabel = "<number>",
            description = "Seed; repeats a run (default: a new one each time).")
    private long seed = System.nanoTime() & 0xFFFFFF;

    private final List<Soak.Reading> readings = new ArrayList<>();

    @Override
    public Integer call() throws Exception {
        Engine chosen = ranks.engine(System.getenv());
        CommunicatorOptions options = CommunicatorOptions.DEFAULT;
        boolean launched = LaunchEnvironment.of(System.getenv()).size() > 1;
        long began = System.nanoTime();
        String name;
        boolean prints = true;
        if (launched || chosen == Engine.MPI) {
            try (Communicator comm = chosen.join(System.getenv(), options)) {
                name = comm.size() + " ranks, " + comm.engine();
                prints = comm.rank() == 0;
                rank(comm, null, true);
            }
        } else {
            int size = ranks.here();
            boolean shared = chosen.sharesGpus(size);
            if (shared) {
                out().println("# ranks share a GPU: they do not split");
            }
            CyclicBarrier together = new CyclicBarrier(size);
            ConcurrentLinkedQueue<String> names = new ConcurrentLinkedQueue<>();
            Communicator.runLocal(
                    chosen.devices(size),
                    options,
                    comm -> {
                        names.add(comm.size() + " ranks, " + comm.engine());
                        rank(comm, together, !shared);
                    });
            name = String.valueOf(names.peek());
        }
        List<String> grown = grown(readings);
        if (prints || !grown.isEmpty()) {
            print(name, TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began), grown);
        }
        return grown.isEmpty() ? 0 : 1;
    }

    /**
     * Runs one rank.
     *
     * @param together barrier of this process's threads for a reading; null if there is a single
     *     thread
     * @param splits whether the communicator is split now and then
     */
    private void rank(Communicator comm, @Nullable CyclicBarrier together, boolean splits)
            throws Exception {
        long agreed;
        try (Buffer number = Device.host().allocate(DataType.INT64, 1);
                Buffer there = comm.device().allocate(DataType.INT64, 1)) {
            Stream stream = comm.device().defaultStream();
            number.setLong(0, seed);
            stream.copy(number, there);
            comm.broadcast(there, 0, stream);
            stream.copy(there, number);
            stream.synchronize();
            agreed = number.getLong(0);
        }
        try (Soak soak = new Soak(comm, agreed, splits)) {
            Progress progress = comm.rank() == 0 ? Progress.to(err()) : Progress.none();
            long done = 0;
            long from = 0;
            for (int k = 1; k <= READINGS; k++) {
                long to = (long) operations * k / READINGS;
                for (int part = 1; part <= PARTS; part++) {
                    long next = done + (to - done) * part / PARTS;
                    soak.run(from, next);
                    from = next;
                    progress.at("soak", next, operations, "operations");
                }
                done = to;
                // One thread of the process takes the reading while the others wait.
                if (together == null || together.await(10, TimeUnit.MINUTES) == 0) {
                    readings.add(Soak.Reading.take(done));
                }
                if (together != null) {
                    together.await(10, TimeUnit.MINUTES);
                }
            }
            progress.erase();
        }
    }

    /** Resources whose usage grew after warm-up. */
    static List<String> grown(List<Soak.Reading> readings) {
        Soak.Reading end = readings.getLast();
        long resident = 0;
        int threads = 0;
        int files = 0;
        for (Soak.Reading r : readings.subList(WARM - 1, READINGS / 2 + 1)) {
            resident = Math.max(resident, r.resident());
            threads = Math.max(threads, r.threads());
            files = Math.max(files, r.files());
        }
        double[] steps = new double[READINGS - WARM];
        for (int i = 0; i < steps.length; i++) {
            steps[i] = readings.get(WARM + i).resident() - readings.get(WARM + i - 1).resident();
        }
        List<String> grown = new ArrayList<>();
        if (end.resident() > resident + SLACK && Statistics.median(steps) * steps.length > SLACK) {
            grown.add("memory from " + resident + " to " + end.resident() + " bytes");
        }
        if (end.threads() > threads) {
            grown.add("threads from " + threads + " to " + end.threads());
        }
        if (end.files() > files) {
            grown.add("open files from " + files + " to " + end.files());
        }
        return grown;
    }

    private void print(String name, long seconds, List<String> grown) {
        PrintWriter out = out();
        out.println(
                "# jccl %s soak, %s mixed operations, --seed %s, %s; %s s"
                        .formatted(Version.TEXT, operations, seed, name, seconds));
        out.print(format("%12s %14s %8s %8s%n", "operations", "resident MiB", "threads", "files"));
        for (Soak.Reading r : readings) {
            out.print(
                    format(
                            "%12d %14.1f %8d %8d%n",
                            r.operations(),
                            r.resident() / (double) (1 << 20),
                            r.threads(),
                            r.files()));
        }
        out.println(
                grown.isEmpty()
                        ? "# " + Verdict.good("every result was correct, nothing grew")
                        : "# " + Verdict.bad("GREW") + ": " + String.join(", ", grown));
        out.flush();
    }
}
