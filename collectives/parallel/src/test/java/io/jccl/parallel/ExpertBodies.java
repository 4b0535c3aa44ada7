package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.ExpertReference.Pick;
import io.jccl.parallel.RouterOptions.ExpertChoice;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** A mixture of experts on ranks of any engine, against the plain one. */
final class ExpertBodies {
    private static final double BALANCE = 0.3;
    private static final double Z = 0.2;

    private ExpertBodies() {}

    /** Random layers with every policy, several steps each. Every rank has the same seed. */
    static void layers(Communicator c, long seed, int rounds) {
        layers(c, seed, rounds, 60);
    }

    /** The same with at most a number of tokens on each rank. */
    static void layers(Communicator c, long seed, int rounds, int mostTokens) {
        Random random = new Random(seed);
        for (int round = 0; round < rounds; round++) {
            for (RouterOptions router : routers(random, c.size(), mostTokens)) {
                layer(c, router, random);
            }
        }
    }

    /** Every policy, with random numbers of experts and tokens. */
    private static List<RouterOptions> routers(Random random, int ranks, int mostTokens) {
        List<RouterOptions> all = new ArrayList<>();
        for (Overflow overflow : Overflow.values()) {
            for (int count = 1; count <= 3; count++) {
                for (boolean priority : new boolean[] {false, true}) {
                    int experts = experts(random, ranks);
                    if (count > experts || (priority && overflow == Overflow.NONE)) {
                        continue;
                    }
                    boolean normalised = count > 1 && random.nextInt(3) > 0;
                    all.add(
                            new RouterOptions(
                                    experts,
                                    1 + random.nextInt(mostTokens),
                                    new TokenChoice(count, normalised),
                                    anyFactor(random),
                                    overflow,
                                    priority,
                                    1 + random.nextInt(2) * random.nextInt(mostTokens)));
                }
            }
        }
        all.add(
                new RouterOptions(
                        experts(random, ranks),
                        1 + random.nextInt(mostTokens),
                        new ExpertChoice(),
                        factor(random),
                        Overflow.DROP,
                        false));
        return all;
    }

    /** Steps until something happens; whatever it is, closing has to work. */
    static void forever(Communicator c) {
        ExpertOptions options = ExpertOptions.of(RouterOptions.top2(6, 500), 100);
        try (Buffer logits = c.device().allocate(DataType.FLOAT32, 3000);
                Buffer x = c.device().allocate(DataType.FLOAT32, 50_000);
                ExpertDispatch layer = ExpertDispatch.create(c, options)) {
            fill(logits, new Random(c.rank()), 1);
            for (int step = 0; ; step++) {
                layer.route(logits, 500);
                layer.dispatch(x);
                layer.combine(x);
                layer.combineBackward(x);
                layer.dispatchBackward(x);
                if (step == 20) {
                    System.out.println("RUNNING");
                }
            }
        }
    }

    /** One layer of the size of a small model's. */
    static void largeLayer(Communicator c, long seed, RouterOptions router) {
        layer(c, router, 512, DataType.FLOAT32, false, new Random(seed));
    }

    private static int experts(Random random, int ranks) {
        return ranks * (1 + random.nextInt(16 / ranks));
    }

    private static double factor(Random random) {
        return new double[] {0.1, 0.5, 1, 1.1, 1.25, 2, 1000}[random.nextInt(7)];
    }

    /** Also such that the capacity adapts. */
    private static double anyFactor(Random random) {
        return factor(random) * (random.nextInt(4) - 1);
    }

    private static void layer(Communicator c, RouterOptions router, Random random) {
        int features = 1 + random.nextInt(70);
        DataType type = random.nextInt(3) == 0 ? DataType.BFLOAT16 : DataType.FLOAT32;
        boolean varies = router.overflow() == Overflow.NONE || router.adaptive();
        boolean fixed = !varies && random.nextBoolean();
        layer(c, router, features, type, fixed, random);
    }

