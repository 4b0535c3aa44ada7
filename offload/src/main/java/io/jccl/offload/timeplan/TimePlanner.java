package io.jccl.offload.timeplan;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.AttentionKernel;
import io.jccl.offload.memplan.Experts;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.ModelParallel;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.memplan.Traffic;
import io.jccl.offload.memplan.Traffic.Group;
import io.jccl.offload.memplan.Traffic.Kind;
import io.jccl.offload.memplan.TrainingSystem;
import io.jccl.offload.memplan.Work;
import io.jccl.topology.Operation;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Predicts the time of a step: a roofline for each layer, the topology's cost model for each
 * collective, and their overlap with compute.
 *
 * <p>Ranks of a tensor-parallel group are neighbours, then those of a sample's context, then
 * data-parallel ones; a pipeline's stages are furthest apart. Gradients are reduced during the
 * backward pass, parameters are gathered and fetched during the preceding layers; exchanges of
 * tensor parallelism, expert parallelism and a pipeline are exposed. docs/plan-time.md compares
 * predictions with published runs.
 *
 * {@snippet class="snippets.Offload" region="time"}
 *
 * <p><b>Threads:</b> any.
 */
public final class TimePlanner {
    private final Hardware hardware;
    private final boolean overlap;
    private final Job job;
    private final Techniques t;
    private final Work work;
    private final Rates rates;

    private TimePlanner(Plan plan, Hardware hardware, boolean overlap) {
        this.hardware = hardware;
        this.overlap = overlap && hardware.overlaps();
        job = plan.job();
        t = plan.techniques();
        work = MemoryPlanner.work(job, t);
        rates = hardware.rates().apply(job);
    }

    /**
     * Predicts a step.
     *
     * @param plan what is trained, and how; it need not fit
     * @param hardware one of the plan's machines
     * @param overlap whether transfers of gradients and parameters overlap with compute; otherwise
     *     all are exposed
     * @return the times
     * @throws IllegalArgumentException if the machine has fewer GPUs than the plan or lacks what
     *     the plan needs, or if the plan moves more bytes than a long holds
     */
    public static StepTime predict(Plan plan, Hardware hardware, boolean overlap) {
        Machine machine = plan.job().machine();
        if (machine.gpus() > hardware.gpus()) {
            throw new IllegalArgumentException(hardware.tooFew(machine.gpus()));
        }
        if (plan.traffic().stream().anyMatch(one -> one.bytes() == Long.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the time of a step that moves more than 9.22e18 bytes cannot be predicted; give"
                            + " fewer micro-batches");
        }
        return new TimePlanner(plan, hardware, overlap).predict(plan);
    }

    private StepTime predict(Plan plan) {
        Constants c = Constants.SHIPPED;
        double m = job.batch().accumulation();
        double attention = attention();
        double products = roofline(work.products());
        double forwardMoves = c.get("forward.moves") / (rates.elementwise() * 1e9);
        double backwardMoves = c.get("backward.moves") / (rates.elementwise() * 1e9);
        double layers = products + attention + work.touched() * forwardMoves;
        double head = seconds(work.output(), rates.wide());
        double forward = layers + head + work.logits() * forwardMoves;
        double backward =
                work.backward() * (products + head)
                        + 2 * attention
                        + (work.touched() + work.logits()) * backwardMoves;
        double again =
                switch (t.recomputation()) {
                    case NONE -> 0;
                    case SELECTIVE -> attention;
                    // PyTorch's checkpoint ends once it has what the backward pass reads.
                    case FULL ->
                            job.system().name().equals(TrainingSystem.FSDP.name())
                                    ? layers - seconds(work.last(), rates.products())
                                    : layers;
                };
        double micro = forward + backward + again;

        Map<Group, Double> windows = new EnumMap<>(Group.class);
        double all = 1 - 1.0 / Math.max(1, work.layers());
        windows.put(
                Group.DATA,
                all
                        * switch (t.stage()) {
                            case 0 -> backward + again;
                            case 1 -> micro;
                            case 2 -> m * (backward + again) + forward;
                            default -> m * micro;
                        });
        windows.put(
                Group.CONTEXT, m * attention * (t.recomputation() == Recomputation.NONE ? 3 : 4));

        if (job.system().exchangesBehind()) {
            // One after the other, all overlapping with the same compute.
            double left = m * micro;
            for (Group group : List.of(Group.TENSOR, Group.EXPERT, Group.PIPELINE)) {
                windows.put(group, left);
                left = Math.max(0, left - sum(of(plan, group)));
            }
        }

        // What the optimizer waits for, apart from what layers wait for.
        boolean away = t.optimizer() != Tier.DEVICE;
        List<Traffic> ofUpdate = new ArrayList<>();
        List<Traffic> ofLayers = new ArrayList<>();
        for (Traffic one : plan.traffic()) {
            if (one.group() == Group.MACHINE) {
                boolean state = one.what().equals("optimizer state");
                boolean back =
                        away
                                && t.parameters() == Tier.DEVICE
                                && one.kind() == Kind.TO_DEVICE
                                && one.what().equals("parameters");
                (state || back ? ofUpdate : ofLayers).add(one);
            }
        }
        List<StepTime.Moved> moved = new ArrayList<>();
        for (Group group : Group.values()) {
            if (group != Group.MACHINE) {
                List<Traffic> some = of(plan, group);
                add(moved, some, windows.getOrDefault(group, 0.0), sum(some));
            }
        }
        add(moved, ofLayers, all * m * micro, ports(ofLayers));

        double bytes = job.stateBytes(away) * work.updated() * c.get("update.moves");
        double here = bytes / ((away ? rates.host() : rates.memory()) * 1e9);
        double update = Math.max(here, ports(ofUpdate));
        ofUpdate.forEach(x -> moved.add(new StepTime.Moved(x, port(x), 0)));

        // Filling the pipeline takes the time of micro-batches, including their transfers.
        ModelParallel split = t.split();
        double inMicro =
                moved.stream()
                                .filter(x -> x.traffic().group() != Group.DATA)
                                .mapToDouble(StepTime.Moved::exposed)
                                .sum()
                        / m;
        double bubble = (split.pipeline() - 1.0) / split.chunks() * (micro + inMicro);
        double exposed = moved.stream().mapToDouble(StepTime.Moved::exposed).sum();
        return new StepTime(
                plan,
                m * micro + bubble + update + exposed,
                m * micro,
                m * again,
                bubble,
                update,
                moved,
                rates.peak());
    }

