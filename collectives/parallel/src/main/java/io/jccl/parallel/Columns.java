package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.gemm.Matrix;
import java.lang.foreign.MemorySegment;

/**
 * Gathers all columns of a matrix in host memory on every rank, each of which holds some: columns
 * are packed, gathered and unpacked.
 */
final class Columns implements Runnable {
    private static final int SIZE = Float.BYTES;

    private final Communicator comm;
    private final Matrix matrix;
    private final Buffer packed;
    private final Buffer mine;
    private final long[] counts;
    private final long[] starts;
    private final Runnable pack = this::pack;

    Columns(Communicator comm, Matrix matrix, Buffer packed) {
        if (matrix.columnStride() != 1 || matrix.dataType() != DataType.FLOAT32) {
            throw new IllegalArgumentException(
                    matrix
                            + " has to hold float elements, row by row, for its columns to be gathered");
        }
        this.comm = comm;
        this.matrix = matrix;
        this.packed = packed;
        counts = new long[comm.size()];
        starts = new long[comm.size()];
        for (int r = 0; r < comm.size(); r++) {
            Part p = Part.of(matrix.columns(), r, comm.size());
            counts[r] = matrix.rows() * p.count();
            starts[r] = matrix.rows() * p.from();
        }
        mine = packed.slice(starts[comm.rank()], counts[comm.rank()]);
    }

    void gather(Stream stream) {
        stream.launchHostFunction(pack);
        comm.allGatherv(mine, packed, counts, starts, stream);
        stream.launchHostFunction(this);
    }

    private void pack() {
        copy(comm.rank(), true);
    }

    /** Unpacks the columns of the other ranks. */
    @Override
    public void run() {
        for (int r = 0; r < counts.length; r++) {
            if (r != comm.rank()) {
                copy(r, false);
            }
        }
    }

    private void copy(int rank, boolean pack) {
        MemorySegment whole = matrix.buffer().asSegment();
        MemorySegment parts = packed.asSegment();
        long rows = matrix.rows();
        long width = counts[rank] / Math.max(1, rows) * SIZE;
        long part = starts[rank] * SIZE;
        long row = (matrix.offset() + starts[rank] / Math.max(1, rows)) * SIZE;
        for (long i = 0; i < rows; i++) {
            if (pack) {
                MemorySegment.copy(whole, row, parts, part, width);
            } else {
                MemorySegment.copy(parts, part, whole, row, width);
            }
            part += width;
            row += matrix.rowStride() * SIZE;
        }
    }
}
