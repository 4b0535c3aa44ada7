package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Device;
import io.jccl.internal.Statistics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** A training run, for all ranks of this process. */
public final class TrainRun {
    /** Steps over which communication is measured. */
    private static final int MEASURED = 20;

    private final Corpus corpus;
    private final RunSettings settings;
    private final int localRanks;
    private final Profile profile = new Profile();

    /** Whether a checkpoint was saved in a folder. */
    public static boolean hasCheckpoint(Path folder) {
        return Files.exists(folder.resolve(Checkpoints.LATEST));
    }

    /**
     * Checks that a folder has a checkpoint to resume from.
     *
     * @throws IllegalArgumentException if not; the message names the steps that are there
     */
    public static void checkSaved(Path folder) throws IOException {
        Checkpoints.checkSaved(folder);
    }

    /** Whether a folder has a model's weights, in one file or by an index. */
    public static boolean hasWeights(Path folder) {
        return WeightFiles.has(folder, WeightFiles.MODEL);
    }

    /**
     * Prepares a run.
     *
     * @param corpus the text
     * @param settings checked settings
     * @param localRanks ranks of this process, of which rank 0 or the only one measures
     */
    public TrainRun(Corpus corpus, RunSettings settings, int localRanks) {
        this.corpus = corpus;
        this.settings = settings;
        this.localRanks = localRanks;
    }

    /**
     * A step that was taken.
     *
     * @param number of the step, from 1
     * @param loss before the step, nats per token
     * @param validation loss of the held-out text after the step; NaN if it was not measured
     * @param seconds time of this run's steps so far
     */
    public record Step(int number, double loss, double validation, double seconds) {
        /** Whether the loss of the held-out text was measured. */
        public boolean validated() {
            return !Double.isNaN(validation);
        }
    }

    /** Receives progress. */
    @FunctionalInterface
    public interface Report {
        /** Called after each step. */
        void step(Step step);

        /**
         * Called on rank 0 if a checkpoint was skipped.
         *
         * @param text the checkpoint and the reason, in one line
         */
        default void warn(String text) {}
    }