    private static List<Traffic> of(Plan plan, Group group) {
        return plan.traffic().stream().filter(x -> x.group() == group).toList();
    }

    /** Seconds of products, or of reading the weights for them if that is longer. */
    private double roofline(double flops) {
        return Math.max(seconds(flops, rates.products()), work.weights() / (rates.memory() * 1e9));
    }

    private double attention() {
        boolean flash = job.kernel() != AttentionKernel.MATH && rates.attention() > 0;
        return seconds(work.attention(), flash ? rates.attention() : rates.wide());
    }

    private static double seconds(double flops, double teraflops) {
        return flops / (teraflops * 1e12);
    }

    /**
     * Adds transfers that run one after the other and overlap with at most {@code window} of
     * compute.
     */
    private void add(
            List<StepTime.Moved> moved, List<Traffic> some, double window, double together) {
        if (some.isEmpty()) {
            return;
        }
        boolean copies = some.getFirst().group() == Group.MACHINE;
        // A copy is of a layer, in each micro-batch.
        double calls =
                copies
                        ? (double) Math.max(1, work.layers()) * job.batch().accumulation()
                        : some.stream().mapToLong(Traffic::calls).sum();
        double first = together / calls;
        double waits = !overlap || window == 0 ? together : Math.max(first, together - window);
        double each = sum(some);
        if (!copies) {
            waits += Constants.SHIPPED.get("interference") * Math.max(0, together - waits);
        }
        for (Traffic one : some) {
            double seconds = time(one);
            moved.add(new StepTime.Moved(one, seconds, each == 0 ? 0 : waits * seconds / each));
        }
    }

    private double sum(List<Traffic> some) {
        return some.stream().mapToDouble(this::time).sum();
    }

    /** Seconds of copies and drives, which run concurrently: each direction, and the drives. */
    private double ports(List<Traffic> some) {
        double in = sum(some.stream().filter(x -> x.kind() == Kind.TO_DEVICE).toList());
        double out = sum(some.stream().filter(x -> x.kind() == Kind.TO_HOST).toList());
        double drives =
                sum(
                        some.stream()
                                .filter(x ->
                                        x.kind() == Kind.NVME_READ || x.kind() == Kind.NVME_WRITE)
                                .toList());
        return Math.max(drives, Math.max(in, out));
    }

    private double time(Traffic one) {
        return one.group() == Group.MACHINE ? port(one) : network(one);
    }

    private double port(Traffic one) {
        double gbps =
                switch (one.kind()) {
                    case NVME_READ -> rates.nvmeRead();
                    case NVME_WRITE -> rates.nvmeWrite();
                    default -> rates.pcie();
                };
        return one.bytes() / (gbps * 1e9);
    }

    private double network(Traffic one) {
        ModelParallel split = t.split();
        int ranks = job.machine().ranks();
        int tensor = split.tensor();
        int context = split.context();
        int data = ranks / (int) split.ways();
        int pair = Math.min(2, ranks);
        int apart = ranks / split.pipeline();
        return switch (one.group()) {
            case TENSOR -> calls(one, tensor, 1);
            case CONTEXT -> calls(one, pair, tensor);
            case EXPERT -> crossings(split.expert(), tensor) * calls(one, split.expert(), tensor);
            case PIPELINE -> calls(one, pair, apart);
            case DATA -> calls(one, data * context, tensor);
            case MACHINE -> 0;
        };
    }

    /**
     * The part of token copies that crosses between machines if each token does so once for all its
     * experts there: k random experts are on {@code M (1 - (1 - 1/M)^k)} of M machines.
     */
    private double crossings(int members, int stride) {
        int machines = machines(members, stride);
        Experts experts = job.model().experts();
        if (!job.system().exchangesBehind() || machines == 1 || experts == null) {
            return 1;
        }
        double k = experts.active();
        return machines * (1 - Math.pow(1 - 1.0 / machines, k)) / k;
    }

    private int local(int members, int stride) {
        int gpus = job.machine().gpus();
        return stride >= gpus ? 1 : Math.min(members, (gpus + stride - 1) / stride);
    }

    private int machines(int members, int stride) {
        int local = local(members, stride);
        return (members + local - 1) / local;
    }

    private double calls(Traffic one, int members, int stride) {
        int local = local(members, stride);
        int machines = machines(members, stride);
        if (local * machines < 2) {
            return 0;
        }
        Operation op =
                switch (one.kind()) {
                    case ALL_REDUCE -> Operation.ALL_REDUCE;
                    case REDUCE_SCATTER -> Operation.REDUCE_SCATTER;
                    case ALL_GATHER -> Operation.ALL_GATHER;
                    case ALL_TO_ALL -> Operation.ALL_TO_ALL;
                    default -> Operation.SEND_RECV;
                };
        List<Integer> on = IntStream.range(0, local).map(i -> i * stride).boxed().toList();
        double bytes = one.bytes() / op.busFactor(local * machines) / one.calls();
        return one.calls() * hardware.links().seconds(op, on, machines, (long) Math.ceil(bytes));
    }
}