    private static void layer(
            Communicator c,
            RouterOptions router,
            int features,
            DataType type,
            boolean fixed,
            Random random) {
        ExpertOptions options =
                ExpertOptions.of(router, features).withType(type).withFixedBlocks(fixed);
        int most = router.maxTokens();
        try (ExpertDispatch layer = ExpertDispatch.create(c, options);
                Buffer logits =
                        c.device().allocate(DataType.FLOAT32, (long) most * router.experts());
                Buffer logitGradients = c.device().allocate(DataType.FLOAT32, logits.count());
                Buffer tokens = c.device().allocate(type, (long) most * features);
                Buffer results = c.device().allocate(type, tokens.count());
                Buffer gradients = c.device().allocate(type, tokens.count());
                Buffer tokenGradients = c.device().allocate(type, tokens.count())) {
            for (int step = 0; step < 3; step++) {
                // Ranks have different numbers of tokens, also none.
                Step s = new Step(options, layer, c);
                s.n = new int[c.size()];
                for (int r = 0; r < c.size(); r++) {
                    s.n[r] = random.nextInt(3) == 0 ? most : random.nextInt(most + 1);
                }
                Random own = new Random(random.nextLong() + c.rank());
                fill(logits, own, new double[] {1e-3, 1, 30}[random.nextInt(3)]);
                fill(tokens, own, 1);
                fill(gradients, own, 1);
                int here = s.n[c.rank()];
                layer.route(logits, here);
                layer.dispatch(tokens);
                s.experts(layer.inputs(), layer.outputs(), null);
                layer.combine(results);
                s.forward(
                        matrix(c, logits, here, router.experts()),
                        matrix(c, tokens, here, features),
                        matrix(c, results, here, features));
                if (random.nextInt(4) > 0) {
                    layer.combineBackward(gradients);
                    s.experts(layer.inputs(), layer.inputGradients(), layer.outputGradients());
                    layer.dispatchBackward(tokenGradients);
                    layer.routeBackward(logitGradients, BALANCE, Z);
                    s.backward(
                            matrix(c, logits, here, router.experts()),
                            matrix(c, tokens, here, features),
                            matrix(c, gradients, here, features),
                            matrix(c, tokenGradients, here, features),
                            matrix(c, logitGradients, here, router.experts()),
                            own);
                }
                s.statistics(c);
            }
        }
    }

    private static void fill(Buffer buffer, Random random, double size) {
        Buffer host =
                Buffer.wrap(
                        Arena.ofAuto().allocate(buffer.byteSize(), Long.BYTES), buffer.dataType());
        for (long i = 0; i < buffer.count(); i++) {
            host.set(i, size * random.nextGaussian());
        }
        buffer.copyFrom(host.asSegment());
    }

    /** The buffer itself on the host, else what is in it once its device has computed it. */
    private static Buffer onHost(Communicator c, Buffer buffer) {
        if (buffer.device().kind() == Device.Kind.HOST) {
            return buffer;
        }
        c.device().defaultStream().synchronize();
        MemorySegment copy = Arena.ofAuto().allocate(buffer.byteSize(), Long.BYTES);
        buffer.copyTo(copy);
        return Buffer.wrap(copy, buffer.dataType());
    }

