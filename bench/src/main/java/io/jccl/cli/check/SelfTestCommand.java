package io.jccl.cli.check;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Subcommand;
import io.jccl.cli.shell.Verdict;
import io.jccl.cli.shell.Version;
import io.jccl.contract.Case;
import io.jccl.contract.Cases;
import io.jccl.contract.Collective;
import io.jccl.contract.RankLoop;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Runs the engine contract on the available devices and prints a table. */
@Command(
        footer = {
            "",
            "Exit status: 0 if every case passed, 1 if one failed, 2 for a mistake on the command"
                    + " line.",
        })
public final class SelfTestCommand extends Subcommand {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    private static final int MOST_SHOWN = 5;

    @Option(
            names = {"-g", "--ranks"},
            paramLabel = "<count>",
            converter = Count.Positive.class,
            description = "Ranks (default: all GPUs, or 4 on the host).")
    private int ranks;

    @Option(
            names = "--engine",
            paramLabel = "<host|nccl|mpi>",
            description = "What to test; mpi under mpirun (default: host, or JCCL_ENGINE).")
    private @Nullable Engine engine;

    @Option(
            names = "--thin",
            paramLabel = "<k>",
            converter = Count.Positive.class,
            description = "Runs about one of k pairs of settings; 1 is all of them (default: 4).")
    private int thin = 4;

    @Option(
            names = "--seed",
            paramLabel = "<number>",
            description = "Seed; repeats a run (default: a new one each time).")
    private long seed = System.nanoTime() & 0xFFFFFF;

    @Option(
            names = "--minutes",
            paramLabel = "<count>",
            converter = Count.Positive.class,
            description = "Time limit of the whole test (default: 10).")
    private int minutes = 10;

    @Override
    public Integer call() throws InterruptedException {
        require(
                ranks <= RankOptions.MOST_RANKS,
                "-g/--ranks is " + ranks + ", expected 1 to " + RankOptions.MOST_RANKS);
        Engine chosen = Engine.of(engine, System.getenv());
        CommunicatorOptions options = CommunicatorOptions.DEFAULT.withTimeout(TIMEOUT);
        if (chosen == Engine.MPI) {
            return oneRank(options);
        }
        int size = ranks > 0 ? ranks : chosen == Engine.HOST ? 4 : Math.max(1, Cuda.deviceCount());
        List<? extends Device> devices = chosen.devices(size);
        List<Case> cases = Cases.all(size, seed, thin);
        boolean shared = chosen.sharesGpus(size);
        if (chosen == Engine.NCCL) {
            cases = Case.onNccl(cases);
        }
        if (shared) {
            cases = cases.stream().filter(c -> c.collective() != Collective.SPLIT).toList();
        }
        PrintWriter out = out();
        out.println("# jccl " + Version.TEXT + " selftest, --seed " + seed + " --thin " + thin);
        for (int r = 0; r < size; r++) {
            out.println("# rank " + r + " on " + describe(devices.get(r)));
        }
        if (shared) {
            out.println("# ranks share a GPU: they meet before they free memory, and do not split");
        }
        out.flush();
        Progress progress = Progress.to(err());
        int all = cases.size();
        List<RankLoop.Failure> failures =
                RankLoop.onThreads(
                        size,
                        shared,
                        cases,
                        algorithm -> Communicator.local(devices, options.withAlgorithm(algorithm)),
                        index -> progress.at("selftest", index, all, "cases"),
                        Duration.ofMinutes(minutes));
        progress.erase();
        return print(out, cases, failures);
    }

    /** Runs as one rank of several; rank 0 prints the table of its own results. */
    private int oneRank(CommunicatorOptions options) {
        try (Communicator comm = Communicator.mpi(options);
                Buffer number = comm.device().allocate(DataType.INT64, 1)) {
            Stream stream = comm.device().defaultStream();
            number.setLong(0, seed);
            comm.broadcast(number, 0, stream);
            List<Case> cases =
                    Cases.all(comm.size(), number.getLong(0), thin).stream()
                            .map(Case::withOwnAlgorithm)
                            .distinct()
                            .toList();
            PrintWriter out = out();
            if (comm.rank() == 0) {
                out.println(
                        "# jccl %s selftest, --seed %s --thin %s, %s ranks on %s"
                                .formatted(
                                        Version.TEXT,
                                        number.getLong(0),
                                        thin,
                                        comm.size(),
                                        comm.engine()));
            }
            List<RankLoop.Failure> failures = new ArrayList<>();
            Progress progress = comm.rank() == 0 ? Progress.to(err()) : Progress.none();
            RankLoop.run(
                    comm.rank(),
                    cases,
                    (algorithm, opened) -> Communicator.mpi(options),
                    at -> progress.at("selftest", at, cases.size(), "cases"),
                    failures::add);
            progress.erase();
            if (comm.rank() == 0 || !failures.isEmpty()) {
                print(out, cases, failures);
            }
            number.setLong(0, failures.size());
            comm.allReduce(number, ReduceOp.SUM, stream);
            return number.getLong(0) == 0 ? 0 : 1;
        }
    }

    private static String describe(Device device) {
        if (device.kind() == Device.Kind.HOST) {
            return device.toString();
        }
        Cuda.DeviceInfo info = Cuda.info(device);
        return device + " " + info.model() + " " + info.pciBusId();
    }

    /** One line per operation: cases, passed, failed, not run. */
    private static int print(PrintWriter out, List<Case> cases, List<RankLoop.Failure> failures) {
        Map<Integer, RankLoop.Failure> first = new TreeMap<>();
        int end = cases.size();
        for (RankLoop.Failure f : failures) {
            first.merge(f.index(), f, (a, b) -> a.rank() <= b.rank() ? a : b);
            if (f.ends()) {
                end = Math.min(end, f.index() + 1);
            }
        }
        out.println(line("operation", "cases", "passed", "failed", "not run"));
        int failed = 0;
        int missed = 0;
        for (Collective collective : Collective.values()) {
            int[] count = new int[4];
            for (int i = 0; i < cases.size(); i++) {
                if (cases.get(i).collective() == collective) {
                    count[0]++;
                    count[first.containsKey(i) ? 2 : i < end ? 1 : 3]++;
                }
            }
            failed += count[2];
            missed += count[3];
            out.println(line(collective.label(), count[0], count[1], count[2], count[3]));
        }
        // First of all what kept others from running.
        first.values().stream()
                .sorted(Comparator.comparing(f -> !f.ends()))
                .limit(MOST_SHOWN)
                .forEach(f ->
                        out.println(
                                format(
                                        "# %s%s on rank %s: %s",
                                        Verdict.bad("FAILED "),
                                        cases.get(f.index()),
                                        f.rank(),
                                        f.message())));
        out.println(
                format(
                        "# %s cases, %s failed, %s not run: %s",
                        cases.size(),
                        failed,
                        missed,
                        Verdict.of(failed + missed == 0, "OK", "FAILED")));
        out.flush();
        return failed + missed == 0 ? 0 : 1;
    }

    private static String line(Object... columns) {
        return format("%-16s %8s %8s %8s %8s", columns);
    }
}
