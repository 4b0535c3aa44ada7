package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Subcommand;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.parallel.PipelineSchedule;
import io.jccl.train.Architecture;
import io.jccl.train.GptShape;
import io.jccl.train.Routing;
import io.jccl.train.Techniques;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Options of {@code train} for the model and the techniques. */
final class TrainOptions {
    /** The largest head that the kernels of attention take. */
    private static final int LARGEST_HEAD = 128;

    /** Where the model computes, as on the command line. */
    enum Where {
        host,
        cuda
    }

    @Option(
            names = "--device",
            defaultValue = "host",
            paramLabel = "<host|cuda>",
            description =
                    "What the model computes on; with cuda each rank has a GPU and uses NCCL"
                            + " (default: ${DEFAULT-VALUE}).")
    Where where = Where.host;

    @Option(
            names = "--dp",
            paramLabel = "<n>",
            description =
                    "Ranks with different samples (default: the number of ranks divided"
                            + " by --tp and --pp).")
    @Nullable Integer data;

    @Option(
            names = "--tp",
            defaultValue = "1",
            paramLabel = "<n>",
            description = "Ranks that split every matrix (default: ${DEFAULT-VALUE}).")
    int tensor;

    @Option(
            names = "--pp",
            defaultValue = "1",
            paramLabel = "<n>",
            description = "Pipeline stages (default: ${DEFAULT-VALUE}).")
    int pipeline;

    @Option(
            names = "--ep",
            defaultValue = "1",
            paramLabel = "<n>",
            description =
                    "Ranks that the experts are distributed over, a divisor of --dp (default:"
                            + " ${DEFAULT-VALUE}).")
    int expert;

    @Option(
            names = "--experts",
            defaultValue = "0",
            paramLabel = "<n>",
            description = "Experts of each block; 0 for none (default: ${DEFAULT-VALUE}).")
    int experts;

    @Option(
            names = "--router",
            paramLabel = "<router>",
            description =
                    "How tokens get to experts: switch, top2, gshard, expert-choice, vmoe,"
                            + " next-best or no-drop (default: switch).")
    @Nullable String router;

    @Option(
            names = "--top-k",
            paramLabel = "<n>",
            description = "1 for --router switch, 2 for top2.")
    @Nullable Integer topK;

    @Option(
            names = "--shared-expert",
            description = "Every token also passes through a shared expert, which all ranks have.")
    boolean sharedExpert;

    @Option(
            names = "--capacity-factor",
            defaultValue = "1.25",
            paramLabel = "<x>",
            description =
                    "Slots of an expert relative to a balanced load, for routers with a capacity; 0"
                            + " for as many as a step needs, -x for that and at most x (default:"
                            + " ${DEFAULT-VALUE}).")
    double capacityFactor;

    @Mixin MixtureOptions mixture = new MixtureOptions();

    @Option(
            names = "--zero",
            paramLabel = "<stage>",
            description =
                    "Stage of ZeRO, 0 to 3 (default: whole parameters and a gradient"
                            + " reducer, or 0 with --bf16 or --offload).")
    @Nullable Integer zero;

    @Option(
            names = "--offload",
            defaultValue = "none",
            paramLabel = "<none|host|nvme|state>",
            description =
                    "Where parameters, gradients and optimizer state are stored; host: all in pinned"
                            + " memory; nvme: optimizer state on the drive, the rest pinned; state:"
                            + " optimizer state on the drive, the rest on the device (default:"
                            + " ${DEFAULT-VALUE}).")
    String offload = "none";

    @Option(
            names = "--accumulate",
            defaultValue = "1",
            paramLabel = "<m>",
            description =
                    "Micro-batches per rank and step; with --pp those in the pipeline"
                            + " (default: ${DEFAULT-VALUE}).")
    int accumulate;

    @Option(
            names = "--bf16",
            description = "Bfloat16 parameters and gradients, float32 master parameters.")
    boolean bfloat16;

    @Option(
            names = "--fp16",
            description =
                    "Float16 parameters and gradients, float32 master parameters, and a loss scale that"
                            + " adapts: steps whose gradients overflow are skipped.")
    boolean float16;

    @Option(
            names = "--recompute",
            description =
                    "Keep only each block's input and recompute the rest (activation"
                            + " checkpointing).")
    boolean recompute;

    @Option(
            names = "--sequence-parallel",
            description = "Tensor ranks also split the rows between the matrices.")
    boolean sequenceParallel;

    @Option(
            names = "--schedule",
            defaultValue = "1f1b",
            paramLabel = "<gpipe|1f1b>",
            description = "Order of micro-batches in the pipeline (default: ${DEFAULT-VALUE}).")
    String schedule = "1f1b";

    @Option(
            names = "--no-overlap",
            description =
                    "The pipeline sends messages between computations, not while stages compute.")
    boolean noOverlap;

    @Option(
            names = "--compress",
            defaultValue = "none",
            paramLabel = "<none|bf16|fp16|topk:D|powersgd:R>",
            description =
                    "Compression of gradients between --dp ranks (default:" + " ${DEFAULT-VALUE}).")
    String compress = "none";

    @Mixin ModelOptions size = new ModelOptions();

    @Option(
            names = "--batch",
            defaultValue = "16",
            paramLabel = "<n>",
            description = "Sequences of a step, of all ranks (default: ${DEFAULT-VALUE}).")
    int batch;

    @Option(
            names = "--steps",
            defaultValue = "200",
            paramLabel = "<n>",
            description = "Steps from the first to the last (default: ${DEFAULT-VALUE}).")
    int steps;

