package io.jccl.offload.timeplan;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.AttentionKernel;
import io.jccl.offload.memplan.Batch;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.LowRank;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.ModelParallel;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Overheads;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.Presets;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.memplan.TrainingSystem;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/** A line of runs.tsv, and what is predicted for it. */
record PublishedRun(
        String run,
        String model,
        String machine,
        int nodes,
        double nic,
        String attention,
        int tensor,
        int pipeline,
        int chunks,
        int context,
        int expert,
        int stage,
        String recompute,
        int micro,
        int batch,
        Precision precision,
        String system,
        String metric,
        double published,
        boolean fitted,
        String source) {
    private static final Map<String, Hardware> MACHINES = new ConcurrentHashMap<>();

    static List<PublishedRun> all() {
        return Resource.lines("runs.tsv").stream().skip(1).map(PublishedRun::parse).toList();
    }

    private static PublishedRun parse(String line) {
        String[] c = line.split("\t", -1);
        return new PublishedRun(
                c[0],
                c[1],
                c[2],
                Integer.parseInt(c[3]),
                Double.parseDouble(c[4]),
                c[5],
                Integer.parseInt(c[6]),
                Integer.parseInt(c[7]),
                Integer.parseInt(c[8]),
                Integer.parseInt(c[9]),
                Integer.parseInt(c[10]),
                Integer.parseInt(c[11]),
                c[12],
                Integer.parseInt(c[13]),
                Integer.parseInt(c[14]),
                Precision.of(c[15]),
                c[16],
                c[17],
                Double.parseDouble(c[18]),
                c[19].equals("fit"),
                c[20]);
    }

    private Model shape() {
        String[] c = model.split("/");
        int[] n = Arrays.stream(c).skip(1).mapToInt(Integer::parseInt).toArray();
        return switch (c[0]) {
            case "gpt" -> Model.gpt(n[0], n[1], n[2], n[3], n[4]);
            case "llama" -> Model.llama(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
            default -> {
                String[] named = model.split("@", -1);
                Model preset = Presets.of(named[0]);
                yield named.length == 1
                        ? preset
                        : preset.with(preset.vocabulary(), Integer.parseInt(named[1]));
            }
        };
    }

    /** Sequence, degrees, batch, as far as they differ among the runs of a source. */
    String setting() {
        StringBuilder text = new StringBuilder("sequence " + shape().sequence());
        if (tensor * pipeline > 1) {
            text.append(", ").append(tensor).append(" x ").append(pipeline);
            text.append(chunks > 1 ? " (" + chunks + " chunks)" : "");
        }
        text.append(context > 1 ? ", context " + context : "");
        text.append(expert > 1 ? ", experts " + expert : "");
        if (stage > 0) {
            text.append(", ZeRO-").append(stage);
        }
        if (micro > 0) {
            text.append(", batch ").append(micro);
            int m = system.equals("bridge") ? microBatches(micro) : batch;
            text.append(system.equals("megatron") || m == 1 ? "" : " x " + m);
        }
        if (recompute.equals("full") && system.equals("fsdp")) {
            text.append(", recomputed");
        }
        text.append(precision == Precision.FP8 ? ", fp8" : "");
        return text.toString();
    }

    private boolean samples() {
        return system.equals("megatron") || system.equals("bridge");
    }

    private int microBatches(int b) {
        int data = gpus() / tensor / pipeline / context;
        return batch == 0 ? 1 : samples() ? batch / data / b : batch;
    }

    int gpus() {
        return nodes * Integer.parseInt(machine.substring(machine.lastIndexOf('x') + 1));
    }

    /** The fastest prediction among micro-batches and chunks that the source leaves open. */
    StepTime predict() {
        StepTime best = null;
        for (int b = micro == 0 ? 1 : micro; b <= (micro == 0 ? 32 : micro); b *= 2) {
            for (int v = Math.max(1, chunks); v <= (chunks == 0 ? 8 : chunks); v++) {
                Model shape = shape();
                if (microBatches(b) < 1 || (chunks == 0 && shape.layers() % (pipeline * v) != 0)) {
                    continue;
                }
                StepTime time = predict(shape, b, v);
                if ((best == null || time.teraflops() > best.teraflops())
                        && (micro != 0 || time.plan().device().fits())) {
                    best = time;
                }
            }
        }
        if (best == null) {
            throw new AssertionError("nothing fits for " + this);
        }
        return best;
    }

    private StepTime predict(Model shape, int b, int chunks) {
        boolean nvme = system.endsWith("nvme");
        // A DGX-2 reaches 1.6 GB/s of its drives for each GPU, arXiv 2104.07857, figure 2b.
        double drives = nvme ? 16 * 1.6 : 0;
        Hardware hardware =
                MACHINES.computeIfAbsent(
                        machine + "/" + nic + "/" + drives,
                        k -> Hardware.named(machine, new Hardware.Given(nic, 0, drives, drives)));
        long storage = nvme ? 28_000_000_000_000L : 0;
        Machine on =
                new Machine(hardware.gpus(), hardware.bytes(), 1_500_000_000_000L, storage, nodes);
        Job job =
                new Job(
                        shape,
                        new Batch(b, microBatches(b)),
                        precision,
                        OptimizerKind.ADAM,
                        on,
                        Overheads.DEFAULT,
                        TrainingSystem.of(
                                system.equals("bridge")
                                        ? "megatron"
                                        : system.replaceFirst("-.*", "")),
                        AttentionKernel.of(attention),
                        LowRank.NONE);
        boolean everything = system.endsWith("all") || nvme;
        Tier tier = nvme ? Tier.NVME : system.contains("offload") ? Tier.PINNED : Tier.DEVICE;
        boolean plain = system.equals("megatron");
        Techniques t =
                Techniques.PLAIN
                        .withStage(stage)
                        .withState(tier, tier, everything ? tier : Tier.DEVICE)
                        .withPieces(nvme ? 64 : everything ? 16 : 1)
                        .withSplit(
                                new ModelParallel(
                                        tensor, !plain, pipeline, chunks, context, expert));
        Tier activations = nvme ? Tier.PINNED : Tier.DEVICE;
        List<Recomputation> open =
                recompute.equals("least")
                        ? List.of(Recomputation.values())
                        : List.of(Recomputation.of(recompute));
        Plan plan = null;
        for (Recomputation one : open) {
            plan = MemoryPlanner.plan(job, t.withActivations(activations, one));
            if (plan.device().fits()) {
                break;
            }
        }
        return TimePlanner.predict(Objects.requireNonNull(plan), hardware, !plain);
    }

    double predicted(StepTime time) {
        return metric.equals("tflops") ? time.teraflops() : time.tokensPerSecondAndGpu();
    }

    double error() {
        return predicted(predict()) / published - 1;
    }
}
