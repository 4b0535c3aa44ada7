package io.jccl.gemm;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.util.Objects;

/**
 * A view of a {@link Buffer} as a row-major matrix: element (i, j) is the buffer's element {@code
 * offset + i * rowStride + j * columnStride}. Submatrices and the transpose are views too; nothing
 * is copied. Create views once and reuse them in every step, since creating one allocates.
 *
 * {@snippet class="snippets.Parallel" region="matmul"}
 *
 * <p><b>Threads:</b> immutable; access to elements follows the rules of the buffer.
 */
public final class Matrix {
    private final Buffer buffer;
    private final long offset;
    private final long rows;
    private final long columns;
    private final long rowStride;
    private final long columnStride;

    private Matrix(
            Buffer buffer,
            long offset,
            long rows,
            long columns,
            long rowStride,
            long columnStride) {
        this.buffer = buffer;
        this.offset = offset;
        this.rows = rows;
        this.columns = columns;
        this.rowStride = rowStride;
        this.columnStride = columnStride;
    }

    /**
     * A whole buffer as a row-major matrix.
     *
     * @param buffer the elements
     * @param rows number of rows, 0 or more
     * @param columns number of columns, 0 or more
     * @return the view
     * @throws IllegalArgumentException if the buffer does not hold rows x columns elements
     */
    public static Matrix of(Buffer buffer, long rows, long columns) {
        checkShape(rows, columns);
        if (Math.multiplyHigh(rows, columns) != 0 || buffer.count() != rows * columns) {
            throw new IllegalArgumentException(
                    ("the buffer holds %s elements, a matrix of %s x %s needs as"
                                    + " many as rows x columns; take a slice of the buffer, or"
                                    + " specify where the rows start: Matrix.of(buffer, offset, rows,"
                                    + " columns, rowStride)")
                            .formatted(buffer.count(), rows, columns));
        }
        return new Matrix(buffer, 0, rows, columns, columns, 1);
    }

    /**
     * A matrix within a buffer, with any distance between rows.
     *
     * @param buffer the elements
     * @param offset index of element (0, 0)
     * @param rows number of rows, 0 or more
     * @param columns number of columns, 0 or more
     * @param rowStride elements between the starts of consecutive rows, at least columns
     * @return the view
     * @throws IllegalArgumentException if rows overlap, or the matrix exceeds the buffer
     */
    public static Matrix of(Buffer buffer, long offset, long rows, long columns, long rowStride) {
        checkShape(rows, columns);
        if (rowStride < columns) {
            throw new IllegalArgumentException(
                    "rowStride is %s, expected at least the %s columns"
                            .formatted(rowStride, columns));
        }
        boolean empty = rows == 0 || columns == 0;
        long room = buffer.count() - offset;
        boolean fits =
                offset >= 0
                        && room >= 0
                        && (empty
                                || (columns <= room
                                        && (rows == 1
                                                || rowStride <= (room - columns) / (rows - 1))));
        if (!fits) {
            throw new IllegalArgumentException(
                    ("%s x %s elements from %s on, with %s from row to row, do not lie within the %s"
                                    + " elements of the buffer")
                            .formatted(rows, columns, offset, rowStride, buffer.count()));
        }
        return new Matrix(buffer, offset, rows, columns, rowStride, 1);
    }

    private static void checkShape(long rows, long columns) {
        if (rows < 0 || columns < 0) {
            throw new IllegalArgumentException(
                    "the matrix is to have %s x %s elements, expected 0 or more of each"
                            .formatted(rows, columns));
        }
    }

    /**
     * The elements from the first to the last, with those between rows.
     *
     * @return a slice of the buffer, which need not be closed
     */
    public Buffer span() {
        return buffer.slice(
                offset,
                rows == 0 || columns == 0
                        ? 0
                        : (rows - 1) * rowStride + (columns - 1) * columnStride + 1);
    }

    /**
     * A matrix of this shape and these strides over other elements.
     *
     * @param elements as many as {@link #span} has, of any type
     * @return the view
     * @throws IllegalArgumentException if their number differs
     */
    public Matrix over(Buffer elements) {
        long count = span().count();
        if (elements.count() != count) {
            throw new IllegalArgumentException(
                    "there are " + elements.count() + " elements, expected " + count);
        }
        return new Matrix(elements, 0, rows, columns, rowStride, columnStride);
    }

    /**
     * The transpose, over the same elements.
     *
     * @return the view
     */
    public Matrix transposed() {
        return new Matrix(buffer, offset, columns, rows, columnStride, rowStride);
    }

    /**
     * A range of rows.
     *
     * @param from index of the first
     * @param count number of rows
     * @return the view
     * @throws IndexOutOfBoundsException if the range exceeds the matrix
     */
    public Matrix rows(long from, long count) {
        Objects.checkFromIndexSize(from, count, rows);
        return new Matrix(
                buffer, offset + from * rowStride, count, columns, rowStride, columnStride);
    }

    /**
     * A range of columns.
     *
     * @param from index of the first
     * @param count number of columns
     * @return the view
     * @throws IndexOutOfBoundsException if the range exceeds the matrix
     */
    public Matrix columns(long from, long count) {
        Objects.checkFromIndexSize(from, count, columns);
        return new Matrix(
                buffer, offset + from * columnStride, rows, count, rowStride, columnStride);
    }

    /**
     * Number of rows.
     *
     * @return 0 or more
     */
    public long rows() {
        return rows;
    }

    /**
     * Number of columns.
     *
     * @return 0 or more
     */
    public long columns() {
        return columns;
    }

    /**
     * The underlying buffer.
     *
     * @return the buffer
     */
    public Buffer buffer() {
        return buffer;
    }

    /**
     * Element type.
     *
     * @return the type of the buffer's elements
     */
    public DataType dataType() {
        return buffer.dataType();
    }

    /**
     * Where the matrix starts.
     *
     * @return index of element (0, 0) in the buffer
     */
    public long offset() {
        return offset;
    }

    /**
     * Distance between consecutive rows.
     *
     * @return number of elements
     */
    public long rowStride() {
        return rowStride;
    }

    /**
     * Distance between consecutive columns.
     *
     * @return number of elements
     */
    public long columnStride() {
        return columnStride;
    }

    /**
     * Reads one element, on the host.
     *
     * @param row index of the row
     * @param column index of the column
     * @return its value
     */
    public double get(long row, long column) {
        return buffer.get(index(row, column));
    }

    /**
     * Sets one element, on the host.
     *
     * @param row index of the row
     * @param column index of the column
     * @param value its new value
     */
    public void set(long row, long column, double value) {
        buffer.set(index(row, column), value);
    }

    private long index(long row, long column) {
        Objects.checkIndex(row, rows);
        Objects.checkIndex(column, columns);
        return offset + row * rowStride + column * columnStride;
    }

    @Override
    public String toString() {
        return "Matrix[" + rows + " x " + columns + " " + dataType().label() + "]";
    }
}
