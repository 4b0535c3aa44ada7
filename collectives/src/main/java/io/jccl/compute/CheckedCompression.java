package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.Objects;

/** Checks arguments, the same on every device, and leaves the work to it. */
final class CheckedCompression implements GradientCompression {
    private static final String SELECTION = "the selection";
    private static final String SCRATCH = "the scratch";
    private static final long MOST = 1L << 30;

    private final Device device;
    private final GradientCompression work;

    CheckedCompression(Device device, GradientCompression work) {
        this.device = device;
        this.work = work;
    }

    private void on(Buffer b, String name, DataType type) {
        Arguments.on(device, Objects.requireNonNull(b, name), name);
        Arguments.type(b, name, type);
    }

    /** How many elements a selection has. */
    private long selected(Buffer selection, Buffer vector, String name) {
        on(selection, SELECTION, DataType.INT32);
        on(vector, name, DataType.FLOAT32);
        Arguments.apart(vector, name, selection, SELECTION);
        if (selection.count() % 2 != 0
                || selection.count() / 2 > vector.count()
                || vector.count() > MOST) {
            throw new IllegalArgumentException(
                    ("the selection has %s elements and %s %s, expected twice as many as are"
                                    + " selected, and at most %s")
                            .formatted(selection.count(), name, vector.count(), MOST));
        }
        return selection.count() / 2;
    }

    @Override
    public void selectLargest(Buffer x, Buffer selection, Buffer scratch, Stream stream) {
        long k = selected(selection, x, "x");
        on(scratch, SCRATCH, DataType.INT32);
        if (scratch.count() < SELECTION_SCRATCH) {
            throw new IllegalArgumentException(
                    ("the scratch has %s elements, expected GradientCompression.SELECTION_SCRATCH,"
                                    + " %s")
                            .formatted(scratch.count(), SELECTION_SCRATCH));
        }
        Arguments.apart(x, "x", scratch, SCRATCH);
        Arguments.apart(selection, SELECTION, scratch, SCRATCH);
        if (k > 0) {
            work.selectLargest(x, selection, scratch, stream);
        }
    }

    @Override
    public void addSelection(Buffer selection, Buffer target, Stream stream) {
        if (selected(selection, target, "the target") > 0) {
            work.addSelection(selection, target, stream);
        }
    }

    private boolean any(ThinMatrices matrices) {
        Arguments.on(device, matrices.elements(), "the thin matrices");
        Buffer table = matrices.table();
        if (table != null) {
            Arguments.on(device, table, "the table of the thin matrices");
        }
        return !matrices.shapes().isEmpty();
    }

    @Override
    public void normalize(ThinMatrices matrices, Stream stream) {
        if (any(matrices)) {
            work.normalize(matrices, stream);
        }
    }

    @Override
    public void orthonormalize(ThinMatrices matrices, Stream stream) {
        if (any(matrices)) {
            work.orthonormalize(matrices, stream);
        }
    }

    @Override
    public void redrawZeroColumns(ThinMatrices matrices, Buffer drawn, long seed, Stream stream) {
        on(drawn, "the number of columns drawn", DataType.INT64);
        Arguments.atLeastOne("count of what holds the number drawn", (int) drawn.count());
        if (any(matrices)) {
            work.redrawZeroColumns(matrices, drawn, seed, stream);
        }
    }
}
