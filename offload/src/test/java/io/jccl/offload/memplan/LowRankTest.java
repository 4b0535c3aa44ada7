package io.jccl.offload.memplan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.LowRank.Matrices;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Plans for adapters beside a model that stays as it is. */
class LowRankTest {
    private static final Machine BIG = new Machine(1, 1L << 40, 1L << 42, 1L << 43, 1);
    private static final LowRank SMALL = new LowRank(64, Matrices.ALL);

    private static Job job(String model, Machine machine) {
        return new Job(
                Presets.of(model),
                Batch.ONE,
                Precision.BF16,
                OptimizerKind.ADAM,
                machine,
                Overheads.NONE,
                TrainingSystem.JCCL,
                AttentionKernel.FLASH,
                LowRank.NONE);
    }

    /**
     * The first is 32 layers of four matrices of 4096 by 4096 and three of 4096 by 11,008; the
     * second is printed in torchtune's tutorial on LoRA for Llama 2 7B; the last two are those of
     * GPT-3 in arXiv 2106.09685, table 4.
     */
    @ParameterizedTest
    @CsvSource({
        "llama-7b, 64, all, 159907840, 0",
        "llama2-7b, 8, qv, 4194304, 0",
        "gpt3-175b, 1, qv, 4.7e6, 5e4",
        "gpt3-175b, 8, qv, 37.7e6, 5e4",
    })
    void trainedParametersAreThoseOfTheMatrices(
            String model, int rank, String matrices, double published, double rounded) {
        LowRank adapters = new LowRank(rank, Matrices.of(matrices));
        assertEquals(published, adapters.trained(Presets.of(model)), rounded);
    }

    @ParameterizedTest
    @CsvSource({"llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "deepseek-v3", "gpt2-355m"})
    void stateIsThatOfTheAdaptersBesideTheModel(String model) {
        Job job = job(model, BIG);
        double p = job.model().parameters();
        double a = SMALL.trained(job.model());
        assertTrue(a < 0.15 * p, () -> a + " of " + p);
        Usage device = MemoryPlanner.plan(job.with(SMALL), Techniques.PLAIN).device();
        assertEquals(2 * (p + a), (double) device.parameters(), 16);
        assertEquals(2 * a, (double) device.gradients(), 16);
        assertEquals(12 * a, (double) device.optimizer(), 16);
        // Without adapters nothing changes.
        Usage whole = MemoryPlanner.plan(job, Techniques.PLAIN).device();
        assertEquals(2 * p, (double) whole.parameters(), 16);
        assertEquals(12 * p, (double) whole.optimizer(), 16);
        assertTrue(whole.activations() < device.activations(), "what adapters keep");
        assertTrue(device.activations() < 1.2 * whole.activations(), device::toString);
    }

    /** arXiv 2106.09685, section 4.2: 350 GB of parameters, a checkpoint of 35 MB. */
    @Test
    void gpt3NeedsItsParametersAlone() {
        Job job = job("gpt3-175b", BIG).with(new LowRank(4, Matrices.QUERIES_AND_VALUES));
        Usage device = MemoryPlanner.plan(job, Techniques.PLAIN).device();
        double state = device.parameters() + device.gradients() + device.optimizer();
        assertEquals(350e9, state, 0.01 * 350e9);
        assertEquals(35e6, 2 * job.adapters().trained(job.model()), 0.1 * 35e6);
    }

    /** A layer's matrices, read off its shape. */
    @Test
    void everyMatrixOfALayerHasAdapters() {
        Model m = Presets.of("deepseek-v3");
        double attention =
                (7168 + 1536)
                        + (1536 + 128 * 192)
                        + (7168 + 576)
                        + (512 + 128 * 256)
                        + (16_384 + 7168);
        double dense = 3 * (7168 + 18_432);
        double expert = 3 * (7168 + 2048);
        double all = 61 * attention + 3 * dense + 58 * (256 * expert + expert);
        assertEquals(8 * all, new LowRank(8, Matrices.ALL).trained(m), 1);
    }

    @Test
    void gradientsOfTheModelItselfAreNotComputed() {
        Job job = job("llama3-8b", BIG);
        Compute whole = MemoryPlanner.plan(job, Techniques.PLAIN).compute();
        Compute adapted = MemoryPlanner.plan(job.with(SMALL), Techniques.PLAIN).compute();
        Model m = job.model();
        double tokens = m.sequence();
        double products =
                2 * tokens * m.layers() * (m.attention().matrices(4096) + m.mlp().matrices(4096));
        double output = 2 * tokens * 4096 * m.vocabulary();
        double added = 3 * 2 * tokens * SMALL.trained(m);
        assertEquals(
                whole.flops() - products - output + added, adapted.flops(), 1e-9 * whole.flops());
        assertEquals(2, MemoryPlanner.work(job, Techniques.PLAIN).backward());
        assertEquals(1, MemoryPlanner.work(job.with(SMALL), Techniques.PLAIN).backward());
    }

    @Test
    void ranksExchangeWhatIsTrained() {
        Machine four = new Machine(4, 1L << 40, 1L << 42, 1L << 43, 1);
        Job job = job("llama3-8b", four).with(SMALL);
        double a = SMALL.trained(job.model());
        double p = job.model().parameters() + a;
        assertEquals(2 * 0.75 * 2 * a, bytes(job, 0, "gradients"), 16);
        assertEquals(0.75 * 2 * a, bytes(job, 1, "gradients"), 16);
        assertEquals(0.75 * 2 * a, bytes(job, 1, "parameters"), 16);
        assertEquals(2 * 0.75 * 2 * p, bytes(job, 3, "parameters"), 16);
        Usage third = MemoryPlanner.plan(job, Techniques.PLAIN.withStage(3)).device();
        assertEquals(2 * p / 4, (double) third.parameters(), 16);
        assertEquals(12 * a / 4, (double) third.optimizer(), 16);
        // What is offloaded is the adapters' state alone.
        Techniques offloaded =
                Techniques.PLAIN.withStage(2).withState(Tier.PINNED, Tier.PINNED, Tier.DEVICE);
        Usage host = MemoryPlanner.plan(job, offloaded).host();
        assertEquals(12 * a, (double) host.optimizer(), 16);
        assertEquals(2 * a, (double) host.gradients(), 16);
    }

    private static double bytes(Job job, int stage, String what) {
        return MemoryPlanner.plan(job, Techniques.PLAIN.withStage(stage)).traffic().stream()
                .filter(t -> t.what().equals(what) && t.group() == Traffic.Group.DATA)
                .mapToDouble(Traffic::bytes)
                .sum();
    }

    @Test
    void whatCannotBeIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> new LowRank(-1, Matrices.ALL));
        IllegalArgumentException unknown =
                assertThrows(IllegalArgumentException.class, () -> Matrices.of("some"));
        assertTrue(String.valueOf(unknown.getMessage()).contains("'some'"), unknown::toString);
        Job job = job("deepseek-v3", BIG).with(new LowRank(8, Matrices.QUERIES_AND_VALUES));
        IllegalArgumentException latent =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> MemoryPlanner.plan(job, Techniques.PLAIN));
        assertTrue(
                String.valueOf(latent.getMessage()).contains("adapt all matrices"),
                latent::toString);
    }
}
