package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.kernel.LargestSelection;
import io.jccl.kernel.ThinColumns;
import java.lang.foreign.MemorySegment;
import java.util.List;

/** The loops of {@code io.jccl.kernel}; threads share matrices, copied to scratch memory. */
final class HostCompression implements GradientCompression {
    private final HostCompute compute;

    HostCompression(HostCompute compute) {
        this.compute = compute;
    }

    @Override
    public void selectLargest(Buffer x, Buffer selection, Buffer scratch, Stream stream) {
        compute.task(HostCompression::selectLargest)
                .put(x)
                .put(selection)
                .put(x.count())
                .put(selection.count() / 2)
                .chunks(stream, 1, 1);
    }

    private static void selectLargest(HostTask t, int thread, long begin, long end) {
        LargestSelection s = t.scratch(thread).selection;
        s.select(t.memory(0), null, t.integer(0), t.integer(1), t.memory(1));
    }

    @Override
    public void addSelection(Buffer selection, Buffer target, Stream stream) {
        compute.task(HostCompression::addSelection)
                .put(selection)
                .put(target)
                .put(selection.count() / 2)
                .put(target.count())
                .alone(stream);
    }

    private static void addSelection(HostTask t, int thread, long begin, long end) {
        LargestSelection.add(t.memory(0), 0, t.integer(0), t.memory(1), t.number(1));
    }

    private HostTask thin(HostTask.Body body, ThinMatrices matrices) {
        return compute.task(body).put(matrices.elements()).of(matrices);
    }

    private static List<ThinMatrices.Shape> shapes(HostTask t) {
        return ((ThinMatrices) t.description()).shapes();
    }

    private static float[] load(HostTask t, int thread, ThinMatrices.Shape s) {
        float[] copy = t.scratch(thread).piece(0, s.count());
        t.load(0, s.at(), copy, s.count());
        return copy;
    }

    @Override
    public void normalize(ThinMatrices matrices, Stream stream) {
        thin(HostCompression::normalize, matrices).chunks(stream, matrices.shapes().size(), 1);
    }

    private static void normalize(HostTask t, int thread, long begin, long end) {
        for (long i = begin; i < end; i++) {
            ThinMatrices.Shape s = shapes(t).get((int) i);
            float[] a = load(t, thread, s);
            ThinColumns.normalize(a, s.length(), s.columns());
            t.store(a, 0, s.at(), s.count());
        }
    }

    @Override
    public void orthonormalize(ThinMatrices matrices, Stream stream) {
        thin(HostCompression::orthonormalize, matrices).chunks(stream, matrices.shapes().size(), 1);
    }

    private static void orthonormalize(HostTask t, int thread, long begin, long end) {
        for (long i = begin; i < end; i++) {
            ThinMatrices.Shape s = shapes(t).get((int) i);
            float[] a = load(t, thread, s);
            ThinColumns.orthonormalize(a, s.length(), s.columns());
            t.store(a, 0, s.at(), s.count());
        }
    }

    /** One thread draws all, in order. */
    @Override
    public void redrawZeroColumns(ThinMatrices matrices, Buffer drawn, long seed, Stream stream) {
        thin(HostCompression::redrawZeroColumns, matrices)
                .put(drawn)
                .put(seed)
                .chunks(stream, 1, 1);
    }

    private static void redrawZeroColumns(HostTask t, int thread, long begin, long end) {
        MemorySegment counter = t.memory(1);
        for (int i = 0; i < shapes(t).size(); i++) {
            ThinMatrices.Shape s = shapes(t).get(i);
            float[] a = load(t, thread, s);
            for (int k = 0; k < s.columns(); k++) {
                int at = k * s.length();
                if (ThinColumns.isZero(a, at, s.length())) {
                    long before = counter.get(JAVA_LONG_UNALIGNED, 0);
                    counter.set(JAVA_LONG_UNALIGNED, 0, before + 1);
                    ThinColumns.draw(a, at, s.length(), t.number(0), s.at() + k, before);
                }
            }
            t.store(a, 0, s.at(), s.count());
        }
    }
}
