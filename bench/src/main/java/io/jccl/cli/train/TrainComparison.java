package io.jccl.cli.train;

import io.jccl.cli.shell.Engine;
import io.jccl.train.Routing;
import io.jccl.train.RunSettings;
import io.jccl.train.Techniques;
import io.jccl.train.TrainResult;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The runs of {@code --compare}: sets of techniques, each against a single rank, or routers. */
final class TrainComparison {
    /** What {@code --compare} runs if the model has no experts. */
    private static final List<String> DENSE =
            List.of(
                    "accumulate=4",
                    "recompute",
                    "bf16",
                    "dp=2",
                    "dp=4",
                    "dp=2 compress=bf16",
                    "dp=2 compress=fp16",
                    "dp=2 compress=topk:0.1",
                    "dp=2 compress=powersgd:4",
                    "dp=2 zero=0",
                    "dp=2 zero=1",
                    "dp=2 zero=2 accumulate=2",
                    "dp=2 zero=3",
                    "dp=2 zero=3 offload=host",
                    "dp=2 zero=3 offload=nvme bf16 recompute",
                    "tp=2",
                    "tp=2 sequence-parallel",
                    "pp=2 schedule=gpipe accumulate=4",
                    "pp=2 schedule=1f1b accumulate=4",
                    "dp=2 tp=2 zero=2",
                    "tp=2 pp=2 sequence-parallel accumulate=4");

    /** What it runs in addition, with {@code --experts} experts, or 4. */
    private static final List<String> EXPERT =
            List.of(
                    "dp=2 ep=2",
                    "dp=4 ep=2 zero=1",
                    "dp=2 ep=2 pp=2 accumulate=2",
                    "dp=2 ep=2 tp=2 sequence-parallel");

    private static final int COMPARED_EXPERTS = 4;

    /** What {@code --compare} takes instead of sets of techniques. */
    static final String ROUTERS = "routers";

    /** Warm-up steps with {@code --compare}, in short runs, and their maximum time. */
    private static final int WARM_STEPS = 100;

    private static final int WARM_RUN = 10;
    private static final long WARM_NANOS = 2_000_000_000L;

    /** Makes the settings of a run. */
    @FunctionalInterface
    interface Settings {
        RunSettings of(Techniques techniques, int experts, Routing routing);
    }

    /** Trains once. */
    @FunctionalInterface
    interface Trainer {
        TrainResult train(Engine on, RunSettings s, TrainReporter.Part part) throws IOException;
    }

    private final Engine chosen;
    private final TrainOptions model;
    private final Settings settings;
    private final Trainer trainer;

    /**
     * A comparison.
     *
     * @param chosen what the sets of techniques, and routers, run on
     * @param model for what they leave open
     */
    TrainComparison(Engine chosen, TrainOptions model, Settings settings, Trainer trainer) {
        this.chosen = chosen;
        this.model = model;
        this.settings = settings;
        this.trainer = trainer;
    }

    /**
     * Runs sets of techniques. With GPUs too, the single rank computes on the CPU.
     *
     * @param given sets separated by semicolons; all techniques if blank
     */
    List<TrainReport.Run> techniques(String given) throws IOException {
        List<RunSettings> sets = new ArrayList<>();
        for (String name : given.isBlank() ? all() : List.of(given.split(";"))) {
            Techniques t = Techniques.parse(name);
            int experts = model.experts > 0 ? model.experts : t.expert() > 1 ? COMPARED_EXPERTS : 0;
            sets.add(settings.of(t, experts, model.routing()));
        }
        Map<RunSettings, TrainResult> references = new LinkedHashMap<>();
        List<RunSettings> singles = new ArrayList<>();
        for (RunSettings s : sets) {
            // Expert capacity is per micro-batch, so the reference run uses the same micro-batches.
            Techniques single =
                    s.shape().experts() == 0 ? Techniques.NONE : s.techniques().reference();
            singles.add(settings.of(single, s.shape().experts(), model.routing()));
        }
        long all = singles.stream().distinct().count();
        for (int i = 0; i < sets.size(); i++) {
            all += same(sets.get(i), singles.get(i)) ? 0 : 1;
        }
        List<TrainReport.Run> runs = new ArrayList<>();
        for (int i = 0; i < sets.size(); i++) {
            RunSettings one = singles.get(i);
            TrainResult reference = references.get(one);
            if (reference == null) {
                reference = warm(Engine.HOST, one, runs.size(), all);
                references.put(one, reference);
                runs.add(new TrainReport.Run(reference, null));
            }
            if (!same(sets.get(i), one)) {
                TrainResult result = warm(chosen, sets.get(i), runs.size(), all);
                runs.add(new TrainReport.Run(result, reference));
            }
        }
        return runs;
    }

    private List<String> all() {
        boolean gpus = chosen == Engine.NCCL;
        List<String> names = new ArrayList<>(model.experts == 0 ? DENSE : List.of());
        names.addAll(gpus ? List.of("single") : EXPERT);
        return names;
    }

    private boolean same(RunSettings s, RunSettings single) {
        return chosen != Engine.NCCL && s.equals(single);
    }

    /**
     * Runs each router that has enough experts, and a capacity that adapts or a choice that is
     * sampled if that is asked for, with the techniques of the flags.
     */
    List<TrainReport.Run> routers() throws IOException {
        int experts = model.experts > 0 ? model.experts : COMPARED_EXPERTS;
        List<Routing> routers = new ArrayList<>(List.of(Routing.values()));
        boolean adapts = model.capacityFactor <= 0;
        boolean samples = model.mixture.sample;
        routers.removeIf(
                r -> r.choices() > experts || (adapts && !r.adapts()) || (samples && !r.samples()));
        List<TrainReport.Run> runs = new ArrayList<>();
        for (Routing r : routers) {
            RunSettings s = settings.of(model.techniques(0), experts, r);
            TrainResult result = warm(chosen, s, runs.size(), routers.size());
            runs.add(new TrainReport.Run(result, null));
        }
        return runs;
    }

    /**
     * Trains after the code has been compiled, or the first runs would seem slower than the last.
     */
    private TrainResult warm(Engine on, RunSettings s, int before, long all) throws IOException {
        var part = new TrainReporter.Part(before, (int) all, s.steps(), false);
        RunSettings few = s.withSteps(WARM_RUN);
        long end = System.nanoTime() + WARM_NANOS;
        for (int done = 0; done < WARM_STEPS && System.nanoTime() < end; done += WARM_RUN) {
            trainer.train(on, few, part.warmUp());
        }
        return trainer.train(on, s, part);
    }
}
