package io.jccl.cli.plan;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.offload.timeplan.StepTime;
import java.util.List;
import java.util.Locale;

/** Predicted times as text and JSON. */
final class TimeText {
    /** Combinations shown without {@code --all}. */
    private static final int SHOWN = 20;

    private TimeText() {}

    static String step(StepTime t, Hardware hardware) {
        StringBuilder out = new StringBuilder();
        line(
                out,
                "%nPredicted on %s: a step takes %s, %,.0f tokens/s (%,.0f a GPU)",
                hardware.name(),
                time(t.seconds()),
                t.tokensPerSecond(),
                t.tokensPerSecondAndGpu());
        line(
                out,
                "  MFU %.1f%%; %.1f TFLOP/s a GPU, recomputation included",
                100 * t.mfu(),
                t.teraflops());
        part(out, t, "compute", t.compute(), recomputed(t));
        part(out, t, "bubble", t.bubble(), "");
        part(out, t, "update", t.update(), "");
        part(
                out,
                t,
                "communication",
                t.exposed(),
                "waited for; " + time(t.hidden()) + " more runs behind compute");
        double copies =
                t.moved().stream()
                        .filter(m -> !m.communication())
                        .mapToDouble(StepTime.Moved::exposed)
                        .sum();
        part(out, t, "copies", copies, "");
        if (!t.moved().isEmpty()) {
            line(out, "  %-15s %-36s %10s %10s %10s", "transfer", "", "bytes", "takes", "waits");
        }
        for (StepTime.Moved m : t.moved()) {
            line(
                    out,
                    "  %-15s %-36s %10s %10s %10s",
                    m.traffic().kind().label(),
                    m.traffic().what(),
                    PlanText.bytes(m.traffic()),
                    time(m.seconds()),
                    time(m.exposed()));
        }
        hardware.notes().forEach(n -> line(out, "  Note: %s", n));
        return out.toString().stripTrailing();
    }

    private static String recomputed(StepTime t) {
        return t.recomputation() > 0 ? time(t.recomputation()) + " of it recomputation" : "";
    }

    private static void part(
            StringBuilder out, StepTime t, String name, double seconds, String remark) {
        if (seconds > 0 || !remark.isEmpty()) {
            line(
                    out,
                    "  %-15s %10s %6.1f%%  %s",
                    name,
                    time(seconds),
                    100 * seconds / t.seconds(),
                    remark);
        }
    }

    /** All that fit, the fastest first. */
    static String ranking(List<StepTime> ranked, Hardware hardware, boolean all) {
        StringBuilder out = new StringBuilder();
        line(
                out,
                "%nPredicted on %s: %d combinations fit, the fastest first, with equally many tokens a"
                        + " step%n",
                hardware.name(),
                ranked.size());
        line(
                out,
                "  %9s  %12s  %6s  %6s  %6s  %6s  %s",
                "step",
                "tokens/s",
                "MFU",
                "waits",
                "bubble",
                "GPU",
                "techniques");
        ranked.stream()
                .limit(all ? Long.MAX_VALUE : SHOWN)
                .forEach(t ->
                        line(
                                out,
                                "  %9s  %,12.0f  %5.1f%%  %5.1f%%  %5.1f%%  %5.0f%%  %s",
                                time(t.seconds()),
                                t.tokensPerSecond(),
                                100 * t.mfu(),
                                100 * t.communicationShare(),
                                100 * t.bubble() / t.seconds(),
                                100 * memory(t.plan()),
                                t.plan().techniques()));
        if (ranked.isEmpty()) {
            line(out, "  nothing fits; give more --nodes, or a larger --machine");
        }
        hardware.notes().forEach(n -> line(out, "  Note: %s", n));
        return out.toString().stripTrailing();
    }

    static double memory(Plan plan) {
        return (double) plan.device().total() / plan.device().capacity();
    }

    static void json(ObjectNode node, StepTime t) {
        node.put("step_seconds", t.seconds());
        node.put("tokens_per_second", t.tokensPerSecond());
        node.put("mfu", t.mfu());
        node.put("teraflops_per_gpu", t.teraflops());
        node.put("compute_seconds", t.compute());
        node.put("recomputation_seconds", t.recomputation());
        node.put("bubble_seconds", t.bubble());
        node.put("update_seconds", t.update());
        node.put("communication_exposed_seconds", t.exposed());
        node.put("communication_hidden_seconds", t.hidden());
        node.put("communication_share", t.communicationShare());
        var list = node.putArray("transfers");
        for (StepTime.Moved m : t.moved()) {
            list.addObject()
                    .put("kind", m.traffic().kind().label())
                    .put("what", m.traffic().what())
                    .put("bytes", m.traffic().bytes())
                    .put("seconds", m.seconds())
                    .put("exposed_seconds", m.exposed());
        }
    }

    static String time(double seconds) {
        return seconds >= 1
                ? String.format(Locale.ROOT, "%.3g s", seconds)
                : seconds >= 1e-3
                        ? String.format(Locale.ROOT, "%.3g ms", seconds * 1e3)
                        : String.format(Locale.ROOT, "%.3g us", seconds * 1e6);
    }

    @SuppressWarnings("AnnotateFormatMethod") // the annotation would be a dependency
    private static void line(StringBuilder out, String format, Object... values) {
        out.append(String.format(Locale.ROOT, format, values).stripTrailing()).append('\n');
    }
}
