package io.jccl.train.fit;

import io.jccl.error.JcclException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Finds the largest model that trains with each set of techniques: the number of blocks is doubled
 * until an allocation fails, then bisected. No formula is involved: a size fits if it ran.
 */
public final class Experiment {
    /**
     * The result of one set.
     *
     * @param set the techniques
     * @param runs models of 1, 2, 4... blocks and the largest, each trained for all steps
     * @param next the smallest that did not fit; null if the limit of blocks was reached
     */
    public record Row(
            TechniqueSet set, List<Attempt.Trained> runs, Attempt.@Nullable Refused next) {
        /** The largest model that trains. */
        public Attempt.Trained largest() {
            return runs.getLast();
        }
    }

    /** Receives the progress. */
    @FunctionalInterface
    public interface Watcher {
        /** An attempt begins, after the given number of sets is done. */
        void at(String attempt, int done, int all);
    }

    private final Settings settings;
    private final Watcher watcher;
    private final List<String> doubts = new ArrayList<>();
    private int over;
    private int all;

    /**
     * Creates an experiment.
     *
     * @param settings budgets and sizes
     * @param watcher called before each attempt
     */
    public Experiment(Settings settings, Watcher watcher) {
        this.settings = settings;
        this.watcher = watcher;
    }

    /**
     * Runs it.
     *
     * @param sets the sets of techniques
     * @return one row per set
     * @throws IllegalArgumentException if a budget is too small for one block
     * @throws JcclException if training fails
     */
    public List<Row> run(List<TechniqueSet> sets) {
        all = sets.size();
        warmUp(sets);
        List<Row> rows = new ArrayList<>();
        for (TechniqueSet set : sets) {
            over = rows.size();
            rows.add(row(set));
        }
        return rows;
    }

    /** So that compilation is not charged to the first set; it matters little with a GPU. */
    private void warmUp(List<TechniqueSet> sets) {
        if (settings.onGpu()) {
            return;
        }
        watcher.at("warming up", 0, all);
        for (TechniqueSet set : sets.subList(0, Math.min(2, sets.size()))) {
            Attempt.run(settings, set, 1, 2 * settings.steps());
        }
    }

    private Row row(TechniqueSet set) {
        List<Attempt.Trained> runs = new ArrayList<>();
        Attempt.Refused next = null;
        int blocks = 1;
        while (next == null && blocks <= settings.maxBlocks()) {
            switch (attempt(set, blocks, settings.steps())) {
                case Attempt.Trained t -> runs.add(t);
                case Attempt.Refused r -> next = r;
            }
            blocks = grown(blocks);
        }
        if (runs.isEmpty() && next != null) {
            throw new IllegalArgumentException(tooSmall(set, next));
        }
        int fits = runs.getLast().blocks();
        while (next != null && next.blocks() - fits > 1) {
            int middle = (fits + next.blocks()) >>> 1;
            switch (attempt(set, middle, 1)) {
                case Attempt.Trained t -> fits = t.blocks();
                case Attempt.Refused r -> next = r;
            }
        }
        if (fits > runs.getLast().blocks()) {
            switch (attempt(set, fits, settings.steps())) {
                case Attempt.Trained t -> runs.add(t);
                case Attempt.Refused r ->
                        throw new JcclException(
                                "%s: %s blocks fitted once, and not again: %s"
                                        .formatted(set.title(), fits, r));
            }
        }
        runs.sort(Comparator.comparingInt(Attempt.Trained::blocks));
        return new Row(set, List.copyOf(runs), next);
    }

    private int grown(int blocks) {
        return blocks < settings.maxBlocks()
                ? Math.min(2 * blocks, settings.maxBlocks())
                : Integer.MAX_VALUE;
    }

    private Attempt attempt(TechniqueSet set, int blocks, int steps) {
        watcher.at(set.title() + ", " + blocks + (blocks == 1 ? " block" : " blocks"), over, all);
        Attempt a = Attempt.run(settings, set, blocks, steps);
        if (a instanceof Attempt.Trained t && steps > 1 && !t.learns()) {
            doubts.add(
                    ("%s with %s blocks does not learn: the loss went from %s to %s; lower --lr,"
                                    + " or give more --steps")
                            .formatted(
                                    set.title(),
                                    blocks,
                                    t.losses().getFirst(),
                                    t.losses().getLast()));
        }
        return a;
    }

    /** A message for each model that was trained and did not learn. */
    public List<String> doubts() {
        return doubts;
    }

    private String tooSmall(TechniqueSet set, Attempt.Refused r) {
        String option =
                switch (r.tier()) {
                    case DEVICE -> "--device-memory is " + settings.deviceBytes();
                    case PINNED -> "--host-memory is " + settings.hostBytes();
                    case NVME -> "--nvme-memory is " + settings.nvmeBytes();
                };
        return option
                + " bytes, too small for one block of --hidden "
                + settings.hidden()
                + " with "
                + set.title()
                + ": "
                + r.asked()
                + " bytes asked for on tier "
                + r.tier()
                + " of a rank, "
                + r.free()
                + " free; raise it by at least "
                + (r.asked() - r.free())
                        * (r.tier() == io.jccl.offload.Tier.DEVICE ? 1 : settings.ranks())
                + " bytes, or lower --hidden or --batch";
    }
}
