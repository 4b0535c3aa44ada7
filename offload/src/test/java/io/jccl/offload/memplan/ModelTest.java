package io.jccl.offload.memplan;

import static io.jccl.offload.Tier.DEVICE;
import static io.jccl.offload.Tier.PINNED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Shapes of models and what follows from them. */
class ModelTest {
    private static final Machine BIG = new Machine(8, 1L << 50, 1L << 50, 0, 1);

    /**
     * Parameters in millions, as published: the papers named in {@link Presets} for the older ones
     * (GPT-3: table D.1), the checkpoints' metadata from LLaMA on.
     */
    private static final Map<String, Double> PUBLISHED = new TreeMap<>();

    static {
        Object[] table = {
            "gpt2-124m",
            124.439808,
            "gpt2-355m",
            354.823168,
            "gpt2-774m",
            774.03008,
            "gpt2-1.5b",
            1557.6112,
            "gpt3-1.3b",
            1320.0,
            "gpt3-2.7b",
            2650.0,
            "gpt3-6.7b",
            6660.0,
            "gpt3-13b",
            12_850.0,
            "gpt3-175b",
            174_600.0,
            "gpt-neox-20b",
            20_554.56768,
            "bloom-176b",
            176_247.271424,
            "llama-7b",
            6738.415616,
            "llama-13b",
            13_015.86432,
            "llama-33b",
            32_528.943616,
            "llama-65b",
            65_285.660672,
            "llama2-7b",
            6738.415616,
            "llama2-13b",
            13_015.86432,
            "llama2-70b",
            68_976.648192,
            "llama3-8b",
            8030.261248,
            "llama3-70b",
            70_553.706496,
            "llama3-405b",
            405_853.3888,
            "mistral-7b",
            7241.732096,
            "mixtral-8x7b",
            46_702.792704,
            "mixtral-8x22b",
            140_620.634112,
            "qwen2.5-0.5b",
            494.032768,
            "qwen2.5-1.5b",
            1543.714304,
            "qwen2.5-3b",
            3085.938688,
            "qwen2.5-7b",
            7615.616512,
            "qwen2.5-14b",
            14_770.033664,
            "qwen2.5-32b",
            32_763.876352,
            "qwen2.5-72b",
            72_706.203648,
            "qwen3-0.6b",
            596.04992,
            "qwen3-1.7b",
            1720.574976,
            "qwen3-4b",
            4022.468096,
            "qwen3-8b",
            8190.73536,
            "qwen3-14b",
            14_768.3072,
            "qwen3-32b",
            32_762.123264,
            "qwen3-30b-a3b",
            30_532.122624,
            "qwen3-235b-a22b",
            235_093.63456,
            "deepseek-v2-lite",
            15_706.484224,
            "deepseek-v2",
            235_741.43488,
            "deepseek-v3",
            671_026.4192,
            "gemma2-2b",
            2614.341888,
            "gemma2-9b",
            9241.705984,
            "gemma2-27b",
            27_227.12832,
            "gemma3-1b",
            999.885952,
            "gemma3-4b",
            3880.099328,
            "gemma3-12b",
            11_765.788416,
            "gemma3-27b",
            27_009.00224,
            "megatron-8.3b",
            8300.0,
            "turing-nlg-17b",
            17_200.0,
            "mt-nlg-530b",
            530_000.0,
            "megatron-1t",
            1_008_000.0,
        };
        for (int i = 0; i < table.length; i += 2) {
            PUBLISHED.put((String) table[i], (Double) table[i + 1]);
        }
    }

    @Test
    void presetsHaveTheirPublishedParameters() {
        assertEquals(PUBLISHED.keySet(), Presets.names());
        for (String name : Presets.names()) {
            double published = PUBLISHED.getOrDefault(name, 0.0) * 1e6;
            // Names of three digits round by up to half a unit of the last.
            double tolerance = name.startsWith("megatron-8") ? 0.0025 : 0.002;
            assertEquals(1, Presets.of(name).parameters() / published, tolerance, name);
        }
    }

    /** Billions: arXiv 2401.04088, arXiv 2405.04434, arXiv 2412.19437, arXiv 2505.09388. */
    @ParameterizedTest
    @CsvSource({
        "mixtral-8x7b, 13, 0.5",
        "mixtral-8x22b, 39, 0.5",
        "deepseek-v2, 21, 0.5",
        "deepseek-v2-lite, 2.4, 0.3",
        "deepseek-v3, 37, 0.6",
        "qwen3-30b-a3b, 3.3, 0.1",
        "qwen3-235b-a22b, 22, 0.5",
        "llama3-8b, 8.03, 0.01",
    })
    void parametersOfAToken(String name, double billions, double tolerance) {
        assertEquals(billions, Presets.of(name).activeParameters() / 1e9, tolerance);
    }

    private static Job bare(Model model) {
        return new Job(model, Batch.ONE, Precision.BF16, OptimizerKind.ADAM, BIG, Overheads.NONE);
    }

