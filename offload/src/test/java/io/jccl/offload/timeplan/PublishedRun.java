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
        int stage,
        String recompute,
        int micro,
        int batch,
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
                c[9],
                Integer.parseInt(c[10]),
                Integer.parseInt(c[11]),
                c[12],
                c[13],
                Double.parseDouble(c[14]),
                c[15].equals("fit"),
                c[16]);
    }

    private Model shape() {
        String[] c = model.split("/");
        int[] n = Arrays.stream(c).skip(1).mapToInt(Integer::parseInt).toArray();
        return switch (c[0]) {
            case "gpt" -> Model.gpt(n[0], n[1], n[2], n[3], n[4]);
            case "llama" -> Model.llama(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
            default -> Presets.of(model);
        };
    }

    /** Sequence, degrees, batch, as far as they differ among the runs of a source. */
    String setting() {
        StringBuilder text = new StringBuilder("sequence " + shape().sequence());
        if (tensor * pipeline > 1) {
            text.append(", ").append(tensor).append(" x ").append(pipeline);
        }
        if (stage > 0) {
            text.append(", ZeRO-").append(stage);
        }
        if (micro > 0) {
            text.append(", batch ").append(micro);
            text.append(system.equals("megatron") || batch == 1 ? "" : " x " + batch);
        }
        if (recompute.equals("full") && system.equals("fsdp")) {
            text.append(", recomputed");
        }
        return text.toString();
    }

    int gpus() {
        return nodes * Integer.parseInt(machine.substring(machine.lastIndexOf('x') + 1));
    }

    /** The fastest prediction among micro-batches and chunks that the source leaves open. */
    StepTime predict() {
        StepTime best = null;
        int ranks = gpus();
        int data = ranks / tensor / pipeline;
        boolean megatron = system.equals("megatron");
        for (int b = micro == 0 ? 1 : micro; b <= (micro == 0 ? 32 : micro); b *= 2) {
            for (int v = 1; v <= (pipeline == 1 ? 1 : 8); v++) {
                int m = batch == 0 ? 1 : megatron ? batch / data / b : batch;
                Model shape = shape();
                if (m < 1 || shape.layers() % (pipeline * v) != 0) {
                    continue;
                }
                StepTime time = predict(shape, b, m, v);
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

    private StepTime predict(Model shape, int b, int m, int chunks) {
        Hardware hardware =
                MACHINES.computeIfAbsent(
                        machine + "/" + nic,
                        k -> Hardware.named(machine, new Hardware.Given(nic, 0, 0, 0)));
        boolean megatron = system.equals("megatron");
        Machine on = new Machine(hardware.gpus(), hardware.bytes(), 1_500_000_000_000L, 0, nodes);
        Job job =
                new Job(
                        shape,
                        new Batch(b, m),
                        megatron || system.startsWith("deepspeed")
                                ? Precision.FP16
                                : Precision.BF16,
                        OptimizerKind.ADAM,
                        on,
                        Overheads.DEFAULT,
                        TrainingSystem.of(system.replaceFirst("-.*", "")),
                        AttentionKernel.of(attention),
                        LowRank.NONE);
        boolean offload = system.contains("offload");
        Tier tier = offload ? Tier.PINNED : Tier.DEVICE;
        Tier parameters = system.endsWith("all") ? Tier.PINNED : Tier.DEVICE;
        Techniques t =
                Techniques.PLAIN
                        .withStage(stage)
                        .withState(tier, tier, parameters)
                        .withActivations(Tier.DEVICE, Recomputation.of(recompute))
                        .withPieces(system.endsWith("all") ? 16 : 1)
                        .withSplit(new ModelParallel(tensor, !megatron, pipeline, chunks, 1, 1));
        Plan plan = MemoryPlanner.plan(job, t);
        return TimePlanner.predict(plan, hardware, !megatron);
    }

    double predicted(StepTime time) {
        return metric.equals("tflops") ? time.teraflops() : time.tokensPerSecondAndGpu();
    }

    double error() {
        return predicted(predict()) / published - 1;
    }
}
