package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.bench.Collective.Operands;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Sizes;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank of a benchmark: goes through types, reductions, roots and sizes in step with the others.
 * Whatever ranks must agree on is exchanged through the communicator itself.
 */
public final class PerfRun {
    /** Where a test may tamper with results before they are checked. */
    @FunctionalInterface
    public interface Seam {
        /** Tampers with nothing. */
        Seam NONE = (rank, sent, result) -> {};

        /**
         * Called after an operation that is about to be checked.
         *
         * @param rank whose result
         * @param sent what it sent; empty in place
         * @param result what it received
         */
        void received(int rank, Buffer sent, Buffer result);
    }

    private static final long TIMED_SEED = 99;

    /** Time for the JVM to compile an operation before the first line is measured. */
    private static final double COMPILE_NANOS = 250e6;

    /** Larger sizes run the same loops; this many bytes are enough to have them compiled. */
    private static final long COMPILE_BYTES = 1 << 20;

    private static final int INFO_BYTES = 512;

    private final PerfConfig config;
    private final Collective collective;
    private final Communicator comm;
    private final Stream stream;
    private final Patterns patterns;
    private final List<Report> reports;
    private final Progress progress;
    private final Seam seam;
    private final int rank;
    private final int ranks;

    /** What ranks tell each other: a sum, a flag, or one time per iteration. */
    private final Buffer numbers;

    private long failedChecks;
    private double busBwSum;
    private int measurements;

    public PerfRun(
            PerfConfig config,
            Communicator comm,
            Patterns patterns,
            List<Report> reports,
            Progress progress,
            Seam seam) {
        this.config = config;
        this.collective = config.collective();
        this.comm = comm;
        this.stream = comm.device().defaultStream();
        this.patterns = patterns;
        this.reports = reports;
        this.progress = progress;
        this.seam = seam;
        this.rank = comm.rank();
        this.ranks = comm.size();
        this.numbers = comm.device().allocate(DataType.FLOAT64, Math.max(2, config.iterations()));
    }

    /** The two buffers of a type, as large as the largest size needs. */
    private record Buffers(DataType type, Buffer send, Buffer recv) implements AutoCloseable {
        @Override
        public void close() {
            try (send;
                    recv) {
                // Both, even if one fails.
            }
        }
    }

    /** What one line of the table measures. */
    private record Case(
            DataType type, ReduceOp.@Nullable Kind kind, ReduceOp op, int root, Shape shape) {}

    public Report.Summary run() throws IOException {
        try (numbers) {
            return runAll();
        }
    }

    private Report.Summary runAll() throws IOException {
        List<Report.RankInfo> infos = gatherInfos();
        for (Report r : reports) {
            r.begin(config, comm.engine(), infos);
        }
        for (DataType type : config.types()) {
            try (Buffers buffers = allocate(type)) {
                if (collective.reduces()) {
                    for (ReduceOp.Kind kind : config.ops()) {
                        runRoots(buffers, kind, op(kind));
                    }
                } else {
                    runRoots(buffers, null, ReduceOp.SUM);
                }
            }
        }
        progress.erase();
        double busBw = measurements == 0 ? 0 : busBwSum / measurements;
        Report.Summary summary = new Report.Summary(failedChecks, busBw);
        for (Report r : reports) {
            r.end(summary);
        }
        return summary;
    }

    private ReduceOp op(ReduceOp.Kind kind) {
        return switch (kind) {
            case SUM -> ReduceOp.SUM;
            case PROD -> ReduceOp.PROD;
            case MIN -> ReduceOp.MIN;
            case MAX -> ReduceOp.MAX;
            case AVG -> ReduceOp.AVG;
            case PRE_MUL_SUM -> ReduceOp.preMulSum((long) Patterns.factor(rank));
        };
    }

    private Buffers allocate(DataType type) {
        long send = 0;
        long recv = 0;
        for (long size : config.sizes()) {
            Shape shape = collective.layout().shape(size, type.size(), ranks);
            send = Math.max(send, shape.send());
            recv = Math.max(recv, shape.larger());
        }
        Buffer first = comm.device().allocate(type, send);
        try {
            return new Buffers(type, first, comm.device().allocate(type, recv));
        } catch (RuntimeException e) {
            first.close();
            throw e;
        }
    }

    private void runRoots(Buffers buffers, ReduceOp.@Nullable Kind kind, ReduceOp op)
            throws IOException {
        patterns.retain(buffers.type, kind);
        int[] roots =
                !collective.rooted()
                        ? new int[] {-1}
                        : config.root() < 0
                                ? IntStream.range(0, ranks).toArray()
                                : new int[] {config.root()};
        for (int root : roots) {
            List<Case> cases =
                    config.sizes().stream()
                            .map(s -> collective.layout().shape(s, buffers.type.size(), ranks))
                            .map(shape -> new Case(buffers.type, kind, op, root, shape))
                            .toList();
            if (config.warmups() > 0) {
                compile(buffers, kind, op, root);
            }
            for (Case c : cases) {
                runCase(buffers, c);
            }
        }
    }