    private static double activations(Job job, Techniques t) {
        return (double) MemoryPlanner.plan(job, t).device().activations();
    }

    /** Two samples instead of one, so that what does not depend on the layers falls out. */
    private static double perLayer(Model of, AttentionKernel kernel, Techniques t) {
        double two = activations(bare(of.scaled(2, of.hidden())).with(kernel), t);
        return two - activations(bare(of.scaled(1, of.hidden())).with(kernel), t);
    }

    @Test
    void flashKeepsStatisticsInPlaceOfScores() {
        Model gpt = Model.gpt(24, 2048, 16, 51_200, 4096);
        double s = 4096;
        double h = 2048;
        double a = 16;
        assertEquals(
                s * h * (34 + 5 * a * s / h),
                perLayer(gpt, AttentionKernel.MATH, Techniques.PLAIN),
                4);
        assertEquals(
                s * h * 34 + 4 * a * s, perLayer(gpt, AttentionKernel.FLASH, Techniques.PLAIN), 4);
    }

    /** The inputs of RMSNorm twice and of the matrices twice, q, k, v, o, and three of the MLP. */
    @Test
    void aLlamaKeepsGroupedKeysAndTheGate() {
        Model llama = Presets.of("llama3-8b");
        double s = llama.sequence();
        double expected = s * 2 * (4 * 4096 + 4096 + 2 * 1024 + 4096 + 3 * 14_336) + 4 * 32 * s;
        assertEquals(expected, perLayer(llama, AttentionKernel.FLASH, Techniques.PLAIN), 4);
        // Without dropout the scores are kept once.
        assertEquals(
                expected - 4 * 32 * s + 2 * 32 * s * s,
                perLayer(llama, AttentionKernel.MATH, Techniques.PLAIN),
                4);
    }

    /** Every form of recomputation kept the scores before: 225 GB in place of less than 80. */
    @Test
    void longSequencesFitWithFlash() {
        Model llama = Presets.of("llama3-8b").with(128_256, 32_768);
        Machine machine = new Machine(8, 80L << 30, 1L << 40, 0, 1);
        Techniques t = Techniques.PLAIN.withStage(3).withActivations(DEVICE, Recomputation.FULL);
        Job job = Job.of(llama, machine);
        assertEquals(AttentionKernel.FLASH, job.kernel());
        assertTrue(MemoryPlanner.plan(job, t).fits());
        Plan math = MemoryPlanner.plan(job.with(AttentionKernel.MATH), t);
        assertFalse(math.fits());
        double scores = 2.0 * 32 * 32_768 * 32_768;
        double flash = (double) MemoryPlanner.plan(job, t).device().temporary();
        // Flash has 4 bytes for each head and token in their place.
        assertEquals(scores - 4 * 32 * 32_768, math.device().temporary() - flash, 2);
    }

    /** Equation 2 of arXiv 2205.05198, which sequence parallelism improves on. */
    @Test
    void tensorParallelismAloneLeavesTenBytesWhole() {
        Model gpt = Model.gpt(24, 2048, 16, 51_200, 1024);
        double s = 1024;
        double h = 2048;
        double t = 4;
        Techniques whole = Techniques.PLAIN.withSplit(new ModelParallel(4, false, 1, 1, 1, 1));
        assertEquals(
                s * h * (10 + 24 / t + 5 * 16 * s / (h * t)),
                perLayer(gpt, AttentionKernel.MATH, whole),
                4);
    }

    @Test
    void contextParallelismDividesTokens() {
        Model llama = Presets.of("llama3-8b");
        Techniques four = Techniques.PLAIN.withSplit(new ModelParallel(1, true, 1, 1, 4, 1));
        for (AttentionKernel kernel : AttentionKernel.values()) {
            assertEquals(
                    perLayer(llama, kernel, Techniques.PLAIN) / 4,
                    perLayer(llama, kernel, four),
                    4);
        }
        Plan plan = MemoryPlanner.plan(bare(llama), four);
        assertEquals(2, plan.compute().batch());
        // The state is sharded over the ranks of a context too.
        Techniques sharded = four.withStage(3);
        assertEquals(
                2.0 * llama.parameters() / 8,
                (double) MemoryPlanner.plan(bare(llama), sharded).device().parameters(),
                1);
        double keys = 2.0 * 2 * 1024 * 8192 / 4;
        assertEquals(
                3 * 32 * 3 * keys,
                plan.traffic().stream()
                        .filter(x -> x.what().startsWith("keys"))
                        .mapToDouble(Traffic::bytes)
                        .sum(),
                2);
    }

