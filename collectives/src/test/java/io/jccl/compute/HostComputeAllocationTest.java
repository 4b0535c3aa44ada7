package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testkit.AllocationRounds;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** No operation on the host allocates on the Java heap, on any thread, once it is warm. */
@Isolated("looks at all threads")
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class HostComputeAllocationTest {
    private static final int ROWS = 300;
    private static final int WIDTH = 60;
    private static final int COUNT = ROWS * WIDTH;
    private static final int HEADS = 3;
    private static final int SIZE = 20;
    private static final int K = 2;

    /** All operations one after the other. */
    private static final class Operations implements AutoCloseable {
        final List<Buffer> open = new ArrayList<>();
        final Random random = new Random(7);
        final Compute c;
        final Layers l;
        final Mixture m;
        final GradientCompression g;
        final Stream stream;
        final Buffer x = floats(DataType.FLOAT32, COUNT);
        final Buffer y = floats(DataType.FLOAT32, COUNT);
        final Buffer z = floats(DataType.FLOAT32, COUNT);
        final Buffer wide = floats(DataType.FLOAT64, COUNT);
        final Buffer wider = floats(DataType.FLOAT64, COUNT);
        final Buffer narrow = floats(DataType.BFLOAT16, COUNT);
        final Buffer narrower = floats(DataType.FLOAT16, COUNT);
        final Buffer norm = floats(DataType.FLOAT64, Compute.NORM_COUNT);
        final Buffer index = integers(ROWS);
        final Buffer start = integers(ROWS + 1);
        final Buffer two = floats(DataType.FLOAT32, 2 * COUNT);
        final Buffer twoMore = floats(DataType.FLOAT32, 2 * COUNT);
        final Buffer difference = floats(DataType.FLOAT32, COUNT);
        final Buffer row = floats(DataType.FLOAT32, WIDTH);
        final Buffer otherRow = floats(DataType.FLOAT32, WIDTH);
        final Buffer rowGradient = floats(DataType.FLOAT32, WIDTH);
        final Buffer statistics = floats(DataType.FLOAT32, 2 * ROWS);
        final Buffer each = floats(DataType.FLOAT32, ROWS);
        final Buffer best = floats(DataType.FLOAT32, K * ROWS);
        final Buffer which = integers(K * ROWS);
        final Buffer qkv = floats(DataType.FLOAT32, 3 * COUNT);
        final Buffer qkvGradient = floats(DataType.FLOAT32, 3 * COUNT);
        final Buffer logSums = floats(DataType.FLOAT32, HEADS * ROWS);
        final Buffer scratch = floats(DataType.FLOAT32, HEADS * ROWS);
        final Buffer coefficient = floats(DataType.FLOAT32, 2 * WIDTH);
        final Buffer bias = floats(DataType.FLOAT32, 2);
        final Buffer sums = floats(DataType.FLOAT64, WIDTH + 1);
        final Buffer rowScratch = floats(DataType.FLOAT64, ROWS);
        final Buffer selection = integers(20);
        final Buffer selectionScratch = integers(GradientCompression.SELECTION_SCRATCH);
        final Buffer thinElements = floats(DataType.FLOAT32, 3 * WIDTH);
        final Buffer drawn = allocate(DataType.INT64, 1);
        final ThinMatrices thin =
                ThinMatrices.of(
                        thinElements,
                        List.of(
                                new ThinMatrices.Shape(0, WIDTH, 2),
                                new ThinMatrices.Shape(2 * WIDTH, WIDTH, 1)));
        final Norm layer = new Norm(Norm.Kind.LAYER, WIDTH, 1e-5f);
        final Rotary rotary = new Rotary(HEADS, SIZE, ROWS, WIDTH);
        final Buffer angles = floats(DataType.FLOAT32, ROWS * SIZE);
        final AttentionShape shape = new AttentionShape(2, ROWS / 2, HEADS, HEADS, SIZE);
        final Update adam =
                new Update(Update.Rule.ADAM, 0.01f, 0.9f, 0.1f, 0.98f, 0.02f, 1e-3f, 1, 1e-8f);
        final RandomFactors factors = new RandomFactors(0.1, 1, 0.1, 2, WIDTH, 0);

        Operations(int threads, boolean queued) {
            c = Compute.host(threads);
            l = c.layers();
            m = c.mixture();
            g = c.compression();
            stream = queued ? Device.host().newStream() : Device.host().defaultStream();
            for (int r = 0; r < ROWS; r++) {
                start.set(r, r);
                index.set(r, (r * 7) % ROWS - 1);
            }
            start.set(ROWS, ROWS);
        }

        private Buffer floats(DataType type, int count) {
            Buffer b = allocate(type, count);
            for (int i = 0; i < count; i++) {
                b.set(i, random.nextDouble());
            }
            return b;
        }

        private Buffer integers(int count) {
            return allocate(DataType.INT32, count);
        }

        private Buffer allocate(DataType type, int count) {
            Buffer b = Device.host().allocate(type, count);
            open.add(b);
            return b;
        }

        void elements() {
            c.fill(z, 0.5, stream);
            c.cast(x, narrow, stream);
            c.cast(narrow, narrower, stream);
            c.cast(narrower, y, stream);
            c.cast(y, wide, stream);
            c.add(x, y, z, stream);
            c.scale(z, 0.25, z, stream);
            c.axpy(0.5, wide, wider, stream);
            c.axpy(0.5, x, y, stream);
            c.divide(y, 1.5, y, stream);
            c.divide(wider, 1.5, wider, stream);
            c.sumOfSquares(x, norm, false, stream);
            c.stepControl(norm, 1, 1, stream);
            c.update(adam, x, y, z, narrow, narrower, 0.5, norm, stream);
            c.gatherRows(x, WIDTH, index, y, stream);
            c.scatterRows(x, WIDTH, index, z, stream);
            c.copyColumns(x, WIDTH, 3, two, 2 * WIDTH, 5, 7, stream);
            c.spin(Duration.ZERO, stream);
            // Parameters stay away from 0.
            c.fill(x, 0.5, stream);
        }

        void layers() {
            l.norm(layer, x, row, otherRow, y, statistics, stream);
            l.normBackward(layer, x, row, statistics, y, z, rowGradient, otherRow, stream);
            l.activate(Activation.GELU, x, y, stream);
            l.activateBackward(Activation.GELU, x, y, stream);
            l.swiglu(two, WIDTH, y, stream);
            l.swigluBackward(two, WIDTH, y, twoMore, stream);
            l.rotate(rotary, y, angles, false, stream);
            l.addBias(y, row, stream);
            l.columnSums(y, row, stream);
            l.scatterAddRows(y, WIDTH, index, z, stream);
            l.scatterAddRows(narrow, WIDTH, index, z, stream);
            l.topK(y, WIDTH, K, best, which, stream);
            l.combineRows(x, WIDTH, start, index, each, y, stream);
            l.rowDots(x, WIDTH, start, index, y, each, stream);
            l.crossEntropy(y, WIDTH, index, each, y, 1, stream);
            l.attention(shape, qkv, y, logSums, stream);
            l.attentionBackward(shape, qkv, y, logSums, z, scratch, qkvGradient, stream);
            // Sums stay small.
            c.fill(row, 0.5, stream);
            c.fill(otherRow, 0.5, stream);
            c.fill(z, 0.5, stream);
        }

        void mixture() {
            m.scaleRandomly(factors, x, WIDTH, null, 0, y, stream);
            m.addNormal(0.1, 3, 0, y, stream);
            m.mix(x, WIDTH, coefficient, bias, y, z, difference, each, stream);
            m.scaleByShare(x, WIDTH, each, true, y, stream);
            m.mixBackward(x, WIDTH, coefficient, y, difference, each, z, sums, rowScratch, stream);
            m.addSums(sums, coefficient, bias, stream);
            c.fill(coefficient, 0.5, stream);
            c.fill(z, 0.5, stream);
        }

        void compression() {
            g.selectLargest(x, selection, selectionScratch, stream);
            g.addSelection(selection, x, stream);
            // The columns that are drawn become zero again.
            c.fill(thinElements, 0, stream);
            g.redrawZeroColumns(thin, drawn, 1, stream);
            g.normalize(thin, stream);
            g.orthonormalize(thin, stream);
        }

        void run() {
            elements();
            layers();
            mixture();
            compression();
            stream.synchronize();
        }

        @Override
        public void close() {
            stream.close();
            c.close();
            open.forEach(Buffer::close);
        }
    }

    private static boolean works(Thread thread) {
        return thread.getName().startsWith("jccl-compute")
                || thread.getName().startsWith("jccl-stream-");
    }

    @Test
    void nothingIsAllocated() {
        nothingIsAllocated(2, true);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void nothingIsAllocatedOnTheDefaultStream(int threads) {
        nothingIsAllocated(threads, false);
    }

    /** One object of 16 bytes in all operations, on one of the threads, would fail. */
    private static void nothingIsAllocated(int threads, boolean queued) {
        try (Operations all = new Operations(threads, queued)) {
            AllocationRounds rounds = new AllocationRounds(1, 12, HostComputeAllocationTest::works);
            rounds.repeat(0, 100, all::run);
            rounds.assertNone();
        }
    }
}