    /** Runs small sizes until the JVM has had time to compile what the first line will use. */
    private void compile(Buffers buffers, ReduceOp.@Nullable Kind kind, ReduceOp op, int root) {
        DataType type = buffers.type;
        List<Case> small =
                config.sizes().stream()
                        .map(size -> Math.min(size, COMPILE_BYTES))
                        .distinct()
                        .map(size -> collective.layout().shape(size, type.size(), ranks))
                        .map(shape -> new Case(type, kind, op, root, shape))
                        .toList();
        for (Case c : small) {
            for (boolean inPlace : new boolean[] {false, true}) {
                if (inPlace && !collective.worksInPlace()) {
                    continue;
                }
                prepare(buffers, c, TIMED_SEED, inPlace);
                Runnable iteration = iteration(buffers, c, inPlace);
                double budget = COMPILE_NANOS / small.size() / 2;
                long start = System.nanoTime();
                do {
                    for (int i = 0; i < 16; i++) {
                        iteration.run();
                    }
                    // All ranks stop at once: the slowest one's clock counts.
                } while (combine(ReduceOp.MAX, (double) (System.nanoTime() - start))[0] < budget);
            }
        }
    }

    private void runCase(Buffers buffers, Case c) throws IOException {
        long bytes = c.shape.larger() * c.type.size();
        progress.show(
                "running "
                        + collective.command()
                        + " "
                        + Sizes.format(bytes)
                        + " "
                        + c.type.label()
                        + (c.kind == null ? "" : " " + ReduceOp.label(c.kind)));
        Report.Measurement out = measure(buffers, c, bytes, false);
        Report.Measurement in = collective.worksInPlace() ? measure(buffers, c, bytes, true) : null;
        progress.erase();
        Report.Line line =
                new Report.Line(
                        bytes,
                        c.shape.count(),
                        c.type.label(),
                        c.kind == null ? "none" : ReduceOp.label(c.kind),
                        c.root,
                        comm.algorithmFor(collective.method(), c.shape.count() * c.type.size())
                                .name()
                                .toLowerCase(Locale.ROOT),
                        out,
                        in);
        for (Report r : reports) {
            r.line(line);
        }
    }

    private Report.Measurement measure(Buffers buffers, Case c, long bytes, boolean inPlace) {
        prepare(buffers, c, TIMED_SEED, inPlace);
        Runnable iteration = iteration(buffers, c, inPlace);
        for (int i = 0; i < config.warmups(); i++) {
            iteration.run();
        }
        comm.barrier(stream);
        stream.synchronize();

        int n = config.iterations();
        double[] single = new double[config.perIteration() ? n : 0];
        long start = System.nanoTime();
        if (config.perIteration()) {
            long before = start;
            for (int i = 0; i < n; i++) {
                iteration.run();
                stream.synchronize();
                long after = System.nanoTime();
                single[i] = (after - before) / 1e3 / config.aggregated();
                before = after;
            }
        } else {
            for (int i = 0; i < n; i++) {
                iteration.run();
            }
            stream.synchronize();
        }
        double mine = (System.nanoTime() - start) / 1e3 / n / config.aggregated();

        double micros = combine(ReduceOp.AVG, mine)[0];
        Report.Iterations iterations =
                config.perIteration() ? Report.Iterations.of(combine(ReduceOp.MAX, single)) : null;
        double algBw = micros == 0 ? 0 : bytes / micros / 1e3;
        double busBw = algBw * collective.busFactor(ranks);
        busBwSum += busBw;
        measurements++;
        return new Report.Measurement(micros, algBw, busBw, check(buffers, c, inPlace), iterations);
    }

    /** Wrong elements on all ranks, or -1 if nothing was checked. */
    private long check(Buffers buffers, Case c, boolean inPlace) {
        long wrong = config.checks() == 0 ? -1 : 0;
        for (int i = 1; i <= config.checks() && wrong == 0; i++) {
            prepare(buffers, c, i, inPlace);
            collective.bind(operands(buffers, c, inPlace), inPlace).run();
            stream.synchronize();
            long mine = verify(buffers, c, i, inPlace);
            double[] all = combine(ReduceOp.SUM, (double) mine, mine > 0 ? 1 : 0);
            wrong = (long) all[0];
            failedChecks += (long) all[1];
        }
        return wrong;
    }

    /** Fills what is sent and poisons what is received. */
    private void prepare(Buffers buffers, Case c, long seed, boolean inPlace) {
        Shape s = c.shape;
        Checker.poison(
                buffers.recv.slice(0, inPlace ? s.larger() : s.recv()), Patterns.poison(c.type));
        if (collective.sends(rank, c.root)) {
            Checker.fill(
                    inPlace ? buffers.recv : buffers.send,
                    inPlace ? rank * s.sendShift() : 0,
                    s.send(),
                    patterns.table(c.type, c.kind, seed, rank),
                    0);
        }
    }

