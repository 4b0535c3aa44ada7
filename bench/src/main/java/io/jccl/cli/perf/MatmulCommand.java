package io.jccl.cli.perf;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.bench.MatmulInputs;
import io.jccl.bench.MatmulPlan;
import io.jccl.bench.MatmulRun;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.BindOption;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Drives;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Subcommand;
import io.jccl.cli.shell.Version;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.internal.Cpus;
import io.jccl.offload.TierStore;
import io.jccl.rendezvous.LaunchEnvironment;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** The product of two matrices that are larger than one device. */
@Command(
        footer = {
            "",
            "Elements are whole numbers from a seeded formula, small enough for float32 to be exact;"
                    + " the product is checked against the formula: two of Freivalds' random vectors,"
                    + " single elements, and up to --size 512 all of them.",
            "Exit status: 0; 1 if the product was wrong or a rank failed; 2 for a mistake on the"
                    + " command line.",
        })
public final class MatmulCommand extends Subcommand {
    /** By default a device holds an eighth of one matrix. */
    private static final int DEFAULT_SHARE = 8;

    private final Consumer<List<Buffer>> afterProduct;

    @Option(
            names = {"-n", "--size"},
            paramLabel = "<n>",
            converter = Count.class,
            defaultValue = "4096",
            description = "Rows and columns of all three matrices (default: ${DEFAULT-VALUE}).")
    private int size;

    @Mixin private BindOption bind = new BindOption();

    @Mixin private RankOptions ranks = new RankOptions();

    @Option(
            names = "--device-memory",
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            description =
                    "Most device memory of a rank; with the host engine host memory too"
                            + " (default: an eighth of one matrix, at least 1M).")
    private @Nullable Long deviceMemory;

    @Option(
            names = "--tier",
            paramLabel = "<pinned|nvme>",
            defaultValue = "pinned",
            description = "Where the matrices live (default: ${DEFAULT-VALUE}).")
    private String tier = "pinned";

    @Option(
            names = "--nvme",
            paramLabel = "<folder>",
            description = "A folder on the drive, for --tier nvme; its files are removed.")
    private @Nullable Path nvme;

    @Option(
            names = "--threads",
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "Threads of a rank's products on the host (default: cores of this process by"
                            + " its ranks).")
    private int threads;

    @Option(
            names = "--seed",
            paramLabel = "<number>",
            defaultValue = "1",
            description = "Seed of the matrices (default: ${DEFAULT-VALUE}).")
    private long seed;

    @Mixin private JsonOption json = new JsonOption();

    @Mixin private HtmlOption html = new HtmlOption();

    public MatmulCommand() {
        this(tiles -> {});
    }

    /**
     * Creates the command.
     *
     * @param afterProduct receives each rank's tiles of the product before they are checked; for
     *     tests that corrupt them
     */
    public MatmulCommand(Consumer<List<Buffer>> afterProduct) {
        this.afterProduct = afterProduct;
    }

    @Override
    public Integer call() throws Exception {
        check();
        Engine chosen = ranks.engine(System.getenv());
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withBinding(bind.in(System.getenv(), line()));
        LaunchEnvironment launch = LaunchEnvironment.of(System.getenv());
        AtomicInteger wrong = new AtomicInteger();
        if (launch.size() > 1 || chosen == Engine.MPI) {
            // The launcher's ranks of this machine share its cores.
            chosen.run(
                    chosen.join(System.getenv(), options),
                    comm -> rank(comm, plan(comm.size()), comm.size(), wrong));
        } else {
            int count = ranks.here();
            MatmulPlan plan = plan(count);
            Communicator.runLocal(
                    chosen.devices(count), options, comm -> rank(comm, plan, count, wrong));
        }
        return wrong.get() == 0 ? 0 : 1;
    }

    private void check() {
        require(
                size >= 1 && size <= MatmulInputs.MOST,
                "--size is "
                        + size
                        + ", expected 1 to "
                        + MatmulInputs.MOST
                        + ": up to there the product is exact");
        boolean drive = tier.equals("nvme");
        require(
                drive || tier.equals("pinned"),
                "--tier is '" + tier + "', expected pinned or nvme");
        if (drive != (nvme != null)) {
            throw mistake(
                    drive
                            ? "--tier nvme needs --nvme FOLDER, a folder on the drive"
                            : "--nvme is given, but the tier is pinned; add --tier nvme");
        }
        if (nvme != null) {
            Drives.checkFolder(line(), "--nvme", nvme);
        }
        new OutputFiles(line()).add(json).add(html);
    }

    private MatmulPlan plan(int count) {
        try {
            return MatmulPlan.of(size, count, memory());
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        }
    }

    private long memory() {
        long matrix = (long) size * size * Float.BYTES;
        // Small matrices get as much memory as they need: they have nothing to demonstrate.
        return deviceMemory != null ? deviceMemory : Math.max(matrix / DEFAULT_SHARE, 1L << 20);
    }

