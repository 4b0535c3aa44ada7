package io.jccl.offload.timeplan;

import io.jccl.offload.memplan.AttentionKernel;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Precision;
import io.jccl.topology.Gpu;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A machine to predict times on. Immutable, and safe for use by many threads.
 *
 * @param name for display
 * @param gpus number of GPUs
 * @param bytes memory of each
 * @param rates what a rank of a job achieves
 * @param links its links
 * @param overlaps whether transfers can overlap with compute
 * @param notes what was assumed; for display
 */
public record Hardware(
        String name,
        int gpus,
        long bytes,
        Function<Job, Rates> rates,
        Links links,
        boolean overlaps,
        List<String> notes) {
    private static final Pattern NAMED = Pattern.compile("(.+?)[xX](\\d{1,6})");

    /** Most GPUs of a machine by name: its matrix is as long as what is read. */
    private static final int MOST = 400;

    /** Links of a DGX-1: pairs of a cube mesh of eight V100. */
    private static final String[] CUBE = {
        "X NV1 NV1 NV2 NV2 SYS SYS SYS",
        "NV1 X NV2 NV1 SYS NV2 SYS SYS",
        "NV1 NV2 X NV2 SYS SYS NV1 SYS",
        "NV2 NV1 NV2 X SYS SYS SYS NV1",
        "NV2 SYS SYS SYS X NV1 NV1 NV2",
        "SYS NV2 SYS SYS NV1 X NV2 NV1",
        "SYS SYS NV1 SYS NV1 NV2 X NV2",
        "SYS SYS SYS NV1 NV2 NV1 NV2 X"
    };

    /**
     * Figures of a machine that options override; 0 for the shipped figure.
     *
     * @param nicGbit Gbit/s of NIC for each GPU
     * @param hostGbps GB/s of host memory that the optimizer reaches
     * @param nvmeReadGbps GB/s that all drives of a machine read
     * @param nvmeWriteGbps the same, writing
     */
    public record Given(
            double nicGbit, double hostGbps, double nvmeReadGbps, double nvmeWriteGbps) {
        /** No overrides. */
        public static final Given NONE = new Given(0, 0, 0, 0);
    }

    /** Copies the notes. */
    public Hardware {
        notes = List.copyOf(notes);
    }

    /**
     * The message for a machine with too few GPUs.
     *
     * @param asked number requested
     * @return what is there, and what to do
     */
    public String tooFew(int asked) {
        return ("%s has %s GPUs, and %s per machine are asked for; give --gpus %s or fewer, and more"
                        + " machines with --nodes")
                .formatted(name, gpus, asked, gpus);
    }

    /**
     * A machine by type and number of its GPUs.
     *
     * @param name such as {@code H100x8}
     * @param given overrides of the shipped figures
     * @return the machine
     * @throws IllegalArgumentException if the name is not of that form, the type is unknown, or
     *     there are more than 400 GPUs
     */
    public static Hardware named(String name, Given given) {
        Matcher m = NAMED.matcher(name);
        if (!m.matches()) {
            throw new IllegalArgumentException(
                    "machine '"
                            + name
                            + "' is neither a file nor GPUs such as H100x8; give nvidia-smi topo -m's"
                            + " output, an NCCL topology XML, the JSON of jccl probe, or a GPU type"
                            + " and a number of "
                            + String.join(", ", GpuType.ALL.stream().map(GpuType::name).toList()));
        }
        GpuType type = GpuType.of(m.group(1));
        int gpus = Integer.parseInt(m.group(2));
        if (gpus < 1 || gpus > MOST) {
            throw new IllegalArgumentException(
                    ("machine '%s' has %s GPUs, expected 1 to %s; give a smaller machine, and how"
                                    + " many of them with --nodes")
                            .formatted(name, gpus, MOST));
        }
        double nic = given.nicGbit() > 0 ? given.nicGbit() : type.nicGbit();
        ReadOptions options =
                ReadOptions.DEFAULT.withName(name).withGpuModel(type.model()).withNicGbps(nic / 8);
        Topology machine = TopologyReader.topology(matrix(type, gpus, nic > 0), options);
        return of(name, machine, type, given);
    }

    /**
     * A machine by its topology, whose GPUs are of the type that {@link GpuType#of(Gpu)} finds; a
     * note says so if the topology does not name them.
     *
     * @param name for display
     * @param machine its links; at least one GPU
     * @param given overrides of the shipped figures
     * @return the machine
     * @throws IllegalArgumentException if the type is unknown
     */
    public static Hardware of(String name, Topology machine, Given given) {
        Gpu gpu = machine.gpus().getFirst();
        GpuType type = GpuType.of(gpu);
        Hardware found = of(name, machine, type, given);
        if (gpu.model() != null) {
            return found;
        }
        String why =
                gpu.smSource() == Source.DEFAULT
                        ? "a guess by their links"
                        : "the usual ones of compute capability "
                                + gpu.sm() / 10
                                + "."
                                + gpu.sm() % 10;
        String note =
                "the GPUs are taken to be %s, %s; name them with --gpu-type"
                        .formatted(type.name(), why);
        return new Hardware(
                name,
                found.gpus,
                found.bytes,
                found.rates,
                found.links,
                found.overlaps,
                List.of(note));
    }

    /**
     * A machine by its topology.
     *
     * @param name for display
     * @param machine its links
     * @param type its GPUs
     * @param given overrides of the shipped figures
     * @return the machine
     */
    public static Hardware of(String name, Topology machine, GpuType type, Given given) {
        Constants c = Constants.SHIPPED;
        int gpus = machine.gpus().size();
        int sm = machine.gpus().getFirst().sm();
        Function<Job, Rates> rates =
                job -> {
                    double peak = type.teraflops(job.precision());
                    double wide = type.teraflops(job.precision().wide());
                    return rates(
                            type,
                            given,
                            job,
                            peak * c.get(products(job), sm),
                            wide * c.get("products", sm),
                            wide * c.get(attention(job), sm),
                            type.memoryGbps() * c.get("memory"));
                };
        return new Hardware(name, gpus, type.bytes(), rates, planned(machine), true, List.of());
    }

    /** Times from the topology's cost model; its plans are cached. */
    private static Links planned(Topology machine) {
        record Key(Operation op, List<Integer> gpus, int machines) {}
        Map<Key, Tuning> tunings = new ConcurrentHashMap<>();
        return (op, gpus, machines, bytes) -> {
            Key key = new Key(op, gpus, machines);
            Tuning tuning = tunings.get(key);
            if (tuning == null) {
                if (machines > 1 && machine.nics().isEmpty()) {
                    throw new IllegalArgumentException(
                            ("%s has no NIC, and %s machines are asked for; give --nic-gbit, or"
                                            + " one machine")
                                    .formatted(machine.name(), machines));
                }
                tuning =
                        machines == 1
                                ? CostModel.nccl().tune(machine, gpus, op)
                                : CostModel.nccl().tune(new Cluster(machine, machines), gpus, op);
                tunings.put(key, tuning);
            }
            return tuning.choose(Math.max(1, bytes)).timeUs() * 1e-6;
        };
    }

    /**
     * Rates of a rank on a GPU that was measured.
     *
     * @param type its type
     * @param given overrides of the shipped figures
     * @param product TFLOP/s of the best product whose operands are not narrowed, measured in
     *     isolation
     * @param memory GB/s of its memory, measured
     * @param job the job
     * @return the rates: measured ones, reduced as training reduces those of the data sheet
     */
    public static Rates measured(
            GpuType type, Given given, double product, double memory, Job job) {
        Constants c = Constants.SHIPPED;
        double best = c.get("best", type.sm());
        double peak = type.teraflops(job.precision());
        double wide = type.teraflops(job.precision().wide());
        return rates(
                type,
                given,
                job,
                product * peak / wide * c.get(products(job), type.sm()) / best,
                product * c.get("products", type.sm()) / best,
                product * c.get(attention(job), type.sm()) / best,
                memory);
    }

    private static Rates rates(
            GpuType type,
            Given given,
            Job job,
            double products,
            double wide,
            double attention,
            double memory) {
        int used = job.machine().gpus();
        return new Rates(
                type.teraflops(job.precision()),
                products,
                wide,
                attention,
                memory,
                memory,
                type.pcieGbps(),
                valueOrDefault(given.hostGbps(), "host.gbps") / used,
                valueOrDefault(given.nvmeReadGbps(), "nvme.read.gbps") / used,
                valueOrDefault(given.nvmeWriteGbps(), "nvme.write.gbps") / used);
    }

    private static double valueOrDefault(double value, String name) {
        return value > 0 ? value : Constants.SHIPPED.get(name);
    }

    /** The constant of products with the layers' matrices. */
    private static String products(Job job) {
        return job.precision() == Precision.FP8 ? "products.fp8" : "products";
    }

    private static String attention(Job job) {
        return job.kernel() == AttentionKernel.FLASH3 ? "flash3" : "flash";
    }

    /** As {@code nvidia-smi topo -m} would print it: with a NIC for each GPU, if there are any. */
    private static String matrix(GpuType type, int gpus, boolean nics) {
        boolean cube = gpus <= 8 && type.model().equals("V100");
        StringBuilder text = new StringBuilder();
        int all = nics ? 2 * gpus : gpus;
        for (int i = 0; i < all; i++) {
            text.append('\t').append(label(i, gpus));
        }
        text.append('\n');
        for (int i = 0; i < all; i++) {
            text.append(label(i, gpus));
            for (int j = 0; j < all; j++) {
                text.append('\t');
                if (i == j) {
                    text.append(" X ");
                } else if (i < gpus && j < gpus) {
                    text.append(cube ? CUBE[i].split(" ", -1)[j] : type.link());
                } else {
                    text.append(i % gpus == j % gpus ? "PIX" : "SYS");
                }
            }
            text.append('\n');
        }
        return text.toString();
    }

    private static String label(int i, int gpus) {
        return i < gpus ? "GPU" + i : "NIC" + (i - gpus);
    }
}
