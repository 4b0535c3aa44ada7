package io.jccl.compute;

import io.jccl.device.DataType;
import io.jccl.kernel.AttentionLoops;
import io.jccl.kernel.LargestSelection;
import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.Reducer;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** Memory of one of a compute's threads, which grows and is kept. */
final class HostScratch {
    /** Elements of a piece of work that fits the first-level cache: 16 KiB. */
    static final int PIECE = 1 << 12;

    /** Elements of small rows that are loaded at a time: 4 KiB. */
    private static final int BATCH = 1 << 10;

    /** Columns that are summed at a time. */
    static final int COLUMNS = 128;

    private static final int PIECES = 5;

    /** Reductions of two sources. */
    final Reducer reducer = new Reducer(2);

    final LargestSelection selection = new LargestSelection();

    private final float[][] pieces = new float[PIECES][0];
    private int[] indices = {};
    private float[][] classes = {};
    private @Nullable AttentionLoops attention;
    private @Nullable AttentionShape shape;
    private DataType type = DataType.FLOAT32;

    /** Rows of a width to load at a time, at least one, but no more than are left. */
    static int batch(long begin, long end, int width) {
        return (int) Math.min(Math.max(1, BATCH / width), end - begin);
    }

    /** A piece, with at least that many elements and {@link #PIECE}. */
    float[] piece(int number, int count) {
        if (pieces[number].length < count) {
            pieces[number] = new float[Math.max(PIECE, count)];
        }
        return pieces[number];
    }

    /** A piece with a whole buffer, or null if the buffer is absent. */
    float @Nullable [] row(HostTask task, int buffer, int number, int count) {
        if (!task.has(buffer)) {
            return null;
        }
        float[] row = piece(number, count);
        task.load(buffer, 0, row, count);
        return row;
    }

    int[] indices(int count) {
        if (indices.length < count) {
            indices = new int[count];
        }
        return indices;
    }

    /** Sums of {@link #COLUMNS} columns for each class of rows, 0 in those that are used. */
    float[][] classes(int used) {
        if (classes.length == 0) {
            classes = new float[LayerLoops.CLASSES][COLUMNS];
        }
        for (int k = 0; k < used; k++) {
            Arrays.fill(classes[k], 0);
        }
        return classes;
    }

    /** The loops of a shape, the same as long as only the number of sequences changes. */
    AttentionLoops attention(AttentionShape s, DataType elements) {
        AttentionLoops known = attention;
        if (known == null || shape == null || type != elements || !shape.sameSequence(s)) {
            known = new AttentionLoops(s.context(), s.heads(), s.keyHeads(), s.size(), elements);
            attention = known;
            shape = s;
            type = elements;
        }
        return known;
    }
}
