package io.jccl.cli.plan;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Version;
import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Attention;
import io.jccl.offload.memplan.Compute;
import io.jccl.offload.memplan.Experts;
import io.jccl.offload.memplan.Formula;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.LowRank;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Traffic;
import io.jccl.offload.memplan.Usage;
import java.util.ArrayList;
import java.util.List;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;

/** The planner's result as text. */
final class PlanText {
    /** Width of a bar. */
    private static final int BAR = 30;

    private final StringBuilder out = new StringBuilder();

    private PlanText() {
        out.append("jccl plan ").append(Version.TEXT).append("\n\n");
    }

    /**
     * The result for one model.
     *
     * @param name its name, may be empty
     * @param plan its memory plan
     * @param largest the largest model with its techniques; it may not fit
     * @param most the largest model with any techniques; null if none fits
     * @param next techniques to enable, if it does not fit
     * @param onMore a plan on more machines; null if not needed or none fits
     */
    record Answer(
            String name,
            Plan plan,
            Plan largest,
            @Nullable Plan most,
            List<Plan> next,
            @Nullable Plan onMore) {}

    static String plan(Answer answer, boolean explain) {
        PlanText text = new PlanText();
        text.head(answer.name, answer.plan.job());
        text.label("techniques", answer.plan.techniques().toString());
        text.tiers(answer.plan);
        text.step(answer.plan);
        text.verdict(answer);
        if (explain) {
            text.explain(answer.plan);
        }
        return text.out.toString().stripTrailing();
    }

    static String search(Job job, int tried, List<Plan> shown, boolean all, boolean explain) {
        PlanText text = new PlanText();
        text.machine(job);
        text.batch(job);
        text.out.append(
                format(
                        "%nLargest model under each of the %d combinations under which any fits%s,"
                                + "%nfewest and cheapest techniques first. Depth and width grow"
                                + " together: hidden / layers = %.4g.%n%n",
                        tried,
                        all ? "" : ",\nif it is larger than under all before it",
                        (double) job.model().hidden() / job.model().layers()));
        text.out.append("  parameters  layers  hidden   GPU   host  NVMe   sent/GPU  techniques\n");
        for (Plan p : shown) {
            Model m = p.job().model();
            text.out.append(
                    format(
                            "  %10s  %6d  %6d  %4s  %5s  %4s  %9s  %s%n",
                            Amounts.parameters(m.parameters()),
                            m.layers(),
                            m.hidden(),
                            percent(p.device()),
                            percent(p.host()),
                            percent(p.nvme()),
                            Amounts.text(p.traffic().stream().mapToDouble(Traffic::bytes).sum()),
                            p.techniques()));
        }
        if (shown.isEmpty()) {
            text.out.append(
                    "  nothing fits: see what is reserved with jccl plan --model gpt2-124m\n");
        } else if (explain) {
            text.explain(shown.getLast());
        }
        return text.out.toString().stripTrailing();
    }

    private static String percent(Usage usage) {
        return usage.model() == 0
                ? "-"
                : format("%.0f%%", 100.0 * usage.total() / usage.capacity());
    }

    private void label(String label, String value) {
        out.append(format("%-11s %s%n", label, value));
    }

    private void head(String name, Job job) {
        Model m = job.model();
        label(
                "model",
                (name.isEmpty() ? "" : name + ": ")
                        + Amounts.parameters(m.parameters())
                        + " parameters, "
                        + shape(m)
                        + ", "
                        + attention(m)
                        + ", vocabulary "
                        + m.vocabulary()
                        + ", sequence "
                        + m.sequence());
        Experts experts = m.experts();
        if (experts != null) {
            label(
                    "experts",
                    format(
                            "%s in %s layers, %s%s for each token; %s parameters take part",
                            experts.count(),
                            m.layers() - experts.dense(),
                            experts.active(),
                            experts.shared() > 0 ? " and the shared ones" : "",
                            Amounts.parameters(Math.round(m.activeParameters()))));
        }
        label("attention", job.kernel().label());
        machine(job);
        batch(job);
    }

    private static String attention(Model m) {
        return switch (m.attention()) {
            case Attention.Grouped g ->
                    g.groups() == g.heads()
                            ? g.heads() + " heads"
                            : g.heads() + " heads in " + g.groups() + " groups";
            case Attention.Latent l -> l.heads() + " heads of latent attention";
        };
    }