    /** p (1 + (p - 1) / (p v)) micro-batches: arXiv 2205.05198, section 4.2.3. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void interleavedPipelinesKeepMore(int chunks) {
        Job job =
                new Job(
                        Model.gpt(16, 1024, 8, 51_200, 1024),
                        new Batch(1, 64),
                        Precision.BF16,
                        OptimizerKind.ADAM,
                        BIG,
                        Overheads.NONE);
        double one = 1024.0 * 1024 * (34 + 5 * 8) * 4;
        double held = chunks == 1 ? 4 : 4 * (1 + 3.0 / (4 * chunks));
        double mask = 1024.0 * 1024 * held;
        assertEquals(
                one * held + mask,
                activations(
                        job,
                        Techniques.PLAIN.withSplit(new ModelParallel(1, true, 4, chunks, 1, 1))),
                8);
    }

    @Test
    void expertsAreSharedOut() {
        Model mixtral = Presets.of("mixtral-8x7b");
        double routed = 32.0 * 8 * 3 * 4096 * 14_336;
        double rest = mixtral.parameters() - routed;
        Techniques four = Techniques.PLAIN.withSplit(new ModelParallel(1, true, 1, 1, 1, 4));
        Plan plan = MemoryPlanner.plan(bare(mixtral), four);
        assertEquals(2 * (rest + routed / 4), (double) plan.device().parameters(), 1);
        // Sharded over all, it does not matter who had which expert.
        assertEquals(
                2.0 * mixtral.parameters() / 8,
                (double) MemoryPlanner.plan(bare(mixtral), four.withStage(3)).device().parameters(),
                1);
        // There and back, forward and backward, three quarters to others, two experts each.
        double tokens = 32_768.0 * 4096 * 2;
        assertEquals(
                4 * 32 * 0.75 * 2 * tokens,
                plan.traffic().stream()
                        .filter(x -> x.kind() == Traffic.Kind.ALL_TO_ALL)
                        .mapToDouble(Traffic::bytes)
                        .sum(),
                2);
    }

    /** Two operations for each parameter that multiplies, three passes; and the attention. */
    @Test
    void computeCountsActiveExperts() {
        Model mixtral = Presets.of("mixtral-8x7b");
        double s = 32_768;
        double layer = 2 * 4096.0 * (4096 + 1024) + 8 * 4096 + 2 * 3 * 4096.0 * 14_336;
        double forward = 32 * (2 * layer + 4 * s * 4096) + 2.0 * 4096 * 32_000;
        assertEquals(
                3 * s * forward,
                Compute.of(mixtral, 1, Recomputation.NONE).flops(),
                1e-9 * 3 * s * forward);
    }

    /** Bytes of each parameter on the device, and with the optimizer on the host. */
    @ParameterizedTest
    @CsvSource({"jccl, 16, 16", "deepspeed, 16, 20", "fsdp, 16, 16", "megatron, 18, 18"})
    void bytesBySystem(String name, int device, int offloaded) {
        Job job = bare(Presets.of("llama3-8b")).with(TrainingSystem.of(name));
        assertEquals(device, job.stateBytes(false));
        assertEquals(offloaded, job.stateBytes(true));
        Techniques sharded = Techniques.PLAIN.withStage(3);
        assertEquals(device, MemoryPlanner.plan(job, sharded).stateBytesPerParameter(), 1e-6);
        Plan off = MemoryPlanner.plan(job, sharded.withState(PINNED, PINNED, PINNED));
        assertEquals(offloaded, off.stateBytesPerParameter(), 1e-6);
    }

    private static void refused(Supplier<?> what, String... parts) {
        String message =
                String.valueOf(
                        assertThrows(IllegalArgumentException.class, what::get).getMessage());
        for (String part : parts) {
            assertTrue(message.contains(part), message);
        }
    }

    @Test
    void badShapesAreRefusedByName() {
        Model mixtral = Presets.of("mixtral-8x7b");
        refused(() -> Model.llama(1, 128, 8, 3, 256, 100, 10), "3 key and value heads", "8 query");
        refused(
                () -> new Experts(4, 5, new FeedForward(8, true, false), 0, 0, false),
                "experts of a token",
                "is 5");
        refused(() -> AttentionKernel.of("fast"), "'fast'", "math, flash or flash3");
        refused(() -> TrainingSystem.of("colossal"), "'colossal'", "jccl, deepspeed");
        refused(() -> new ModelParallel(1, true, 1, 2, 1, 1), "2 chunks", "without a pipeline");
        refused(() -> plan(mixtral, new ModelParallel(1, true, 1, 1, 1, 3)), "3", "8 experts");
        refused(() -> plan(mixtral, new ModelParallel(4, true, 1, 1, 1, 4)), "4", "2 ranks");
        refused(
                () -> plan(Presets.of("gpt2-124m"), new ModelParallel(1, true, 1, 1, 1, 2)),
                "without experts");
        refused(() -> plan(mixtral, new ModelParallel(1, true, 8, 8, 1, 1)), "8 chunks", "32");
    }

    private static Plan plan(Model model, ModelParallel split) {
        return MemoryPlanner.plan(bare(model), Techniques.PLAIN.withSplit(split));
    }
}
