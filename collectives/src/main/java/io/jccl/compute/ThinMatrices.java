package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Matrices with few columns in one float32 buffer, each column after column: what {@link
 * GradientCompression} works on, all of them in one operation. Made once; on a GPU it holds a table
 * of the shapes there.
 *
 * <p><b>Threads:</b> immutable, but operations on it run one at a time.
 */
public final class ThinMatrices implements AutoCloseable {
    /** Numbers for each matrix in the table. */
    private static final int ENTRY = 3;

    /**
     * The place of a matrix.
     *
     * @param at element of the buffer at which it begins
     * @param length elements of a column, 1 or more
     * @param columns number of columns, 1 or more
     */
    public record Shape(long at, int length, int columns) {
        /** Checks the numbers. */
        public Shape {
            if (at < 0 || length < 1 || columns < 1) {
                throw new IllegalArgumentException(
                        ("a thin matrix of %s columns of %s elements begins at %s, expected 1 or"
                                        + " more of each, and a place of 0 or more")
                                .formatted(columns, length, at));
            }
            Math.multiplyExact(length, columns);
        }

        int count() {
            return length * columns;
        }
    }

    private final Buffer elements;
    private final List<Shape> shapes;

    /** Columns of all matrices. */
    private final int columns;

    /** The numbers of the shapes on a GPU, and a flag for each column. */
    private final @Nullable Buffer table;

    private final @Nullable Buffer zero;

    private ThinMatrices(
            Buffer elements, List<Shape> shapes, @Nullable Buffer table, @Nullable Buffer zero) {
        this.elements = elements;
        this.shapes = shapes;
        this.columns = shapes.stream().mapToInt(Shape::columns).sum();
        this.table = table;
        this.zero = zero;
    }

    /**
     * Describes matrices.
     *
     * @param elements float32; the caller closes it
     * @param shapes matrices that do not overlap
     * @return the matrices; closing it frees the table
     * @throws IllegalArgumentException if a matrix does not lie within the buffer, which is not of
     *     float32 or has too many columns
     * @throws io.jccl.error.JcclException if memory for the table cannot be allocated
     */
    public static ThinMatrices of(Buffer elements, List<Shape> shapes) {
        Arguments.type(elements, "the thin matrices", DataType.FLOAT32);
        List<Shape> copy = List.copyOf(shapes);
        int columns = 0;
        for (Shape s : copy) {
            if (s.at > elements.count() - s.count()) {
                throw new IllegalArgumentException(
                        s + " does not lie within the " + elements.count() + " elements");
            }
            columns = Math.addExact(columns, s.columns);
        }
        Device device = elements.device();
        if (device.kind() == Device.Kind.HOST || copy.isEmpty()) {
            return new ThinMatrices(elements, copy, null, null);
        }
        long[] numbers = new long[ENTRY * copy.size()];
        for (int i = 0; i < copy.size(); i++) {
            Shape s = copy.get(i);
            numbers[ENTRY * i] = s.at;
            numbers[ENTRY * i + 1] = s.length;
            numbers[ENTRY * i + 2] = s.columns;
        }
        Buffer table = device.allocate(DataType.INT64, numbers.length);
        try {
            table.copyFrom(MemorySegment.ofArray(numbers));
            Buffer zero = device.allocate(DataType.INT32, columns);
            return new ThinMatrices(elements, copy, table, zero);
        } catch (RuntimeException e) {
            table.close();
            throw e;
        }
    }

    /**
     * The elements.
     *
     * @return the buffer given to {@link #of}
     */
    public Buffer elements() {
        return elements;
    }

    /**
     * The matrices.
     *
     * @return their shapes, in order
     */
    public List<Shape> shapes() {
        return shapes;
    }

    int columns() {
        return columns;
    }

    @Nullable Buffer table() {
        return table;
    }

    @Nullable Buffer zero() {
        return zero;
    }

    /** Frees the table. Closing twice does nothing. */
    @Override
    public void close() {
        if (table != null && zero != null) {
            zero.close();
            table.close();
        }
    }
}