    private static String shape(Model m) {
        return m.layers() + (m.layers() == 1 ? " layer" : " layers") + ", hidden " + m.hidden();
    }

    private void machine(Job job) {
        Machine machine = job.machine();
        label(
                "machine",
                (machine.machines() == 1 ? "" : machine.machines() + " machines, each ")
                        + machine.gpus()
                        + (machine.gpus() == 1 ? " GPU of " : " GPUs of ")
                        + Amounts.text(machine.device())
                        + ", host memory "
                        + Amounts.text(machine.host())
                        + ", NVMe "
                        + (machine.nvme() == 0 ? "none" : Amounts.text(machine.nvme())));
    }

    private void batch(Job job) {
        label(
                "batch",
                format(
                        "micro-batch %s, accumulation %s",
                        job.batch().micro(), job.batch().accumulation()));
        LowRank adapters = job.adapters();
        if (adapters.adapts()) {
            label(
                    "trained",
                    Amounts.parameters(Math.round(adapters.trained(job.model())))
                            + " parameters in adapters (LoRA) of "
                            + (adapters.matrices() == LowRank.Matrices.ALL
                                    ? "all matrices"
                                    : "queries and values")
                            + ", rank "
                            + adapters.rank()
                            + "; the model's own stay as they are");
        }
        int bytes = job.stateBytes(false);
        int offloaded = job.stateBytes(true);
        label(
                "precision",
                job.precision()
                        + " with "
                        + job.optimizer()
                        + ", as "
                        + job.system()
                        + " has it: "
                        + bytes
                        + (adapters.adapts()
                                ? " bytes of state a trained parameter"
                                : " bytes of state a parameter")
                        + (offloaded == bytes
                                ? ""
                                : ", " + offloaded + " if the optimizer is offloaded"));
    }

    private void tiers(Plan plan) {
        out.append('\n')
                .append(format("%-16s", ""))
                .append(format("%12s%12s%12s%n", "per GPU", "host", "NVMe"));
        row("parameters", plan, Usage::parameters);
        row("gradients", plan, Usage::gradients);
        row("optimizer", plan, Usage::optimizer);
        row("activations", plan, Usage::activations);
        row("temporary", plan, Usage::temporary);
        row("communication", plan, Usage::communication);
        row("reserved", plan, Usage::reserved);
        row("total", plan, Usage::total);
        row("there is", plan, Usage::capacity);
        out.append('\n');
        for (Tier tier : Tier.values()) {
            Usage usage = plan.usage(tier);
            if (usage.capacity() > 0 || usage.model() > 0) {
                bar(name(tier), usage);
            }
        }
    }

    private void row(String name, Plan plan, ToLongFunction<Usage> what) {
        out.append(format("  %-14s", name));
        for (Tier tier : Tier.values()) {
            long bytes = what.applyAsLong(plan.usage(tier));
            out.append(format("%12s", bytes == 0 ? "-" : bytes(bytes, Usage.MOST)));
        }
        out.append('\n');
    }

    /** State, buffers, reserved and free memory. */
    private void bar(String name, Usage usage) {
        double capacity = (double) Math.max(1, usage.capacity());
        long state = usage.parameters() + usage.gradients() + usage.optimizer();
        int first = cells((double) state, capacity);
        int second = cells((double) usage.model(), capacity);
        int third = cells((double) usage.model() + usage.reserved(), capacity);
        String share = format("%.0f%%", 100.0 * usage.total() / capacity);
        out.append(format("  %-8s [", name))
                .append("#".repeat(first))
                .append("+".repeat(second - first))
                .append("-".repeat(third - second))
                .append(".".repeat(BAR - third))
                .append("] ")
                .append(share)
                .append(usage.fits() ? "" : ", " + missing(usage) + " too little")
                .append('\n');
    }

    private static String missing(Usage usage) {
        return (usage.total() < Usage.MOST ? "" : "> ") + Amounts.text(usage.missing());
    }

    /** Bytes moved. */
    static String bytes(Traffic traffic) {
        return bytes(traffic.bytes(), Long.MAX_VALUE);
    }

