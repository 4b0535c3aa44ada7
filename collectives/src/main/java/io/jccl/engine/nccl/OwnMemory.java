package io.jccl.engine.nccl;

import io.jccl.NcclCommunicator.MemoryStatistic;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaRuntime;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The device memory that NCCL holds for a communicator. NCCL accepts operations while it is
 * unmapped, and their kernels then end CUDA in the process, so they are refused here.
 */
final class OwnMemory {
    private final NcclRank rank;
    private final NcclApi nccl;
    private final String communicator;
    private volatile boolean suspended;

    OwnMemory(NcclRank rank, NcclApi nccl, String communicator) {
        this.rank = rank;
        this.nccl = nccl;
        this.communicator = communicator;
    }

    void checkPresent() {
        if (suspended) {
            throw new IllegalStateException(
                    "communicator '%s' is suspended on rank %s; call resume() on all ranks first"
                            .formatted(communicator, rank.rank()));
        }
    }

    void suspend() {
        rank.checkUsable();
        rank.call(
                "ncclCommSuspend",
                () -> nccl.ncclCommSuspend(rank.comm(), nccl_h.NCCL_SUSPEND_MEM()));
        suspended = true;
    }

    void resume() {
        rank.checkAlive();
        if (!suspended && nccl.supports("ncclCommResume")) {
            throw new IllegalStateException(
                    "communicator '%s' is not suspended on rank %s"
                            .formatted(communicator, rank.rank()));
        }
        rank.call("ncclCommResume", () -> nccl.ncclCommResume(rank.comm()));
        suspended = false;
    }

    long bytes(MemoryStatistic statistic) {
        MemorySegment slot = CudaRuntime.slot();
        int code = NcclCodes.of(statistic);
        rank.call("ncclCommMemStats", () -> nccl.ncclCommMemStats(rank.comm(), code, slot));
        return slot.get(ValueLayout.JAVA_LONG, 0);
    }
}
