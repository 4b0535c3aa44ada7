package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import io.jccl.engine.Batch;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.Request;

/** Runs the operations of one or several ranks of a thread as one NCCL group. */
final class NcclGroup {
    private NcclGroup() {}

    static void execute(NcclApi nccl, EngineCommunicator[] engines, Batch[] batches, int n) {
        CudaDevice.refuseVirtualThread();
        try {
            for (int i = 0; i < n; i++) {
                ((NcclRank) engines[i]).begin();
            }
            int result = nccl.ncclGroupStart();
            ((NcclRank) engines[0]).failures().settle(result, "ncclGroupStart");
            String operation = "ncclGroupEnd";
            NcclRank guilty = (NcclRank) engines[0];
            boolean begun = false;
            int end;
            // The group is always ended: it belongs to the thread, and would otherwise swallow
            // all later calls.
            try {
                for (int i = 0; i < n && !NcclCodes.isError(result); i++) {
                    NcclRank rank = (NcclRank) engines[i];
                    rank.calls().beginGroup();
                    for (int j = 0; j < batches[i].size() && !NcclCodes.isError(result); j++) {
                        Request r = batches[i].get(j);
                        CudaStream stream = rank.issued().note(r);
                        rank.handle().enqueuing(stream);
                        result = rank.calls().issue(r, rank.comm(), stream);
                        begun = true;
                        if (NcclCodes.isError(result)) {
                            operation = r.op.method();
                            guilty = rank;
                        }
                    }
                }
            } catch (RuntimeException | Error e) {
                // NCCL knows nothing of it, and enqueues what it was given before.
                for (int i = 0; begun && i < n; i++) {
                    ((NcclRank) engines[i]).failures().amidGroup(e);
                }
                throw e;
            } finally {
                end = nccl.ncclGroupEnd();
            }
            if (NcclCodes.isError(result)) {
                guilty.failures().settle(result, operation);
            }
            for (int i = 0; i < n; i++) {
                ((NcclRank) engines[i]).failures().settle(end, "ncclGroupEnd");
            }
        } finally {
            for (int i = 0; i < n; i++) {
                NcclRank rank = (NcclRank) engines[i];
                rank.calls().endGroup();
                rank.handle().leave();
            }
        }
    }
}
