package io.jccl.offload.zero;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.Tier;
import io.jccl.offload.TierMemory;
import io.jccl.offload.Tiers;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import io.jccl.offload.optim.Adafactor;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Lamb;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * No step allocates on the Java heap, on a rank's thread or one that works for it, once it has run
 * for a while.
 */
@Isolated("looks at all threads")
@UsesFakes
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class ZeroAllocationTest {
    private static final int STEPS = 40;

    private static final int RANKS = 2;
    private static final List<ShardedLayer> LAYERS =
            List.of(
                    ShardedLayer.of("a", 300),
                    new ShardedLayer("b", List.of(new ShardedLayer.Tensor("b", 1000, 40))),
                    ShardedLayer.of("c", 64));

    /**
     * On a rank's thread and those of both that work for them. One object of 16 bytes in two steps
     * would fail.
     */
    private static final double MOST = 6;

    @TempDir private Path folder;

    private record Form(
            Optimizer optimizer, int stage, Tier tier, DataType type, DataType accumulator) {}

    /** With copies between tiers, and sums of tensors over ranks; of narrow types. */
    private static List<Form> some() {
        return List.of(
                new Form(
                        Adafactor.defaults(), 3, Tier.PINNED, DataType.BFLOAT16, DataType.FLOAT32));
    }

    private static List<Form> all() {
        List<Form> all = new ArrayList<>();
        for (Optimizer o : List.of(Adam.defaults(), Lamb.defaults(), Adafactor.defaults())) {
            for (int stage = 0; stage <= 3; stage++) {
                for (Tier tier : Tier.values()) {
                    all.add(new Form(o, stage, tier, DataType.FLOAT32, DataType.FLOAT32));
                    all.add(new Form(o, stage, tier, DataType.BFLOAT16, DataType.BFLOAT16));
                    all.add(new Form(o, stage, tier, DataType.BFLOAT16, DataType.FLOAT32));
                    all.add(new Form(o, stage, tier, DataType.FLOAT16, DataType.FLOAT32));
                }
            }
        }
        return all;
    }

    @ParameterizedTest
    @MethodSource("some")
    void aStepAllocatesNothing(Form form) {
        AllocationRounds rounds = rounds();
        ZeroOptions options =
                ZeroOptions.stage(form.stage)
                        .withTypes(form.type, form.accumulator)
                        .withTiers(form.tier, form.tier, form.tier);
        Communicator.runLocal(
                RANKS,
                c -> {
                    Budgets budgets = new Budgets(Map.of());
                    Path of = Files.createDirectory(folder.resolve("rank" + c.rank()));
                    NvmeOptions scratch =
                            NvmeOptions.DEFAULT.withBlockBytes(4096).withScratch(true);
                    try (NvmeStore store = NvmeStore.open(of, budgets, scratch);
                            TierMemory memory = TierMemory.of(Device.host(), budgets, store)) {
                        train(c, form.optimizer, options, memory.tiers(), rounds);
                    }
                });
        rounds.assertNone(form.toString());
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("all")
    void aStepAllocatesNothingInAnyForm(Form form) {
        aStepAllocatesNothing(form);
    }

    @Tag("exhaustive")
    @Test
    void aStepOnGpusWithUpdatesByTheCpuAllocatesNothing() {
        aStepOnGpusAllocatesNothing(Tier.PINNED);
    }

    @Tag("exhaustive")
    @Test
    void aStepOnGpusAllocatesNothing() {
        aStepOnGpusAllocatesNothing(Tier.DEVICE);
    }

    private static void aStepOnGpusAllocatesNothing(Tier state) {
        TestFake.use();
        try {
            AllocationRounds rounds = rounds();
            ZeroOptions options =
                    ZeroOptions.stage(3)
                            .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
                            .withTiers(Tier.DEVICE, Tier.DEVICE, state);
            Communicator.runLocal(
                    IntStream.range(0, RANKS).mapToObj(TestFake::device).toList(),
                    CommunicatorOptions.DEFAULT,
                    c -> {
                        try (Demo.Memory memory = new Demo.Memory(c.device(), Map.of(), null)) {
                            train(c, Adam.defaults(), options, memory.tiers, rounds);
                        }
                    });
            rounds.assertNone(state.toString());
        } finally {
            TestFake.reset();
        }
    }

    private static AllocationRounds rounds() {
        return new AllocationRounds(RANKS, MOST, t -> works(t.getName()));
    }

    /** Streams, copies and the drive; those that look after ranks run with or without steps. */
    private static boolean works(String name) {
        return name.startsWith("jccl-")
                && !name.startsWith("jccl-rank")
                && !name.equals("jccl-flight")
                && !name.equals("jccl-watchdog")
                && !name.equals("jccl-progress");
    }

    private static void train(
            Communicator c,
            Optimizer optimizer,
            ZeroOptions options,
            Tiers tiers,
            AllocationRounds rounds) {
        try (ZeroOptimizer zero =
                ZeroOptimizer.create(c, LAYERS, optimizer, options, LossScale.fixed(1), tiers)) {
            zero.initialize((layer, tensor, values) -> values.set(0, 1));
            rounds.repeat(c.rank(), STEPS, () -> step(zero));
        }
    }

    private static void step(ZeroOptimizer zero) {
        for (int i = 0; i < LAYERS.size(); i++) {
            zero.gather(i);
            zero.release(i);
        }
        for (int i = LAYERS.size() - 1; i >= 0; i--) {
            zero.gather(i);
            zero.gradients(i).zero();
            zero.release(i);
            zero.reduce(i);
        }
        zero.step(0.1);
    }
}