    private static double[][] matrix(Communicator c, Buffer from, int rows, int columns) {
        Buffer buffer = onHost(c, from);
        double[][] m = new double[rows][columns];
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < columns; j++) {
                m[i][j] = buffer.get((long) i * columns + j);
            }
        }
        return m;
    }

    /** One step on one rank, and what it should be. */
    private static final class Step {
        private final ExpertOptions options;
        private final RouterOptions router;
        private final ExpertDispatch layer;
        private final Communicator comm;
        private final int rank;
        private final double tolerance;
        private int[] n = {};
        private List<Pick> picks = List.of();
        private List<List<Integer>> wanted = List.of();

        /** Choices of experts that the logits exclude. */
        private long excluded;

        private double[] shares = {};

        Step(ExpertOptions options, ExpertDispatch layer, Communicator comm) {
            this.options = options;
            this.router = options.router();
            this.layer = layer;
            this.comm = comm;
            rank = comm.rank();
            // Results are rounded on the way there, on the way back and at the end: 8 bits of
            // bfloat16 each time, 24 of float32.
            tolerance = options.type() == DataType.BFLOAT16 ? 0x1p-5 : 0x1p-18;
        }

        /** Runs the local experts, or their backward pass; checks the rows that stay empty. */
        void experts(Buffer x, Buffer y, @Nullable Buffer gradients) {
            Buffer inputs = onHost(comm, x);
            Buffer outputs = onHost(comm, y);
            Buffer dy = gradients == null ? null : onHost(comm, gradients);
            int features = options.features();
            for (int l = 0; l < layer.localExperts(); l++) {
                double scale = ExpertReference.scale(rank * layer.localExperts() + l);
                long from = layer.firstRow(l) * features;
                for (long i = from; i < from + layer.rowCount(l) * features; i++) {
                    double v = inputs.get(i);
                    outputs.set(i, scale * (dy == null ? Math.sin(v) : Math.cos(v) * dy.get(i)));
                }
                if (options.fixedBlocks()) {
                    long end = from + layer.blockRows() * features;
                    for (long i = from + layer.rowCount(l) * features; i < end; i++) {
                        assertEquals(0, inputs.get(i), "behind the tokens");
                        assertEquals(0, dy == null ? 0 : dy.get(i), "behind the gradients");
                    }
                }
            }
            if (outputs != y) {
                y.copyFrom(outputs.asSegment());
            }
        }

        void forward(double[][] logits, double[][] x, double[][] results) {
            ExpertRouter r = layer.router();
            double[][] p = new double[logits.length][router.experts()];
            for (int t = 0; t < p.length; t++) {
                double[] exact = ExpertReference.softmax(logits[t]);
                for (int e = 0; e < router.experts(); e++) {
                    p[t][e] = r.gate(t, e);
                    assertEquals(exact[e], p[t][e], 3e-7, "gate");
                }
            }
            // From the router's gates, so that rounding does not decide which of two is larger.
            wanted =
                    router.choice() instanceof TokenChoice t
                            ? ExpertReference.wanted(p, t.count())
                            : List.of();
            excluded = 0;
            for (int t = 0; t < wanted.size(); t++) {
                double[] of = p[t];
                excluded += wanted.get(t).stream().filter(e -> of[e] == 0).count();
            }
            picks = ExpertReference.picks(p, router, wanted);
            shares = ExpertReference.shares(p, router.experts());
            List<Pick> found = new ArrayList<>();
            Set<Pick> once = new HashSet<>();
            for (int i = 0; i < r.assignments(); i++) {
                Pick pick = new Pick(r.token(i), r.expert(i));
                found.add(pick);
                assertTrue(once.add(pick), "twice: " + pick);
                double w = ExpertReference.weight(p[pick.token()], pick, router, wanted);
                assertEquals(w, r.weight(i), 1e-6, "weight");
            }
            assertEquals(picks, found, () -> "assignments with " + router);
            for (int e = 0; e < router.experts(); e++) {
                assertTrue(r.count(e) <= r.capacity(), "capacity");
            }
            if (router.adaptive()) {
                int fullest = IntStream.range(0, router.experts()).map(r::count).max().orElse(0);
                assertEquals(Math.max(Math.min(1, logits.length), fullest), r.capacity());
            }
            double[][] y = ExpertReference.forward(logits, x, router, picks, wanted);
            for (int t = 0; t < y.length; t++) {
                for (int f = 0; f < y[t].length; f++) {
                    assertEquals(y[t][f], results[t][f], near(y[t][f]), "result");
                }
            }
            if (logits.length > 0) {
                double balance = ExpertReference.balanceLoss(logits, shares);
                assertEquals(balance, r.balanceLoss(), 1e-5 * (1 + balance));
                double z = ExpertReference.zLoss(logits);
                assertEquals(z, r.zLoss(), 1e-5 * (1 + z));
            }
        }

        private double near(double value) {
            return tolerance * (1 + 2 * Math.abs(value));
        }

        /** The loss, less the results of other tokens, which do not depend on this one's. */
        private double loss(double[][] logits, double[][] x, double[][] g, int t) {
            double[] y = ExpertReference.forward(logits, x, router, picks, wanted, t);
            double sum =
                    BALANCE * ExpertReference.balanceLoss(logits, shares)
                            + Z * ExpertReference.zLoss(logits);
            for (int f = 0; f < y.length; f++) {
                sum += g[t][f] * y[f];
            }
            return sum;
        }

        /** Finite differences of the plain layer, who goes where being fixed. */
        void backward(
                double[][] logits,
                double[][] x,
                double[][] g,
                double[][] dx,
                double[][] dlogits,
                Random random) {
            for (int k = 0; k < 12 && logits.length > 0; k++) {
                int t = random.nextInt(logits.length);
                int f = random.nextInt(options.features());
                double numeric = slope(logits, x, g, t, x[t], f);
                assertEquals(numeric, dx[t][f], near(numeric) + 1e-6, "token's gradient");
                int e = random.nextInt(router.experts());
                double size = 0;
                for (double v : g[t]) {
                    size += Math.abs(v);
                }
                double slope = slope(logits, x, g, t, logits[t], e);
                // A sum over features, of values that were rounded.
                assertEquals(
                        slope,
                        dlogits[t][e],
                        tolerance * (1 + size + Math.abs(slope)) + 1e-4,
                        () -> "logit's gradient with " + options);
            }
        }

        private double slope(
                double[][] logits, double[][] x, double[][] g, int t, double[] row, int i) {
            double h = 1e-5;
            double at = row[i];
            row[i] = at + h;
            double above = loss(logits, x, g, t);
            row[i] = at - h;
            double below = loss(logits, x, g, t);
            row[i] = at;
            return (above - below) / (2 * h);
        }

        void statistics(Communicator c) {
            ExpertStatistics s = layer.statistics();
            long[] taken = new long[router.experts()];
            for (Pick pick : picks) {
                taken[pick.expert()]++;
            }
            long[] mine = Arrays.copyOf(taken, taken.length + 2);
            mine[taken.length] = n[rank] - picks.stream().mapToInt(Pick::token).distinct().count();
            mine[taken.length + 1] = excluded;
            long[] all = ConsistencyCheck.gather(c, mine);
            long droppedTokens = 0;
            long unmade = 0;
            long assignments = 0;
            double squares = 0;
            Arrays.fill(taken, 0);
            double used = 0;
            int choices = router.choice() instanceof TokenChoice t ? t.count() : 1;
            for (int r = 0; r < c.size(); r++) {
                for (int e = 0; e < taken.length; e++) {
                    double balanced = (double) n[r] * choices / taken.length;
                    used = n[r] == 0 ? used : Math.max(used, all[r * mine.length + e] / balanced);
                    taken[e] += all[r * mine.length + e];
                    assignments += all[r * mine.length + e];
                }
                droppedTokens += all[(r + 1) * mine.length - 2];
                unmade += all[(r + 1) * mine.length - 1];
            }
            for (int e = 0; e < taken.length; e++) {
                assertEquals(taken[e], s.taken(e));
                squares += (double) taken[e] * taken[e];
            }
            long tokens = Arrays.stream(n).sum();
            assertEquals(tokens, s.tokens());
            assertEquals(assignments, s.assignments());
            assertEquals(unmade, s.unsampled());
            assertEquals(used, s.usedCapacityFactor(), 1e-12);
            if (tokens > 0) {
                assertEquals((double) droppedTokens / tokens, s.droppedTokenShare(), 1e-12);
                double wanted =
                        router.choice() instanceof TokenChoice ? tokens * choices - unmade : 0;
                assertEquals(
                        wanted == 0 ? 0 : (wanted - assignments) / wanted, s.droppedShare(), 1e-12);
                double mean = (double) assignments / taken.length;
                assertEquals(
                        Arrays.stream(taken).max().orElseThrow() / mean, s.maxOverMean(), 1e-9);
                // Var = E[n^2] - mean^2
                assertEquals(
                        Math.sqrt(Math.max(0, squares / taken.length - mean * mean)) / mean,
                        s.coefficientOfVariation(),
                        1e-6);
                assertTrue(s.entropy() >= 0 && s.entropy() <= 1 + 1e-12, s::toString);
            }
            for (int l = 0; l < layer.localExperts(); l++) {
                assertEquals(taken[rank * layer.localExperts() + l], layer.rowCount(l));
            }
        }
    }
}