    /**
     * Trains as one rank.
     *
     * @param world this rank's communicator
     * @param report called after each step, on this rank
     * @return the outcome
     * @throws IOException if a checkpoint cannot be written or read
     */
    public TrainResult run(Communicator world, Report report) throws IOException {
        // A single rank does not communicate.
        boolean measures = world.size() > 1 && (localRanks == 1 || world.rank() == 0);
        Profile own = measures ? profile : null;
        try (own;
                @Nullable Checkpoints checkpoints = checkpoints(world);
                GptTrainer trainer = new GptTrainer(world, corpus, settings)) {
            if (checkpoints != null && settings.resume() != RunSettings.START) {
                trainer.load(checkpoints, settings.resume(), report::warn);
            } else if (settings.load() != null) {
                trainer.load(settings.load());
            } else {
                trainer.initialize();
            }
            trainer.name(profile);
            int first = trainer.steps();
            int count = Math.max(0, settings.steps() - first);
            double[] losses = new double[count];
            long[] nanos = new long[count];
            boolean onGpu = world.device().kind() == Device.Kind.CUDA;
            int from = count / 2;
            int to = count < 4 ? from : Math.min(count, from + MEASURED);
            Evaluation evaluation = settings.evaluation();
            if (evaluation.every() > 0) {
                // The measurements exclude evaluations.
                int next = evaluation.every() - (first + from) % evaluation.every();
                to = Math.min(to, from + next);
            }
            Map<Integer, Double> validation = new TreeMap<>();
            long waited = 0;
            long piped = 0;
            long window = 0;
            Profile.Times times = Profile.Times.NONE;
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                if (i == from && to > from) {
                    if (own != null) {
                        own.start(world.device());
                    }
                    waited = -trainer.waitedNanos();
                    piped = -trainer.pipelineNanos();
                    window = -System.nanoTime();
                }
                if (own != null) {
                    own.stepBegins();
                }
                long before = System.nanoTime();
                losses[i] = trainer.step();
                long now = System.nanoTime();
                nanos[i] = now - before;
                if (own != null) {
                    own.stepEnded();
                }
                if (i + 1 == to && to > from) {
                    waited += trainer.waitedNanos();
                    piped += trainer.pipelineNanos();
                    window += now;
                    if (own != null) {
                        times = own.stop(localRanks);
                    }
                    if (onGpu) {
                        // Host threads wait for computation too; between steps they read events.
                        waited = 0;
                        piped = 0;
                        window = Arrays.stream(nanos, from, to).sum();
                    }
                }
                if (checkpoints != null
                        && (trainer.steps() % settings.every() == 0 || i + 1 == count)) {
                    trainer.save(checkpoints);
                }
                double seconds = (now - start) * 1e-9;
                double held = Double.NaN;
                if (evaluation.follows(trainer.steps(), settings.steps())) {
                    long began = System.nanoTime();
                    held = trainer.evaluator().loss();
                    validation.put(trainer.steps(), held);
                    start += System.nanoTime() - began;
                }
                report.step(new Step(trainer.steps(), losses[i], held, seconds));
            }
            double seconds = (System.nanoTime() - start) * 1e-9;
            String sample = trainer.evaluator().sample(settings.evaluation().sample());
            if (settings.save() != null) {
                trainer.save(settings.save());
            }
            List<Double> all = new ArrayList<>(count);
            for (double l : losses) {
                all.add(l);
            }
            return result(
                    world.engine(),
                    first,
                    all,
                    validation,
                    sample,
                    seconds,
                    median(nanos),
                    new Window(to - from, waited * 1e-9, piped * 1e-9, window * 1e-9, times),
                    trainer);
        }
    }

    private @Nullable Checkpoints checkpoints(Communicator world) throws IOException {
        if (settings.checkpoint() == null) {
            return null;
        }
        Checkpoints checkpoints = new Checkpoints(settings.checkpoint(), corpus, settings);
        if (world.rank() == 0) {
            checkpoints.lock();
        }
        return checkpoints;
    }

    /** Measurements over a number of steps. */
    private record Window(
            int steps, double waited, double piped, double seconds, Profile.Times times) {}

    private TrainResult result(
            String engine,
            int first,
            List<Double> losses,
            Map<Integer, Double> validation,
            String sample,
            double seconds,
            double stepSeconds,
            Window w,
            GptTrainer trainer) {
        Profile.Times t = w.times;
        boolean known = !t.axes().isEmpty();
        Map<String, Double> axes = new TreeMap<>();
        t.axes().forEach((axis, all) -> axes.put(axis, all / w.steps));
        if (w.piped > 0) {
            axes.put(GptTrainer.PIPELINE, w.piped / w.steps);
        }
        // Stages 1 and 2 gather parameters within the update, which cannot be distinguished from
        // waiting.
        int stage = settings.techniques().zero();
        double inStep = stage == 1 || stage == 2 ? t.queuedGathers() : 0;
        double exposed = Math.min(t.queued(), w.waited + inStep);
        boolean beside = settings.techniques().data() > 1 && t.queued() > 0;
        return new TrainResult(
                settings,
                engine,
                first,
                losses,
                validation,
                sample,
                seconds,
                stepSeconds,
                known ? Math.min(1, (t.inline() + w.piped + exposed) / w.seconds) : Double.NaN,
                known && beside ? 1 - exposed / t.queued() : Double.NaN,
                axes,
                known ? w.steps : 0,
                losses.isEmpty() ? List.of() : trainer.bubble(),
                trainer.lossScale(),
                trainer.skipped(),
                trainer.loads());
    }

    /** The first step, a warm-up, is excluded if there are others. */
    private static double median(long[] nanos) {
        int warmUp = nanos.length > 1 ? 1 : 0;
        return Statistics.median(
                Arrays.stream(nanos).skip(warmUp).mapToDouble(n -> n * 1e-9).toArray());
    }
}
