package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.kernel.LargestSelection;
import io.jccl.kernel.ThinColumns;
import java.lang.foreign.MemorySegment;

/** The loops of {@code io.jccl.kernel}, on the thread of the stream, with a copy of a matrix. */
final class HostCompression implements GradientCompression {
    @Override
    public void selectLargest(Buffer x, Buffer selection, Buffer scratch, Stream stream) {
        MemorySegment from = x.asSegment();
        MemorySegment to = selection.asSegment();
        int count = (int) x.count();
        int k = (int) (selection.count() / 2);
        HostTask.enqueue(stream, () -> new LargestSelection().select(from, null, count, k, to));
    }

    @Override
    public void addSelection(Buffer selection, Buffer target, Stream stream) {
        MemorySegment from = selection.asSegment();
        MemorySegment to = target.asSegment();
        int k = (int) (selection.count() / 2);
        long count = target.count();
        HostTask.enqueue(stream, () -> LargestSelection.add(from, 0, k, to, count));
    }

    /** What is done to a matrix. */
    private interface Work {
        void run(float[] elements, ThinMatrices.Shape shape);
    }

    private static void each(ThinMatrices matrices, Stream stream, Work work) {
        MemorySegment all = matrices.elements().asSegment();
        HostTask.enqueue(
                stream,
                () -> {
                    for (ThinMatrices.Shape s : matrices.shapes()) {
                        float[] copy = new float[s.count()];
                        long at = s.at() * Float.BYTES;
                        MemorySegment.copy(all, JAVA_FLOAT_UNALIGNED, at, copy, 0, copy.length);
                        work.run(copy, s);
                        MemorySegment.copy(copy, 0, all, JAVA_FLOAT_UNALIGNED, at, copy.length);
                    }
                });
    }

    @Override
    public void normalize(ThinMatrices matrices, Stream stream) {
        each(matrices, stream, (a, s) -> ThinColumns.normalize(a, s.length(), s.columns()));
    }

    @Override
    public void orthonormalize(ThinMatrices matrices, Stream stream) {
        each(matrices, stream, (a, s) -> ThinColumns.orthonormalize(a, s.length(), s.columns()));
    }

    @Override
    public void redrawZeroColumns(ThinMatrices matrices, Buffer drawn, long seed, Stream stream) {
        MemorySegment counter = drawn.asSegment();
        each(
                matrices,
                stream,
                (a, s) -> {
                    for (int k = 0; k < s.columns(); k++) {
                        int at = k * s.length();
                        if (ThinColumns.isZero(a, at, s.length())) {
                            long before = counter.get(JAVA_LONG_UNALIGNED, 0);
                            counter.set(JAVA_LONG_UNALIGNED, 0, before + 1);
                            ThinColumns.draw(a, at, s.length(), seed, s.at() + k, before);
                        }
                    }
                });
    }
}
