package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.gemm.Matmul;
import io.jccl.offload.optim.Adam;
import io.jccl.parallel.ReducerOptions;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The way back against differences of the loss. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GptGradientTest {
    private static final int SEQUENCES = 3;
    private static final int DIRECTIONS = 3;

    /**
     * One with which no token's larger gate becomes the smaller within reach: the balance loss
     * jumps there.
     */
    private static final long SEED = 7;

    /** Large, so that the difference stands out of float32's rounding. */
    private static final double REACH = 2e-3;

    /** Every token goes to every expert, so that none changes its experts. */
    @ParameterizedTest
    @CsvSource("true, 2, TOP2, true")
    void gradientsAreDifferencesOfTheLoss(
            boolean recompute, int experts, Routing routing, boolean shared) {
        Corpus corpus = Corpus.grammar(3);
        int vocabulary = corpus.vocabulary().size();
        GptShape shape = new GptShape(2, 16, 2, 8, vocabulary, experts, routing, 1, shared);
        gradientsAreDifferences(shape, recompute, corpus, 3);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "false, 2, VMOE, true",
        "true, 0, TOP2, false",
        "false, 0, TOP2, false",
        "false, 2, TOP2, false"
    })
    void gradientsAreDifferencesOfTheLossInMoreCases(
            boolean recompute, int experts, Routing routing, boolean shared) {
        gradientsAreDifferencesOfTheLoss(recompute, experts, routing, shared);
    }

    /**
     * Noise draws the same each time, so the loss is a smooth function with noise too. The seeds of
     * batches and noise are such that no token's larger gate becomes the smaller.
     */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("4, true, VMOE, 0.2, 0, 0.5, 0.3, true")
    void gradientsWithNoiseAndResidualExperts(
            long seed,
            boolean recompute,
            Routing routing,
            double jitter,
            double dropout,
            double noise,
            double expertDropout,
            boolean residual) {
        Corpus corpus = Corpus.grammar(3);
        GptShape shape =
                new GptShape(2, 16, 2, 8, corpus.vocabulary().size(), 2, routing, 0, false)
                        .with(
                                new MixtureSettings(
                                        jitter, dropout, noise, expertDropout, 0, residual));
        gradientsAreDifferences(shape, recompute, corpus, seed);
    }

    @Tag("exhaustive")
    @Test
    void gradientsWithResidualExpertsAlone() {
        gradientsWithNoiseAndResidualExperts(3, false, Routing.TOP2, 0, 0, 0, 0, true);
    }

    /** What is drawn depends on the gates alone, and these hardly change. */
    @Tag("exhaustive")
    @Test
    void gradientsWithSampledExperts() {
        Corpus corpus = Corpus.grammar(3);
        int vocabulary = corpus.vocabulary().size();
        GptShape shape =
                new GptShape(2, 16, 2, 8, vocabulary, 2, Routing.SWITCH, 0, false)
                        .with(MixtureSettings.NONE.withSample(true));
        gradientsAreDifferences(shape, false, corpus, 3);
    }

    @Tag("exhaustive")
    @Test
    void gradientsWithDropoutOfRouters() {
        gradientsWithNoiseAndResidualExperts(1, false, Routing.TOP2, 0.2, 0.2, 0.5, 0, false);
    }

    private static void gradientsAreDifferences(
            GptShape shape, boolean recompute, Corpus corpus, long seed) {
        int experts = shape.experts();
        try (Owned owned = new Owned()) {
            Communicator comm = owned.add(Communicator.local(1).getFirst());
            Part part = new Part(shape, 0, 1, 0, shape.layers(), 0, experts);
            long rows = (long) SEQUENCES * shape.context();
            Operations operations = owned.add(new Operations(comm.device(), 2, null, rows));
            PlainStore store = store(comm, part, part.layers(), operations, owned);
            PlainStore ofExperts =
                    experts == 0 ? null : store(comm, part, part.expertLayers(), operations, owned);
            Device device = comm.device();
            Matmul matmul = owned.add(Matmul.of(device, 1));
            Batches batches =
                    new Batches(
                            corpus,
                            seed,
                            SEQUENCES,
                            SEQUENCES,
                            1,
                            0,
                            shape.context(),
                            Evaluation.NONE,
                            device,
                            owned);
            batches.step(0);
            Stage stage =
                    new Stage(
                            part,
                            store,
                            ofExperts,
                            operations,
                            new Products(
                                    matmul,
                                    operations.layers(),
                                    device.defaultStream(),
                                    comm,
                                    rows,
                                    false,
                                    owned),
                            comm,
                            comm,
                            batches,
                            new Stage.Options(SEQUENCES, 1, 1, recompute, false),
                            device,
                            owned);
            loss(stage); // leaves the gradients
            List<List<float[]>> gradients = gradients(store, part.layers());
            if (ofExperts != null) {
                List<List<float[]>> more = gradients(ofExperts, part.expertLayers());
                check(stage, ofExperts, part.expertLayers(), more);
            }
            check(stage, store, part.layers(), gradients);
        }
    }

    /** Larger values than they begin with, so that every part of the model matters. */
    private static PlainStore store(
            Communicator comm,
            Part part,
            List<Part.Layer> layers,
            Operations operations,
            Owned owned) {
        PlainStore store =
                owned.add(
                        new PlainStore(
                                comm,
                                part,
                                layers,
                                Adam.defaults(),
                                Recipe.NONE,
                                ReducerOptions.DEFAULT,
                                1,
                                1,
                                operations));
        store.initialize((l, w, values) -> {
            Part.Layer layer = layers.get(l);
            part.initialize(SEED, layer, layer.weights().get(w), values.asSegment());
            for (long i = 0; i < values.count(); i++) {
                values.set(i, 2 * values.get(i));
            }
        });
        return store;
    }

    /** Copies: further passes add to the store's. */
    private static List<List<float[]>> gradients(PlainStore store, List<Part.Layer> layers) {
        List<List<float[]>> gradients = new ArrayList<>();
        for (int l = 0; l < layers.size(); l++) {
            gradients.add(new ArrayList<>());
            for (int w = 0; w < layers.get(l).weights().size(); w++) {
                Buffer of = store.gradient(l, w);
                gradients.get(l).add(new float[(int) of.count()]);
                of.copyTo(gradients.get(l).get(w));
            }
        }
        return gradients;
    }

    /** The mean over rows, and what keeps experts evenly busy. */
    private static double loss(Stage stage) {
        stage.forward(0, null, null, Device.host().defaultStream());
        stage.backward(0, null, null, Device.host().defaultStream());
        double balance = stage.experts().stream().mapToDouble(Experts::balanceLoss).sum();
        return stage.takeLoss() / (SEQUENCES * 8) + balance;
    }

    private static void check(
            Stage stage, PlainStore store, List<Part.Layer> layers, List<List<float[]>> gradients) {
        SplittableRandom random = new SplittableRandom(11);
        for (int l = 0; l < layers.size(); l++) {
            for (int w = 0; w < layers.get(l).weights().size(); w++) {
                String name = layers.get(l).name() + "." + layers.get(l).weights().get(w).name();
                Buffer values = store.weight(l, w);
                int n = (int) values.count();
                float[] gradient = gradients.get(l).get(w);
                double norm = 0;
                for (int i = 0; i < n; i++) {
                    norm += (double) gradient[i] * gradient[i];
                }
                norm = Math.sqrt(norm);
                assertTrue(norm > 1e-4, name + " has a gradient of " + norm);
                for (int d = 0; d < DIRECTIONS; d++) {
                    // Along the gradient, then in random directions as long as it.
                    double[] direction = new double[n];
                    double expected = 0;
                    for (int i = 0; i < n; i++) {
                        direction[i] =
                                d == 0
                                        ? gradient[i] / norm
                                        : (random.nextBoolean() ? 1 : -1) / Math.sqrt(n);
                        expected += direction[i] * gradient[i];
                    }
                    double reach = REACH * Math.max(1, Math.sqrt(n) / 8);
                    double up = moved(stage, values, direction, reach);
                    double down = moved(stage, values, direction, -reach);
                    assertEquals(
                            expected,
                            (up - down) / (2 * reach),
                            0.01 * norm + 1e-5,
                            name + ", direction " + d + ", norm " + norm);
                }
            }
        }
    }

    private static double moved(Stage stage, Buffer values, double[] direction, double by) {
        float[] before = new float[direction.length];
        values.copyTo(before);
        for (int i = 0; i < direction.length; i++) {
            values.set(i, before[i] + by * direction[i]);
        }
        double loss = loss(stage);
        values.copyFrom(before);
        return loss;
    }
}