    @Option(
            names = "--seed",
            defaultValue = "1",
            paramLabel = "<n>",
            description =
                    "Seed of text, initial parameters and batches (default: ${DEFAULT-VALUE}).")
    long seed;

    Routing routing() {
        require(
                topK == null || topK == 1 || topK == 2,
                "--top-k is " + topK + ", expected 1 or 2; --router has more");
        Routing byNumber = topK != null && topK == 2 ? Routing.TOP2 : Routing.SWITCH;
        Routing chosen = router == null ? byNumber : Routing.of(router);
        require(
                topK == null || chosen == byNumber,
                format(
                        "--top-k %s is --router %s, but --router is %s; leave out --top-k",
                        topK, byNumber.label(), router));
        return chosen;
    }

    /** The model, checked as far as possible without techniques. */
    GptShape shape(int vocabulary, int experts, Routing routing) {
        GptShape plain = size.shape(vocabulary);
        range("--batch", batch, 1, 1 << 20);
        range("--steps", steps, 1, 10_000_000);
        range("--experts", experts, 0, 1 << 12);
        Architecture a = plain.architecture();
        require(
                (long) batch * plain.context() * a.wide() <= Integer.MAX_VALUE,
                format(
                        "--batch %s x --context %s x a width of %s is too much for one step,"
                                + " expected less than 2^31 in all",
                        batch, plain.context(), a.wide()));
        require(
                Math.abs(capacityFactor) <= 1e6,
                "--capacity-factor is "
                        + capacityFactor
                        + ", expected a number such as 1.25, 0, or one below 0, up to 1e6 in amount");
        return new GptShape(
                plain.layers(),
                plain.hidden(),
                plain.heads(),
                plain.context(),
                plain.vocabulary(),
                experts,
                routing,
                capacityFactor,
                sharedExpert,
                a,
                mixture.settings());
    }

    /**
     * The techniques.
     *
     * @param ranks the world size if it is known; 0 if the techniques determine it
     */
    Techniques techniques(int ranks) {
        range("--tp", tensor, 1, 256);
        range("--pp", pipeline, 1, 256);
        int replicas = tensor * pipeline;
        int dp = data != null ? data : Math.max(1, ranks / replicas);
        Techniques t =
                new Techniques(
                        dp,
                        tensor,
                        pipeline,
                        expert,
                        zero == null ? -1 : zero,
                        Techniques.Offload.of(offload),
                        accumulate,
                        precision(),
                        recompute,
                        sequenceParallel,
                        PipelineSchedule.of(schedule),
                        !noOverlap,
                        Techniques.compression(compress));
        if (zero != null) {
            range("--zero", zero, 0, 3);
        }
        require(
                ranks <= 0 || t.ranks() == ranks,
                format(
                        "there are %d ranks, but --dp %d x --tp %d x --pp %d is %d; both need the"
                                + " same",
                        ranks, dp, tensor, pipeline, t.ranks()));
        return t;
    }

    private DataType precision() {
        require(
                !bfloat16 || !float16,
                "--bf16 and --fp16 are both given; parameters have one type, so leave out one");
        return bfloat16 ? DataType.BFLOAT16 : float16 ? DataType.FLOAT16 : DataType.FLOAT32;
    }

    /** The engine of the device, which {@code --engine} and the environment have to agree with. */
    Engine engine(@Nullable Engine option, Map<String, String> environment) {
        if (where == Where.host) {
            Engine chosen = Engine.of(option, environment);
            require(
                    chosen != Engine.NCCL,
                    (option == null ? Engine.VARIABLE : "--engine")
                            + " is nccl, but the model computes on the CPU; add --device cuda, or"
                            + " use host or mpi");
            return chosen;
        }
        require(
                option == null || option == Engine.NCCL,
                "--engine is "
                        + (option == null ? "" : option.text())
                        + ", but --device cuda uses NCCL; leave out --engine, or"
                        + " use --device host");
        require(Cuda.deviceCount() > 0, Subcommand.NO_GPU);
        return Engine.NCCL;
    }

    /** What does not run on a GPU yet is refused by name. */
    void checkDevice(Techniques t, GptShape shape) {
        if (where == Where.host) {
            return;
        }
        int size = shape.hidden() / shape.heads();
        require(
                size <= LARGEST_HEAD,
                format(
                        "--hidden %s of --heads %s is %s for each head, but with --device cuda it"
                                + " is at most %s; give more --heads",
                        shape.hidden(), shape.heads(), size, LARGEST_HEAD));
    }

    /**
     * Makes a folder to write to, before anything is computed.
     *
     * @param option the option that names it
     * @param folder may exist
     * @throws IllegalArgumentException if it cannot be written; the message suggests a remedy
     */
    static void makeFolder(String option, Path folder) {
        OutputFiles.checkNamed(option, folder);
        String name = option + " '" + folder + "' ";
        require(
                !Files.exists(folder) || Files.isDirectory(folder),
                name + "is a file, expected a folder; name another, which is made if need be");
        try {
            Files.createDirectories(folder);
        } catch (IOException e) {
            throw new IllegalArgumentException(
                    name + "cannot be made; give a folder in one where this user may write", e);
        }
        require(
                Files.isWritable(folder),
                name + "is not writable for this user; give a folder that is");
    }

    static void require(boolean holds, String message) {
        if (!holds) {
            throw new IllegalArgumentException(message);
        }
    }

    static void range(String name, long value, long least, long most) {
        require(
                value >= least && value <= most,
                name + " is " + value + ", expected " + least + " to " + most);
    }
}
