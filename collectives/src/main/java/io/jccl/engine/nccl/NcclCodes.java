package io.jccl.engine.nccl;

import io.jccl.NcclCommunicator;
import io.jccl.ReduceOp;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.DataType;

/** NCCL's codes of types, reductions, results and statistics. */
final class NcclCodes {
    private static final int[] TYPES = new int[DataType.values().length];
    private static final int[] OPS = new int[ReduceOp.Kind.values().length];

    /** A reduction that has no fixed code in NCCL: one is created for each factor. */
    static final int MADE = -1;

    static {
        for (DataType t : DataType.values()) {
            TYPES[t.ordinal()] =
                    switch (t) {
                        case INT8 -> nccl_h.ncclInt8();
                        case UINT8 -> nccl_h.ncclUint8();
                        case INT32 -> nccl_h.ncclInt32();
                        case UINT32 -> nccl_h.ncclUint32();
                        case INT64 -> nccl_h.ncclInt64();
                        case UINT64 -> nccl_h.ncclUint64();
                        case FLOAT16 -> nccl_h.ncclFloat16();
                        case BFLOAT16 -> nccl_h.ncclBfloat16();
                        case FLOAT32 -> nccl_h.ncclFloat32();
                        case FLOAT64 -> nccl_h.ncclFloat64();
                        case FLOAT8E4M3 -> nccl_h.ncclFloat8e4m3();
                        case FLOAT8E5M2 -> nccl_h.ncclFloat8e5m2();
                    };
        }
        for (ReduceOp.Kind k : ReduceOp.Kind.values()) {
            OPS[k.ordinal()] =
                    switch (k) {
                        case SUM -> nccl_h.ncclSum();
                        case PROD -> nccl_h.ncclProd();
                        case MIN -> nccl_h.ncclMin();
                        case MAX -> nccl_h.ncclMax();
                        case AVG -> nccl_h.ncclAvg();
                        case PRE_MUL_SUM -> MADE;
                    };
        }
    }

    private NcclCodes() {}

    /** {@code ncclDataType_t}. */
    static int of(DataType type) {
        return TYPES[type.ordinal()];
    }

    /**
     * {@code ncclRedOp_t}, or {@link #MADE}. With one rank the average is the sum, which NCCL
     * copies: it multiplies for an average, and refuses that for float8 (src/device/onerank.cu:79
     * of 2.30.7).
     */
    static int of(ReduceOp op, int ranks) {
        ReduceOp.Kind kind = op.kind();
        return OPS[(kind == ReduceOp.Kind.AVG && ranks == 1 ? ReduceOp.Kind.SUM : kind).ordinal()];
    }

    /** {@code ncclCommMemStat_t}. */
    static int of(NcclCommunicator.MemoryStatistic statistic) {
        return switch (statistic) {
            case SUSPENDABLE -> nccl_h.ncclStatGpuMemSuspend();
            case SUSPENDED -> nccl_h.ncclStatGpuMemSuspended();
            case PERSISTENT -> nccl_h.ncclStatGpuMemPersist();
            case TOTAL -> nccl_h.ncclStatGpuMemTotal();
        };
    }

    /** Whether a result is neither success nor in progress. */
    static boolean isError(int result) {
        return result != nccl_h.ncclSuccess() && result != nccl_h.ncclInProgress();
    }

    /** Whether an error may be caused by another rank, which NCCL does not report. */
    static boolean mayBeAnothers(int result) {
        return result == nccl_h.ncclRemoteError() || result == nccl_h.ncclSystemError();
    }
}
