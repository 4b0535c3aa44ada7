package io.jccl.contract;

import io.jccl.Algorithm;
import io.jccl.ReduceOp;
import io.jccl.contract.Case.Data;
import io.jccl.contract.Case.Memory;
import io.jccl.device.DataType;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.SplittableRandom;

/**
 * The cases of a world: every pair of values of two dimensions that may influence each other
 * occurs, the other dimensions are drawn.
 */
public final class Cases {
    private static final long[] SMALL = {0, 1, 2, 7, 8, 9, 31, 32, 33, 1001, 1023, 1024, 1025};
    private static final long[] MEDIUM = {4095, 4097, 8192, 20011, 65535, 65536, 65537};
    private static final int BIG_BYTES = 5 << 20;

    private final Collective collective;
    private final int ranks;
    private final SplittableRandom random;
    private final List<Algorithm> algorithms;
    private final List<Case> cases = new ArrayList<>();

    private Cases(Collective collective, int ranks, long seed) {
        this.collective = collective;
        this.ranks = ranks;
        this.random = new SplittableRandom(Numbers.mix(seed, collective.ordinal() * 300L + ranks));
        // AUTO stands for what the communicator picks by itself
        EnumSet<Algorithm> served = EnumSet.of(Algorithm.AUTO);
        served.addAll(collective.algorithms());
        this.algorithms = List.copyOf(served);
    }

    /**
     * The cases of one collective.
     *
     * @param collective what to call
     * @param ranks number of ranks
     * @param seed of what is drawn
     * @param thin 1 for all pairs, k for about one of k
     * @return the cases
     */
    public static List<Case> of(Collective collective, int ranks, long seed, int thin) {
        Cases made = new Cases(collective, ranks, seed);
        switch (collective) {
            case BARRIER -> made.barriers();
            case GROUP, SPLIT -> made.mixtures(Math.max(8, 40 / thin));
            default -> made.pairs(thin);
        }
        return made.cases;
    }

    /**
     * The cases of all collectives, those with one algorithm together.
     *
     * @param ranks number of ranks
     * @param seed of what is drawn
     * @param thin 1 for all pairs, k for about one of k
     * @return the cases
     */
    public static List<Case> all(int ranks, long seed, int thin) {
        List<Case> all = new ArrayList<>();
        for (Collective collective : Collective.values()) {
            all.addAll(of(collective, ranks, seed, thin));
        }
        all.sort(Comparator.comparing(Case::algorithm).thenComparing(Case::collective));
        return all;
    }

    private void barriers() {
        for (Algorithm a : Algorithm.values()) {
            add(new Draft().algorithm(a));
        }
    }

    private void mixtures(int count) {
        Algorithm[] all = Algorithm.values();
        for (int i = 0; i < count; i++) {
            add(new Draft().algorithm(all[i % all.length]).count(small()));
        }
    }

    private void pairs(int thin) {
        for (DataType type : DataType.values()) {
            for (ReduceOp.Kind op : ReduceOp.Kind.values()) {
                // what does not reduce needs no operation: a third of the pairs is enough
                if (draw(collective.reduces() ? thin : 3 * thin)) {
                    add(new Draft().type(type).op(op));
                }
            }
        }
        for (Algorithm a : algorithms) {
            for (long count : SMALL) {
                if (draw(thin)) {
                    add(new Draft().algorithm(a).count(count));
                }
            }
            for (long count : MEDIUM) {
                if (draw(2 * thin)) {
                    add(new Draft().algorithm(a).count(count));
                }
            }
            for (Memory memory : Memory.values()) {
                if (draw(thin)) {
                    add(new Draft().algorithm(a).memory(memory));
                }
            }
            if (collective.reduces()) {
                for (DataType type : DataType.values()) {
                    if (draw(thin)) {
                        add(new Draft().algorithm(a).type(type));
                    }
                }
                for (ReduceOp.Kind op : ReduceOp.Kind.values()) {
                    if (draw(thin)) {
                        add(new Draft().algorithm(a).op(op));
                    }
                }
            }
        }
        for (int root = 0; root < ranks && collective.hasRoot(); root++) {
            for (Algorithm a : algorithms) {
                if (draw(thin)) {
                    add(new Draft().algorithm(a).root(root));
                }
            }
        }
        for (Algorithm a : algorithms) {
            if (a == Algorithm.AUTO ? draw(1 + thin / 3) : draw(3 * thin)) {
                add(new Draft().algorithm(a).big());
            }
        }
        // an algorithm that does not serve: the communicator falls back to its own choice
        EnumSet<Algorithm> others = EnumSet.complementOf(EnumSet.copyOf(algorithms));
        for (Algorithm a : others) {
            add(new Draft().algorithm(a));
        }
    }

    private boolean draw(int oneOf) {
        return random.nextInt(oneOf) == 0;
    }

    private long small() {
        return SMALL[random.nextInt(SMALL.length)];
    }

    private <T> T any(T[] values) {
        return values[random.nextInt(values.length)];
    }

    private void add(Draft draft) {
        cases.add(draft.finish());
    }

    /** A case with some values given and the rest drawn. */
    private final class Draft {
        private DataType type = any(DataType.values());
        private ReduceOp.Kind op =
                collective.reduces() ? any(ReduceOp.Kind.values()) : ReduceOp.Kind.SUM;
        private long count = draw(20) ? any(new Long[] {4095L, 8192L, 20011L}) : small();
        private Algorithm algorithm = algorithms.get(random.nextInt(algorithms.size()));
        private Memory memory = any(Memory.values());
        private int root = random.nextInt(ranks);
        private boolean big;

        Draft type(DataType value) {
            type = value;
            return this;
        }

        Draft op(ReduceOp.Kind value) {
            op = value;
            return this;
        }

        Draft count(long value) {
            count = value;
            return this;
        }

        Draft algorithm(Algorithm value) {
            algorithm = value;
            return this;
        }

        Draft memory(Memory value) {
            memory = value;
            return this;
        }

        Draft root(int value) {
            root = value;
            return this;
        }

        Draft big() {
            big = true;
            return this;
        }

        Case finish() {
            if (big) {
                int bytes = collective.hasBlocks() ? BIG_BYTES / ranks : BIG_BYTES;
                count = (long) (bytes / type.size()) + random.nextInt(-2, 3);
            }
            Data data = any(Data.DRAWN);
            if (data == Data.SPECIAL && (type.isInteger() || !Numbers.specialIsDefined(type, op))) {
                data = Data.RANDOM;
            }
            return new Case(
                    collective,
                    type,
                    op,
                    count,
                    ranks,
                    root,
                    collective.canBeInPlace() && random.nextBoolean(),
                    algorithm,
                    data,
                    memory,
                    draw(6),
                    random.nextInt(1_000_000_000));
        }
    }
}
