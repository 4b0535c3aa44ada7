package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.compute.AttentionShape;
import io.jccl.compute.Norm;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testkit.AllocationRounds;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The operations of a model on the host's threads. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class HostOperationsTest {
    private static final int SEQUENCES = 3;
    private static final int CONTEXT = 150;
    private static final int HEADS = 5;
    private static final int SIZE = 20;
    private static final int WIDTH = HEADS * SIZE;
    private static final int ROWS = SEQUENCES * CONTEXT;
    private static final int TOKENS = 67;

    /**
     * All operations one after the other; rows and elements are not multiples of what is shared.
     */
    private static final class Model implements AutoCloseable {
        final Owned owned = new Owned();
        final Random random = new Random(5);
        final Stream stream = Device.host().defaultStream();
        final Operations operations;
        final Operations.Attention attention;
        final Buffer x = floats(ROWS * WIDTH);
        final Buffer y = floats(ROWS * WIDTH);
        final Buffer z = floats(ROWS * WIDTH);
        final Buffer kept = floats(ROWS);
        final Norm norm = new Norm(Norm.Kind.RMS, WIDTH, 1e-6f);
        final Buffer qkv = floats(3 * ROWS * WIDTH);
        final Buffer out = floats(ROWS * WIDTH);
        final Buffer logSums = floats(ROWS * HEADS);
        final Buffer scratch = floats(ROWS * HEADS);
        final Buffer qkvGradient = floats(3 * ROWS * WIDTH);
        final Buffer table = floats(TOKENS * WIDTH);
        final Buffer gradient = floats(TOKENS * WIDTH);
        final Buffer logits = floats(ROWS * TOKENS);
        final Buffer index = owned.add(Device.host().allocate(DataType.INT32, ROWS));
        final Buffer narrow = owned.add(Device.host().allocate(DataType.BFLOAT16, ROWS * WIDTH));
        double loss;

        Model(int threads) {
            operations = owned.add(new Operations(Device.host(), threads, null, ROWS));
            AttentionShape shape = new AttentionShape(SEQUENCES, CONTEXT, HEADS, HEADS, SIZE);
            attention = operations.attention(shape, scratch, owned);
            for (int r = 0; r < ROWS; r++) {
                index.set(r, random.nextInt(TOKENS));
            }
        }

        private Buffer floats(int count) {
            Buffer b = owned.floats(Device.host(), count);
            for (int i = 0; i < count; i++) {
                b.set(i, random.nextGaussian());
            }
            return b;
        }

        void run() {
            Operations o = operations;
            o.lookUp(table, WIDTH, index, x);
            norm();
            o.layers().normBackward(norm, x, null, kept, y, z, null, null, stream);
            o.add(x, y, z);
            o.reluSquared(z, y);
            o.reluSquaredBackward(z, y);
            o.convert(y, narrow);
            o.accumulate(x, 0.25f, narrow, z);
            o.convert(narrow, x);
            o.accumulate(y, 0.25f, x, z);
            norm();
            o.scatterAdd(y, WIDTH, index, gradient);
            attention.forward(qkv, out, logSums);
            attention.backward(qkv, out, logSums, y, qkvGradient);
            o.crossEntropy(logits, TOKENS, index, 0.01f);
            loss = o.takeLoss();
        }

        private void norm() {
            operations.layers().norm(norm, x, null, null, y, kept, stream);
        }

        List<float[]> results() {
            List<float[]> all = new ArrayList<>();
            for (Buffer b : List.of(x, y, z, out, logSums, qkvGradient, gradient, logits)) {
                float[] to = new float[Math.toIntExact(b.count())];
                b.copyTo(to);
                all.add(to);
            }
            return all;
        }

        @Override
        public void close() {
            owned.close();
        }
    }

    @Test
    void theNumberOfThreadsDoesNotMatter() {
        List<float[]> first = List.of();
        double loss = 0;
        for (int threads = 1; threads <= 4; threads++) {
            try (Model m = new Model(threads)) {
                m.run();
                List<float[]> results = m.results();
                if (threads == 1) {
                    first = results;
                    loss = m.loss;
                    assertTrue(loss > 0 && Double.isFinite(loss), () -> "" + m.loss);
                }
                assertEquals(loss, m.loss, threads + " threads");
                for (int i = 0; i < results.size(); i++) {
                    assertArrayEquals(first.get(i), results.get(i), i + ", " + threads);
                }
            }
        }
    }

    /** Rows of one table are added in their order, whoever has the column. */
    @Test
    void rowsAreAddedInTheirOrder() {
        try (Model m = new Model(3)) {
            float[] sums = new float[TOKENS * WIDTH];
            float[] rows = new float[ROWS * WIDTH];
            m.gradient.copyTo(sums);
            m.y.copyTo(rows);
            for (int r = 0; r < ROWS; r++) {
                int to = ((int) m.index.get(r)) * WIDTH;
                for (int c = 0; c < WIDTH; c++) {
                    sums[to + c] += rows[r * WIDTH + c];
                }
            }
            m.operations.scatterAdd(m.y, WIDTH, m.index, m.gradient);
            float[] actual = new float[sums.length];
            m.gradient.copyTo(actual);
            assertArrayEquals(sums, actual);
        }
    }

    /** Also those of a layer, with its products. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void nothingIsAllocated(int threads) {
        try (Model m = new Model(threads);
                TransformerLayer layer =
                        new TransformerLayer(Device.host(), 64, 2, 70, 4, threads)) {
            allocatesNothing(m::run);
            allocatesNothing(() -> {
                layer.forward();
                layer.backward();
            });
        }
    }

    /** Less than one object in two calls. */
    private static void allocatesNothing(Runnable body) {
        AllocationRounds rounds = new AllocationRounds(1, 8);
        rounds.repeat(0, 200, body);
        rounds.assertNone();
    }
}
