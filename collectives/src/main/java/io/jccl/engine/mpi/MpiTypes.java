package io.jccl.engine.mpi;

import io.jccl.ReduceOp;
import io.jccl.bindings.MpiApi;
import io.jccl.bindings.internal.MpiReduction;
import io.jccl.device.DataType;
import io.jccl.kernel.Kernel;
import io.jccl.kernel.Reducer;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * MPI's datatypes and operations for JCCL's; created once per process.
 *
 * <p>Narrow floats are sent as unsigned integers of their width. Some operations are JCCL's own,
 * since MPI's do not match JCCL's specification: minimum and maximum of float32 and float64, for
 * which MPI does not specify the results for NaN and -0; the sum of 8-bit integers, which in Open
 * MPI 4.1.4 with AVX saturates instead of wrapping; and minimum and maximum of unsigned integers,
 * which MPICH 4.0.2 compares as signed ones if there are many.
 */
final class MpiTypes {
    private final long[] types = new long[DataType.values().length];

    private final int many = types.length;

    /** Operations by kind and type; narrow floats have none. */
    private final long[] ops = new long[ReduceOp.Kind.values().length * many];

    MpiTypes(MpiApi mpi) {
        for (DataType type : DataType.values()) {
            types[type.ordinal()] =
                    switch (type) {
                        case INT8 -> mpi.MPI_INT8_T();
                        case UINT8, FLOAT8E4M3, FLOAT8E5M2 -> mpi.MPI_UINT8_T();
                        case FLOAT16, BFLOAT16 -> mpi.MPI_UINT16_T();
                        case INT32 -> mpi.MPI_INT32_T();
                        case UINT32 -> mpi.MPI_UINT32_T();
                        case INT64 -> mpi.MPI_INT64_T();
                        case UINT64 -> mpi.MPI_UINT64_T();
                        case FLOAT32 -> mpi.MPI_FLOAT();
                        case FLOAT64 -> mpi.MPI_DOUBLE();
                    };
        }
        for (DataType type : DataType.values()) {
            if (type.isNarrowFloat()) {
                continue;
            }
            boolean compares = type.isInteger() && !type.isUnsigned();
            boolean adds = type.size() > 1;
            set(Kernel.Op.ADD, type, adds ? mpi.MPI_SUM() : create(mpi, type, Kernel.Op.ADD));
            set(Kernel.Op.MUL, type, mpi.MPI_PROD());
            set(Kernel.Op.MIN, type, compares ? mpi.MPI_MIN() : create(mpi, type, Kernel.Op.MIN));
            set(Kernel.Op.MAX, type, compares ? mpi.MPI_MAX() : create(mpi, type, Kernel.Op.MAX));
        }
    }

    private void set(Kernel.Op op, DataType type, long handle) {
        for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
            if (Reducer.combining(kind) == op) {
                ops[kind.ordinal() * many + type.ordinal()] = handle;
            }
        }
    }

    private static long create(MpiApi mpi, DataType type, Kernel.Op op) {
        Kernel kernel = Kernel.of(type, op);
        MemorySegment function =
                MpiReduction.create((memory, a, b, count) ->
                        kernel.combine(memory, a, memory, b, memory, b, count));
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = arena.allocate(Long.BYTES, Long.BYTES);
            mpi.check(mpi.MPI_Op_create(function, 1, handle), "MPI_Op_create");
            return mpi.abi().handle(handle, 0);
        }
    }

    /** The datatype for elements that are moved, or reduced in their own type. */
    long type(DataType type) {
        return types[type.ordinal()];
    }

    /** The operation for elements of a type that is not a narrow float. */
    long op(ReduceOp.Kind kind, DataType type) {
        return ops[kind.ordinal() * many + type.ordinal()];
    }
}
