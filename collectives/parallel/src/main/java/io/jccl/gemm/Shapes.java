package io.jccl.gemm;

import io.jccl.device.DataType;
import io.jccl.device.Device;

/** Checks of the matrices of a product, for any device. */
final class Shapes {
    private Shapes() {}

    static void check(Matrix a, Matrix b, Matrix c) {
        if (a.columns() != b.rows() || a.rows() != c.rows() || b.columns() != c.columns()) {
            throw new IllegalArgumentException(
                    String.format(
                            "a is %s x %s, b %s x %s, c %s x %s; expected m x k, k x n and m x n",
                            a.rows(), a.columns(), b.rows(), b.columns(), c.rows(), c.columns()));
        }
        factor(a, "a");
        factor(b, "b");
        if (c.dataType() != DataType.FLOAT32) {
            throw new IllegalArgumentException(
                    "c holds " + c.dataType().label() + ", expected float: sums are float32");
        }
        if (overlap(a, c) || overlap(b, c)) {
            throw new IllegalArgumentException(
                    "c shares memory with "
                            + (overlap(a, c) ? "a" : "b")
                            + ", which is still read when c is written; use a separate buffer");
        }
    }

    private static void factor(Matrix x, String name) {
        boolean half =
                x.dataType() == DataType.FLOAT16 && x.buffer().device().kind() == Device.Kind.CUDA;
        if (!half && !HostMatmul.isFactor(x.dataType())) {
            throw new IllegalArgumentException(
                    "%s holds %s, expected float or bfloat16, or half on a GPU; convert it first"
                            .formatted(name, x.dataType().label()));
        }
    }

    /**
     * Whether the matrices share elements: exact if their rows are equally far apart, as in parts
     * of one matrix, or both are contiguous.
     */
    private static boolean overlap(Matrix x, Matrix c) {
        if (x.buffer().device() != c.buffer().device() || isEmpty(x) || isEmpty(c)) {
            return false;
        }
        long from = start(x);
        long at = start(c);
        if (from >= end(c) || at >= end(x) || !sameMemory(x, c)) {
            return false;
        }
        int size = c.dataType().size();
        long pitch = pitch(c);
        boolean unlike =
                pitch(x) != pitch || x.dataType() != c.dataType() || (from - at) % size != 0;
        // A single run may be longer than its pitch, which then says nothing.
        if (unlike || line(x) > pitch || line(c) > pitch) {
            return dense(x) && dense(c);
        }
        // As rectangles in rows of the common pitch, the first of which starts with c.
        long apart = (from - at) / size;
        long row = Math.floorDiv(apart, pitch);
        long column = Math.floorMod(apart, pitch);
        return meets(row, column, x, c) || meets(row + 1, column - pitch, x, c);
    }

    private static boolean meets(long row, long column, Matrix x, Matrix c) {
        return row < lines(c) && row + lines(x) > 0 && column < line(c) && column + line(x) > 0;
    }

    private static boolean isEmpty(Matrix x) {
        return x.rows() == 0 || x.columns() == 0;
    }

    private static long start(Matrix x) {
        return x.buffer().address() + x.offset() * x.dataType().size();
    }

    private static long end(Matrix x) {
        long last = (x.rows() - 1) * x.rowStride() + (x.columns() - 1) * x.columnStride();
        return start(x) + (last + 1) * x.dataType().size();
    }

    /** Distance between the starts of runs, in elements. */
    private static long pitch(Matrix x) {
        return Math.max(1, x.columnStride() == 1 ? x.rowStride() : x.columnStride());
    }

    /** Length of a run in elements. */
    private static long line(Matrix x) {
        return x.columnStride() == 1 ? x.columns() : x.rows();
    }

    private static long lines(Matrix x) {
        return x.columnStride() == 1 ? x.rows() : x.columns();
    }

    /** Addresses of arrays on the Java heap are offsets within the array. */
    private static boolean sameMemory(Matrix x, Matrix c) {
        return x.buffer() == c.buffer() || (isNative(x) && isNative(c));
    }

    private static boolean isNative(Matrix x) {
        return x.buffer().device().kind() != Device.Kind.HOST || x.buffer().asSegment().isNative();
    }

    private static boolean dense(Matrix x) {
        return lines(x) == 1 || pitch(x) == line(x);
    }
}
