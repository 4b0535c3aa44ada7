package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.DataType;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Batch;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Overheads;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.Presets;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.memplan.TrainingSystem;
import io.jccl.offload.optim.Adam;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class ZeroMemoryTest {
    /** Multiples of 64 bytes for each rank, so that blocks of a pool are no larger than asked. */
    private static final List<ShardedLayer> LAYERS =
            List.of(
                    ShardedLayer.of("a", 4 * 64),
                    ShardedLayer.of("b", 4 * 640),
                    ShardedLayer.of("c", 4 * 128));

    private static final long ALL = 4 * (64 + 640 + 128);
    private static final long LARGEST = 4 * 640;

    private static void train(ZeroOptimizer zero) {
        zero.initialize((layer, tensor, values) -> values.set(0, 1));
        for (int i = 0; i < LAYERS.size(); i++) {
            zero.gather(i);
            zero.release(i);
        }
        for (int i = LAYERS.size() - 1; i >= 0; i--) {
            zero.gather(i);
            zero.gradients(i).set(0, 1);
            zero.release(i);
            zero.reduce(i);
        }
        zero.step(0.1);
    }

    /** (2 + 2 + 12) P, (2 + 2 + 12/N) P, (2 + 14/N) P and 16/N P: arXiv 1910.02054, figure 1. */
    @ParameterizedTest
    @CsvSource({"0, 1", "0, 2", "0, 4", "1, 1", "1, 2", "1, 4", "2, 2", "2, 4", "3, 2", "3, 4"})
    void holdsWhatThePaperSays(int stage, int ranks) {
        long n = ranks;
        long expected =
                switch (stage) {
                    case 0 -> 16 * ALL;
                    case 1 -> 4 * ALL + 12 * ALL / n;
                    case 2 -> 2 * ALL + 14 * ALL / n;
                    default -> 16 * ALL / n;
                };
        var plan =
                MemoryPlanner.plan(
                        new Job(
                                Presets.of("gpt3-6.7b").withParameters(1_000_000_000),
                                Batch.ONE,
                                Precision.BF16,
                                OptimizerKind.ADAM,
                                new Machine(ranks, 1L << 40, 0, 0, 1),
                                Overheads.NONE),
                        Techniques.PLAIN.withStage(stage));
        double planned =
                (plan.device().parameters() + plan.device().gradients() + plan.device().optimizer())
                        / 1e9;
        ZeroOptions options =
                ZeroOptions.stage(stage).withTypes(DataType.BFLOAT16, DataType.BFLOAT16);
        Communicator.runLocal(
                ranks,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            comm,
                                            LAYERS,
                                            Adam.defaults(),
                                            options,
                                            Demo.noScale(),
                                            memory.tiers)) {
                        Usage u = zero.usage(Tier.DEVICE);
                        assertEquals(expected, u.modelState());
                        assertEquals(planned, (double) u.modelState() / ALL, 1e-6);
                        // Two slots of gradients from stage 2 on, two windows at stage 3.
                        long buffers = (stage >= 2 ? 4L : 0) + (stage == 3 ? 4 : 0);
                        assertEquals(buffers * LARGEST, u.buffers());
                        assertEquals(0, zero.usage(Tier.PINNED).total());
                        assertEquals(0, zero.usage(Tier.NVME).total());
                        assertEquals(u.total(), memory.budgets.used(Tier.DEVICE));
                        train(zero);
                        assertEquals(u.total(), memory.budgets.peak(Tier.DEVICE));
                        // One layer in float32 while parameters were set.
                        assertTrue(memory.budgets.peak(Tier.PINNED) <= 4 * LARGEST);
                    }
                });
    }

    /** What the plan has for an offloaded optimizer of this library, to the byte. */
    @ParameterizedTest
    @CsvSource({"BFLOAT16, 16", "FLOAT32, 18"})
    void offloadedItHoldsWhatThePlanSays(DataType gradients, int bytes) {
        Job job =
                new Job(
                        Presets.of("gpt3-6.7b").withParameters(1_000_000_000),
                        Batch.ONE,
                        Precision.BF16,
                        OptimizerKind.ADAM,
                        new Machine(2, 1L << 40, 1L << 45, 0, 1),
                        Overheads.NONE);
        TrainingSystem system = TrainingSystem.JCCL.withGradient(gradients.size());
        Tier host = Tier.PINNED;
        var plan =
                MemoryPlanner.plan(
                        job.with(system),
                        Techniques.PLAIN.withStage(3).withState(host, host, host));
        double planned =
                (plan.host().parameters() + plan.host().gradients() + plan.host().optimizer())
                        / 2e9;
        assertEquals(bytes / 2.0, planned);
        ZeroOptions options =
                ZeroOptions.stage(3)
                        .withTypes(DataType.BFLOAT16, gradients)
                        .withTiers(host, host, host);
        Communicator.runLocal(
                2,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            comm,
                                            LAYERS,
                                            Adam.defaults(),
                                            options,
                                            Demo.noScale(),
                                            memory.tiers)) {
                        assertEquals(planned, (double) zero.usage(host).modelState() / ALL);
                        assertEquals(0, zero.usage(Tier.DEVICE).modelState());
                        train(zero);
                    }
                });
    }

    @ParameterizedTest
    @CsvSource({"0, 3", "1, 3", "2, 3", "3, 3", "3, 4"})
    void theOtherTiersHoldTheRest(int stage, int ranks) {
        long block = 0;
        for (ShardedLayer l : LAYERS) {
            block += (l.count() + ranks - 1) / ranks;
        }
        long all = block * ranks; // with padding
        long gradients = 4 * (stage >= 2 ? block : all);
        long state = 12 * (stage >= 1 ? block : all);
        long parameters = 2 * (stage == 3 ? block : all);
        ZeroOptions options =
                ZeroOptions.stage(stage)
                        .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
                        .withTiers(Tier.DEVICE, Tier.PINNED, Tier.NVME);
        Communicator.runLocal(
                ranks,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            comm,
                                            LAYERS,
                                            Adam.defaults(),
                                            options,
                                            Demo.noScale(),
                                            memory.tiers)) {
                        assertEquals(parameters, zero.usage(Tier.DEVICE).modelState());
                        assertEquals(gradients, zero.usage(Tier.PINNED).modelState());
                        // Two versions, so that a failed step leaves the one before it.
                        assertEquals(2 * state, zero.usage(Tier.NVME).modelState());
                        assertEquals(2 * state, memory.store.bytes());
                        train(zero);
                    }
                });
    }

    @ParameterizedTest
    @EnumSource(names = {"DEVICE", "PINNED"})
    void aBudgetThatIsTooSmallIsNamedAndNothingIsKept(Tier tier) {
        try (Communicator comm = Communicator.local(1).getFirst()) {
            ZeroOptions options = ZeroOptions.stage(3).withTiers(tier, tier, tier);
            long needed;
            try (Demo.Memory memory = new Demo.Memory(Map.of());
                    ZeroOptimizer zero =
                            ZeroOptimizer.create(
                                    comm,
                                    LAYERS,
                                    Adam.defaults(),
                                    options,
                                    Demo.noScale(),
                                    memory.tiers)) {
                needed = zero.usage(tier).total();
            }
            for (long cap : new long[] {0, needed / 3, needed - 64}) {
                try (Demo.Memory memory = new Demo.Memory(Map.of(tier, cap))) {
                    OffloadMemoryException e =
                            assertThrows(
                                    OffloadMemoryException.class,
                                    () ->
                                            ZeroOptimizer.create(
                                                    comm,
                                                    LAYERS,
                                                    Adam.defaults(),
                                                    options,
                                                    Demo.noScale(),
                                                    memory.tiers));
                    assertEquals(tier, e.tier());
                    memory.device.trim();
                    memory.pinned.trim();
                    assertEquals(0, memory.budgets.used(Tier.DEVICE));
                    assertEquals(0, memory.budgets.used(Tier.PINNED));
                }
            }
            try (Demo.Memory memory = new Demo.Memory(Map.of(tier, needed + 4 * LARGEST));
                    ZeroOptimizer zero =
                            ZeroOptimizer.create(
                                    comm,
                                    LAYERS,
                                    Adam.defaults(),
                                    options,
                                    Demo.noScale(),
                                    memory.tiers)) {
                train(zero);
            }
        }
    }

    /** What is asked for while a step goes on can fail, and be asked for again. */
    @org.junit.jupiter.api.Test
    void noRoomToShowParametersLeavesThem() {
        try (Communicator comm = Communicator.local(1).getFirst();
                Demo.Memory memory = new Demo.Memory(Map.of(Tier.PINNED, 4 * LARGEST));
                ZeroOptimizer zero =
                        ZeroOptimizer.create(
                                comm,
                                LAYERS,
                                Adam.defaults(),
                                ZeroOptions.stage(1),
                                Demo.noScale(),
                                memory.tiers)) {
            try (var other = memory.pinned.allocate(DataType.UINT8, 64)) {
                assertEquals(64, other.count());
                assertThrows(OffloadMemoryException.class, () -> train(zero));
            }
            train(zero);
            assertEquals(1, zero.steps());
        }
    }
}