    /** Bytes, of which the most stand for any larger number. */
    private static String bytes(long bytes, long most) {
        return (bytes < most ? "" : "> ") + Amounts.text(bytes);
    }

    private static int cells(double bytes, double capacity) {
        return (int) Math.min(BAR, Math.round(BAR * bytes / capacity));
    }

    private static String name(Tier tier) {
        return switch (tier) {
            case DEVICE -> "GPU";
            case PINNED -> "host";
            case NVME -> "NVMe";
        };
    }

    private void step(Plan plan) {
        out.append("  # state  + activations and buffers  - reserved  . free\n");
        out.append("\nA step moves, per GPU\n");
        if (plan.traffic().isEmpty()) {
            out.append("  nothing\n");
        }
        for (Traffic t : plan.traffic()) {
            out.append(format("  %-15s %10s  %s%n", t.kind().label(), bytes(t), t.what()));
        }
        Compute c = plan.compute();
        out.append(
                format(
                        "A step computes%n  %s for %d %s (%s without recomputation, %s with full);"
                                + " %s per GPU%n",
                        Amounts.flops(c.flops()),
                        c.batch(),
                        c.batch() == 1 ? "sample" : "samples",
                        Amounts.flops(c.withoutRecomputation()),
                        Amounts.flops(c.withFullRecomputation()),
                        Amounts.flops(c.flops() / plan.job().machine().ranks())));
    }

    private void verdict(Answer answer) {
        out.append('\n');
        if (answer.plan.fits()) {
            out.append("Fits.\n");
        } else {
            List<String> missing = new ArrayList<>();
            for (Tier tier : Tier.values()) {
                Usage usage = answer.plan.usage(tier);
                if (!usage.fits()) {
                    missing.add(
                            missing(usage)
                                    + " "
                                    + switch (tier) {
                                        case DEVICE -> "on each GPU";
                                        case PINNED -> "of host memory";
                                        case NVME -> "of NVMe";
                                    });
                }
            }
            out.append("Does not fit: ").append(String.join(", ", missing)).append(" missing.\n");
        }
        if (answer.largest.fits()) {
            out.append("Largest model with these techniques: ").append(size(answer.largest));
        } else {
            out.append("No model of this shape fits with these techniques.\n");
        }
        Plan most = answer.most;
        if (most != null) {
            out.append("Largest model on this machine: ")
                    .append(size(most))
                    .append("  with ")
                    .append(most.techniques())
                    .append('\n');
        }
        if (!answer.plan.fits()) {
            if (answer.next.isEmpty()) {
                out.append("No further technique makes it fit here");
                Plan more = answer.onMore;
                if (more == null) {
                    out.append(": it takes larger machines.\n");
                } else {
                    out.append(". It fits on ")
                            .append(more.job().machine().machines())
                            .append(" such machines\n  with ")
                            .append(more.techniques())
                            .append('\n');
                }
            } else {
                out.append("What to switch on next, fewest and cheapest techniques first:\n");
                for (Plan p : answer.next) {
                    out.append("  ").append(p.techniques()).append('\n');
                }
            }
        }
    }

    private static String size(Plan plan) {
        Model m = plan.job().model();
        return Amounts.parameters(m.parameters()) + " parameters (" + shape(m) + ")\n";
    }

    private void explain(Plan plan) {
        Model m = plan.job().model();
        out.append("\nFormulas\n")
                .append(
                        "  l layers, h hidden size, a heads, V vocabulary, s sequence, f width of the MLP")
                .append(
                        " / h, b micro-batch,\n  m micro-batches a step, B samples a step, P parameters of")
                .append(" a rank, d data-parallel ranks\n");
        for (Formula f : Formula.values()) {
            out.append("\n  ").append(f.title()).append('\n');
            out.append("    ").append(f.text()).append('\n');
            String here =
                    switch (f) {
                        case PARAMETERS -> m.parameters() + " parameters";
                        case STATE ->
                                format(
                                        "%.4g bytes a parameter over all tiers and machines",
                                        plan.stateBytesPerParameter());
                        case FLOPS -> format("%.4g", plan.compute().flops());
                        default -> "";
                    };
            if (!here.isEmpty()) {
                out.append("    here: ").append(here).append('\n');
            }
            out.append("    source: ").append(f.source()).append('\n');
        }
    }
}
