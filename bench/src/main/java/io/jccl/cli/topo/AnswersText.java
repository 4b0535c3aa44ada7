package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.count;
import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.lower;
import static io.jccl.cli.topo.TextLines.rate;

import io.jccl.cli.shell.Output;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.List;

/** The parts of the report that answer --best, --measured and --env. */
final class AnswersText {
    private final Findings f;
    private final TextLines out;

    private AnswersText(Findings f, TextLines out) {
        this.f = f;
        this.out = out;
    }

    /** Writes the best subset: before the plan, which is for it. */
    static void best(Findings f, TextLines out) {
        BestGpus best = f.answers().best();
        if (best != null) {
            new AnswersText(f, out).best(best);
        }
    }

    /** Writes what comes after the predictions. */
    static void rest(Findings f, TextLines out) {
        AnswersText text = new AnswersText(f, out);
        Verdict verdict = f.answers().verdict();
        if (verdict != null) {
            text.verdict(verdict);
        }
        List<EnvAdvice> environment = f.answers().environment();
        if (environment != null) {
            text.environment(environment);
        }
    }

    private List<Integer> indices(List<Integer> gpus) {
        return gpus.stream().map(f::index).toList();
    }

    private void best(BestGpus best) {
        out.line("");
        int size = best.worst().size();
        out.line(
                format(
                        "Best %s GPUs for %s: %s GB/s of bus bandwidth predicted",
                        size, f.operation().command(), rate(best.gbps())));
        out.line("  export CUDA_DEVICE_ORDER=PCI_BUS_ID");
        boolean all = best.ties().size() == best.tried();
        for (List<Integer> tie : all ? best.ties().subList(0, 1) : best.ties()) {
            out.line(
                    "  export CUDA_VISIBLE_DEVICES="
                            + String.join(
                                    ",", indices(tie).stream().map(String::valueOf).toList()));
        }
        if (all) {
            out.line("  all " + best.tried() + " subsets of " + size + " GPUs are equal");
            return;
        }
        if (best.ties().size() > 1) {
            out.line(
                    format(
                            "  these %s of %s subsets are equal; the plan is for the first",
                            best.ties().size(), best.tried()));
        }
        out.wrapped(
                format(
                        "The worst of %s, %s, has %s GB/s.",
                        count(best.tried(), "subset"),
                        TextLines.ranges(indices(best.worst())),
                        rate(best.worstGbps())));
        Plan plan = f.plan();
        if (plan != null) {
            out.wrapped("What limits the best: " + Output.oneLine(plan.bound()) + ".");
        }
    }

    private void verdict(Verdict verdict) {
        out.line("");
        out.line("Measured against predicted (busbw GB/s)");
        List<List<String>> rows = new ArrayList<>();
        rows.add(List.of("  bytes", "measured", "predicted", "spread", "ratio", "verdict"));
        for (Verdict.Size s : verdict.sizes()) {
            rows.add(
                    List.of(
                            "  " + s.measured().bytes(),
                            format("%.2f", s.measured().busbwGBps()),
                            format("%.2f", s.predicted().busbwGBps()),
                            format("+-%.0f%%", 100 * s.predicted().spread()),
                            format("%.2f", s.ratio()),
                            lower(s.is()).replace('_', ' ')));
        }
        out.table(rows, rows.size(), "", 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);
        if (verdict.causes().isEmpty()) {
            out.line("  Nothing is slower than expected.");
            return;
        }
        out.line("  Slower than expected. What to check, the likeliest first:");
        int n = 1;
        for (Verdict.Cause c : verdict.causes()) {
            out.wrapped(
                    n++
                            + ". "
                            + c.what()
                            + (c.busbwGBps() == 0
                                    ? ""
                                    : " (about " + rate(c.busbwGBps()) + " GB/s would be left)")
                            + ". Check: "
                            + c.check()
                            + ".");
        }
    }

    private void environment(List<EnvAdvice> environment) {
        out.line("");
        out.line("NCCL's environment");
        if (environment.isEmpty()) {
            out.line("  Nothing to set or unset: NCCL's defaults fit.");
        }
        for (EnvAdvice a : environment) {
            out.line("  " + Output.oneLine(a.line()));
            out.wrapped("  # " + Output.oneLine(a.why()));
        }
    }
}