    private long verify(Buffers buffers, Case c, long seed, boolean inPlace) {
        Shape s = c.shape;
        long at = inPlace ? rank * s.recvShift() : 0;
        seam.received(
                rank,
                buffers.send.slice(0, inPlace ? 0 : s.send()),
                buffers.recv.slice(at, s.recv()));
        long[] wrong = {0};
        collective.expected(
                rank,
                c.root,
                s,
                (start, count, source, from) ->
                        wrong[0] +=
                                Checker.wrong(
                                        buffers.recv,
                                        at + start,
                                        count,
                                        patterns.table(c.type, c.kind, seed, source),
                                        from));
        if (!inPlace && collective.sends(rank, c.root)) {
            // What is sent must be left as it was.
            wrong[0] +=
                    Checker.wrong(
                            buffers.send,
                            0,
                            s.send(),
                            patterns.table(c.type, c.kind, seed, rank),
                            0);
        }
        return wrong[0];
    }

    private Operands operands(Buffers buffers, Case c, boolean inPlace) {
        Shape s = c.shape;
        return new Operands(
                comm,
                stream,
                s,
                buffers.send.slice(0, inPlace ? 0 : s.send()),
                buffers.recv.slice(0, inPlace ? s.larger() : s.recv()),
                c.op,
                c.root);
    }

    /** What is timed: one operation, or a group of them, and the barrier if asked for. */
    private Runnable iteration(Buffers buffers, Case c, boolean inPlace) {
        Runnable one = collective.bind(operands(buffers, c, inPlace), inPlace);
        int m = config.aggregated();
        Runnable many =
                () -> {
                    for (int i = 0; i < m; i++) {
                        one.run();
                    }
                };
        Runnable group = m == 1 ? one : () -> Group.run(comm, many);
        return !config.blocking()
                ? group
                : () -> {
                    group.run();
                    comm.barrier(stream);
                };
    }

    /** Combines numbers over ranks. */
    private double[] combine(ReduceOp op, double... mine) {
        Buffer part = numbers.slice(0, mine.length);
        for (int i = 0; i < mine.length; i++) {
            part.set(i, mine[i]);
        }
        comm.allReduce(part, op, stream);
        stream.synchronize();
        double[] all = new double[mine.length];
        for (int i = 0; i < mine.length; i++) {
            all[i] = part.get(i);
        }
        return all;
    }

    /** Tells rank 0 where every rank runs. */
    private List<Report.RankInfo> gatherInfos() {
        byte[] mine =
                (ProcessHandle.current().pid()
                                + "\n"
                                + hostName()
                                + "\n"
                                + comm.device().index()
                                + "\n"
                                + processor())
                        .getBytes(StandardCharsets.UTF_8);
        int length = Math.min(mine.length, INFO_BYTES);
        try (Buffer all = comm.device().allocate(DataType.UINT8, (long) INFO_BYTES * ranks)) {
            for (int i = 0; i < length; i++) {
                all.setLong((long) rank * INFO_BYTES + i, mine[i]);
            }
            comm.allGather(all, stream);
            stream.synchronize();
            List<Report.RankInfo> infos = new ArrayList<>();
            for (int r = 0; r < ranks && rank == 0; r++) {
                byte[] text = new byte[INFO_BYTES];
                for (int i = 0; i < INFO_BYTES; i++) {
                    text[i] = (byte) all.getLong((long) r * INFO_BYTES + i);
                }
                String[] parts =
                        new String(text, StandardCharsets.UTF_8).replace("\0", "").split("\n", 4);
                infos.add(
                        new Report.RankInfo(
                                r,
                                Long.parseLong(parts[0]),
                                parts[1],
                                comm.engine(),
                                Integer.parseInt(parts[2]),
                                parts[3]));
            }
            return infos;
        }
    }

    /** Not through InetAddress, which may wait for a name server. */
    private static String hostName() {
        String name = firstLine(Path.of("/proc/sys/kernel/hostname"), "");
        return name.isBlank() ? System.getenv().getOrDefault("HOSTNAME", "localhost") : name;
    }

    private String processor() {
        Device device = comm.device();
        if (device.kind() == Device.Kind.CUDA) {
            Cuda.DeviceInfo info = Cuda.info(device);
            return info.pciBusId() + " " + info.model();
        }
        String line = firstLine(Path.of("/proc/cpuinfo"), "model name");
        int colon = line.indexOf(':');
        return colon < 0 ? System.getProperty("os.arch", "CPU") : line.substring(colon + 1).trim();
    }

    private static String firstLine(Path file, String prefix) {
        try (var lines = Files.lines(file)) {
            return lines.filter(l -> l.startsWith(prefix)).findFirst().orElse("").trim();
        } catch (IOException | RuntimeException e) {
            return "";
        }
    }
}
