package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import io.jccl.engine.Batch;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.Request;

/** Operations of one or several ranks of a thread as one group of NCCL. */
final class NcclGroup {
    private NcclGroup() {}

    static void execute(NcclApi nccl, EngineCommunicator[] engines, Batch[] batches, int n) {
        CudaDevice.refuseVirtualThread();
        try {
            for (int i = 0; i < n; i++) {
                ((NcclRank) engines[i]).enter();
            }
            int result = nccl.ncclGroupStart();
            ((NcclRank) engines[0]).failures().settle(result, "ncclGroupStart");
            String operation = "ncclGroupEnd";
            NcclRank guilty = (NcclRank) engines[0];
            RuntimeException thrown = null;
            // The group is ended whatever happens: it belongs to the thread, and would swallow
            // everything that comes after it.
            try {
                for (int i = 0; i < n && !NcclCodes.isError(result); i++) {
                    NcclRank rank = (NcclRank) engines[i];
                    rank.calls().beginGroup();
                    for (int j = 0; j < batches[i].size() && !NcclCodes.isError(result); j++) {
                        Request r = batches[i].get(j);
                        CudaStream stream = rank.issued().note(r);
                        rank.handle().enqueuing(stream);
                        result = rank.calls().issue(r, rank.comm(), stream);
                        if (NcclCodes.isError(result)) {
                            operation = r.op.method();
                            guilty = rank;
                        }
                    }
                }
            } catch (RuntimeException e) {
                thrown = e;
            }
            int end = nccl.ncclGroupEnd();
            if (thrown != null) {
                throw thrown;
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
