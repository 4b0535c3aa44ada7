package io.jccl.train.fit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Tier;
import io.jccl.train.Corpus;
import io.jccl.train.RankMemory;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TrainingTest {
    private static final int HIDDEN = 32;

    @TempDir private Path folder;

    private Settings settings(int ranks, long device, double rate) {
        long host = 4L << 20;
        return new Settings(
                Collections.nCopies(ranks, Device.host()),
                HIDDEN,
                4,
                48,
                4,
                2,
                64,
                rate,
                7,
                device,
                host,
                8 * host,
                folder);
    }

    /**
     * The same model, data and global batch: every set computes plain data parallelism. Float32
     * differs by the order of sums, bfloat16 by its 8 bits of fraction: each of some hundred
     * roundings of 2^-9 moves the loss a little, with either sign.
     */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = 2)
    void allSetsLoseAsPlainDataParallelismDoes(int ranks) {
        Settings s = settings(ranks, 4L << 20, 0.003);
        List<Double> plain = losses(s, TechniqueSet.PLAIN);
        int tokens = Corpus.grammar(7).vocabulary().size();
        assertEquals(Math.log(tokens), plain.getFirst(), 0.25);
        assertTrue(plain.getLast() < plain.getFirst() - 0.2, plain::toString);
        for (TechniqueSet set : TechniqueSet.SETS) {
            List<Double> others = losses(s, set);
            double tolerance = set.others().narrow() ? 0.01 : 1e-4;
            for (int i = 0; i < plain.size(); i++) {
                assertEquals(
                        plain.get(i),
                        others.get(i),
                        tolerance,
                        set.title() + ", step " + (i + 1) + " on " + ranks + " ranks");
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void allSetsLoseAsPlainDataParallelismDoesOnOtherNumbersOfRanks(int ranks) {
        allSetsLoseAsPlainDataParallelismDoes(ranks);
    }

    private static List<Double> losses(Settings s, TechniqueSet set) {
        Attempt a = Attempt.run(s, set, 3, s.steps());
        return assertInstanceOf(Attempt.Trained.class, a).losses();
    }

    /** Recomputing changes no bit. */
    @Tag("exhaustive")
    @Test
    void recomputationGivesTheSameBits() {
        Settings s = settings(2, 4L << 20, 0.003);
        TechniqueSet without =
                TechniqueSet.SETS.stream()
                        .filter(t -> t.name().equals("no-recomputation"))
                        .findAny()
                        .orElseThrow();
        assertEquals(losses(s, TechniqueSet.ALL), losses(s, without));
    }

    @Test
    void aModelThatIsTooLargeNamesTheTier() {
        Settings s = settings(2, 200L << 10, 0.003);
        Attempt a = Attempt.run(s, TechniqueSet.PLAIN, 50, 1);
        Attempt.Refused r = assertInstanceOf(Attempt.Refused.class, a);
        assertEquals(Tier.DEVICE, r.tier());
        assertEquals(50, r.blocks());
        assertTrue(r.asked() > r.free() && r.free() >= 0, r::toString);
        // All was given back: a smaller one trains afterwards.
        assertInstanceOf(
                Attempt.Trained.class,
                Attempt.run(settings(2, 1 << 20, 0.003), TechniqueSet.PLAIN, 1, 1));
    }

    @Test
    void trainingThatDivergesIsAnError() {
        Settings s = settings(2, 4L << 20, 1e30);
        JcclException e =
                assertThrows(JcclException.class, () -> Attempt.run(s, TechniqueSet.PLAIN, 2, 4));
        assertTrue(String.valueOf(e.getMessage()).contains("lower --lr"), e::getMessage);
    }

    @Test
    void memoryThatIsNotGivenBackIsFound() {
        Settings s = settings(1, 1 << 20, 0.003);
        RankMemory memory = new RankMemory(Device.host(), s.limits(), null, 0);
        memory.tiers().device().take(1000);
        IllegalStateException e = assertThrows(IllegalStateException.class, memory::close);
        assertTrue(
                String.valueOf(e.getMessage()).contains("1 blocks were not given back"),
                e::getMessage);
    }

    @Test
    void poolsKnowTheirPeak() {
        try (BufferPool pool =
                BufferPool.device(
                        Device.host(),
                        new Budgets(Map.of(Tier.DEVICE, 1024L)),
                        new PoolOptions(1024, 64))) {
            pool.allocate(DataType.UINT8, 500).close();
            try (Buffer small = pool.allocate(DataType.UINT8, 10)) {
                assertEquals(10, small.count());
                assertEquals(512, pool.peakBytes());
                assertThrows(
                        OffloadMemoryException.class, () -> pool.allocate(DataType.UINT8, 1000));
                assertEquals(512, pool.peakBytes());
            }
        }
    }
}