    private void rank(Communicator comm, MatmulPlan plan, int sharing, AtomicInteger wrong)
            throws Exception {
        BitSet own = Cpus.ofThread();
        boolean bound = !own.equals(Cpus.ofProcess());
        int free = bound ? own.cardinality() : Runtime.getRuntime().availableProcessors() / sharing;
        int mine = threads > 0 ? threads : Math.max(1, free);
        Path folder = nvme == null ? null : Files.createTempDirectory(nvme, "jccl-matmul-");
        TierStore store = folder == null ? null : Drives.scratch(folder);
        PrintWriter err = err();
        Progress progress = comm.rank() == 0 ? Progress.to(err) : Progress.none();
        MatmulRun.Result result;
        try (MatmulRun run =
                new MatmulRun(comm, plan, seed, mine, memory(), store, progress, afterProduct)) {
            result = run.run();
        } finally {
            Drives.close(store);
            if (folder != null) {
                Files.deleteIfExists(folder);
            }
        }
        progress.erase();
        if (result.wrong() != null) {
            err.println(
                    "jccl matmul: wrong result on rank "
                            + comm.rank()
                            + ": "
                            + result.wrong()
                            + "; please report it with this command line");
            err.flush();
        }
        wrong.accumulateAndGet(result.wrongRanks(), Math::max);
        if (comm.rank() == 0) {
            PrintWriter out = out();
            print(json.text(out), comm, plan, mine, result);
            ObjectNode document = document(comm, plan, mine, result);
            Reports.sign(document, line());
            json.write(out, document::toPrettyString);
            Reports.write(html, document);
        }
    }

    private double gigaflops(MatmulRun.Result r) {
        return 2e-9 * size * size * size / r.seconds();
    }

    private static double percent(double part, double whole) {
        return whole == 0 ? 0 : 100 * part / whole;
    }

    private void print(
            PrintWriter out, Communicator comm, MatmulPlan plan, int each, MatmulRun.Result r) {
        out.printf(
                Locale.ROOT,
                "# jccl %s matmul: C = A B of %d x %d float32, %s each; %d ranks, %s, %s; seed %d%n",
                Version.TEXT,
                size,
                size,
                Amounts.text((double) size * size * Float.BYTES),
                comm.size(),
                comm.engine(),
                comm.device().kind() == Device.Kind.HOST
                        ? each + (each == 1 ? " thread each" : " threads each")
                        : "cuBLAS",
                seed);
        out.printf(
                Locale.ROOT,
                "# a rank: %d rows of C in %d x %d tiles, panels of %d; matrices in %s%n",
                plan.rows(0).count(),
                plan.high(),
                plan.strips(),
                plan.depth(),
                nvme == null ? "pinned host memory" : "files under " + nvme);
        line(out, "time", "%.3f s", r.seconds());
        line(out, "speed", "%.1f GFLOP/s", gigaflops(r));
        line(out, "products", "%.1f%% of the time", percent(r.computeSeconds(), r.seconds()));
        line(
                out,
                "communication",
                "%.1f%% of the time, waits included, mostly overlapping products",
                percent(r.broadcastSeconds(), r.seconds()));
        line(
                out,
                "not hidden",
                "%.1f%% of the time: no product ran",
                percent(Math.max(0, r.seconds() - r.computeSeconds()), r.seconds()));
        out.printf(
                Locale.ROOT,
                "%-16s %s, predicted %s%n",
                "received",
                Amounts.text((double) r.received()),
                Amounts.text((double) plan.received(0)));
        out.printf(
                Locale.ROOT,
                "%-16s %s, predicted %s%n",
                "to the device",
                Amounts.text((double) r.toDevice()),
                Amounts.text((double) plan.toDevice(0)));
        out.printf(
                Locale.ROOT,
                "%-16s %s of %s%n",
                "device memory",
                Amounts.text((double) r.devicePeak()),
                Amounts.text((double) memory()));
        out.println(
                r.wrongRanks() == 0
                        ? "# checked: right (2 random vectors, " + r.checked() + " elements)"
                        : "# WRONG on " + r.wrongRanks() + " ranks");
        out.flush();
    }

    private static void line(PrintWriter out, String name, String format, double value) {
        out.printf(Locale.ROOT, "%-16s " + format + "%n", name, value);
    }

    private ObjectNode document(Communicator comm, MatmulPlan plan, int each, MatmulRun.Result r) {
        ObjectNode top = new ObjectMapper().createObjectNode();
        top.put("version", Version.TEXT);
        top.put("size", size);
        top.put("type", "float32");
        top.put("ranks", comm.size());
        top.put("engine", comm.engine());
        top.put("threads", each);
        top.put("tier", tier);
        top.put("seed", seed);
        ObjectNode tiles = top.putObject("plan");
        tiles.put("tilesDown", plan.high());
        tiles.put("tilesAcross", plan.strips());
        tiles.put("tileColumns", plan.width());
        tiles.put("panelDepth", plan.depth());
        tiles.put("deviceBytes", plan.deviceBytes());
        tiles.put("receivedBytes", plan.received(0));
        tiles.put("toDeviceBytes", plan.toDevice(0));
        top.put("seconds", r.seconds());
        top.put("gigaflops", gigaflops(r));
        top.put("computeShare", r.computeSeconds() / r.seconds());
        top.put("communicationShare", r.broadcastSeconds() / r.seconds());
        top.put("notHiddenShare", Math.max(0, 1 - r.computeSeconds() / r.seconds()));
        top.put("receivedBytes", r.received());
        top.put("toDeviceBytes", r.toDevice());
        top.put("devicePeakBytes", r.devicePeak());
        top.put("deviceBudgetBytes", memory());
        top.put("elementsChecked", r.checked());
        top.put("wrongRanks", r.wrongRanks());
        return top;
    }
}
