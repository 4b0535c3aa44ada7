package io.jccl.engine.nccl;

import io.jccl.ReduceOp;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.Version;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.device.cuda.CudaStream;
import io.jccl.engine.Request;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One rank's operations as calls of NCCL. Operations that NCCL lacks, or has only in newer
 * versions, are groups of others.
 *
 * <p><b>Threads:</b> only the one that issues the rank's operations.
 */
final class NcclCalls {
    // Of NCCL's kernel for pre-multiplied sums of one rank.
    private static final long BLOCK_BYTES = 16 << 10;
    private static final long MOST_BLOCKS = 32;

    private final NcclRank rank;
    private final NcclApi nccl;
    private final CudaDevice device;
    private final boolean hasAllToAll;
    private final boolean hasGather;

    /**
     * Whether a pre-multiplied sum of one rank loses elements: src/device/onerank.cu:25 of 2.29.3.
     */
    private final boolean losesRest;

    /** One element on the device, for barriers. */
    private final long token;

    private final MemorySegment opSlot;
    private final Buffer scalar;

    /** Whether a group is open, and copies made for its in-place operations. */
    private boolean grouped;

    private final List<Long> copies = new ArrayList<>();

    /** Copies used by graphs. */
    private final List<CudaBuffer> recorded = new ArrayList<>();

    /** The stream of the last copy; NCCL orders all streams of a group. */
    private long copiedOn;

    // The last pre-multiplied sum, which loops use repeatedly.
    private @Nullable ReduceOp madeOf;
    private @Nullable DataType madeFor;
    private int made = NcclCodes.MADE;

    NcclCalls(NcclRank rank, NcclApi nccl, CudaDevice device, Resources resources) {
        this.rank = rank;
        this.nccl = nccl;
        this.device = device;
        this.hasAllToAll = nccl.supports("ncclAlltoAll");
        this.hasGather = nccl.supports("ncclGather") && nccl.supports("ncclScatter");
        this.losesRest =
                rank.size() == 1 && !nccl.library().version().atLeast(new Version(2, 29, 7));
        this.token = resources.token.address();
        Arena arena = resources.arena;
        this.opSlot = arena.allocate(ValueLayout.JAVA_INT);
        this.scalar = Buffer.wrap(arena.allocate(8, 8), DataType.UINT8);
    }

    /** Starts a group, whose operations may be enqueued only at its end. */
    void beginGroup() {
        grouped = true;
    }

    /** The group has been enqueued or discarded. */
    void endGroup() {
        grouped = false;
        freeCopies();
    }

    /** Passes an operation to NCCL, for a communicator's handle. */
    int issue(Request r, long c, CudaStream stream) {
        long h = stream.handle();
        int type = NcclCodes.of(r.type);
        if (losesRest && r.reduceOp != null && r.reduceOp.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
            return multiply(r, type, c, h);
        }
        return switch (r.op) {
            case BROADCAST ->
                    nccl.ncclBroadcast(
                            at(r.root == rank.rank() ? r.send : r.recv),
                            at(r.recv),
                            r.count,
                            type,
                            r.root,
                            c,
                            h);
            case REDUCE ->
                    nccl.ncclReduce(at(r.send), at(r.recv), r.count, type, op(r, c), r.root, c, h);
            case ALL_REDUCE ->
                    nccl.ncclAllReduce(at(r.send), at(r.recv), r.count, type, op(r, c), c, h);
            case ALL_GATHER -> nccl.ncclAllGather(at(r.send), at(r.recv), r.count, type, c, h);
            case REDUCE_SCATTER ->
                    nccl.ncclReduceScatter(at(r.send), at(r.recv), r.count, type, op(r, c), c, h);
            case ALL_TO_ALL, ALL_TO_ALLV ->
                    r.inPlace ? staged(r, type, c, stream) : exchange(r, at(r.send), type, c, h);
            case GATHER ->
                    hasGather
                            ? nccl.ncclGather(at(r.send), at(r.recv), r.count, type, r.root, c, h)
                            : blocks(r, at(r.send), type, c, h);
            case SCATTER ->
                    hasGather
                            ? nccl.ncclScatter(at(r.send), at(r.recv), r.count, type, r.root, c, h)
                            : blocks(r, at(r.send), type, c, h);
            case GATHERV, SCATTERV, ALL_GATHERV -> blocks(r, at(r.send), type, c, h);
            case REDUCE_SCATTERV -> reduceBlocks(r, type, c, h);
            case BARRIER ->
                    nccl.ncclAllReduce(
                            token, token, 1, NcclCodes.of(DataType.INT32), nccl_h.ncclSum(), c, h);
            case SEND -> nccl.ncclSend(at(r.send), r.count, type, r.root, c, h);
            case RECV -> nccl.ncclRecv(at(r.recv), r.count, type, r.root, c, h);
        };
    }

    /**
     * With one rank, where a pre-multiplied sum is a product by the factor. NCCL's up to 32 blocks
     * of 16 KiB or more omit a remainder that they do not divide, so it is called for the part that
     * they do divide, then for the remainder in one block.
     */
    private int multiply(Request r, int type, long c, long h) {
        long size = r.type.size();
        boolean v = r.op.vector();
        long from = at(r.send) + (v ? r.sendDispls[0] * size : 0);
        long left = (v ? r.sendCounts[0] : r.count) * size;
        long to = at(r.recv);
        int op = op(r, c);
        int result = nccl_h.ncclSuccess();
        for (long unit = MOST_BLOCKS * BLOCK_BYTES; left > 0 && !NcclCodes.isError(result); ) {
            long bytes = left / unit * unit;
            if (bytes > 0) {
                result = nccl.ncclAllReduce(from, to, bytes / size, type, op, c, h);
                from += bytes;
                to += bytes;
                left -= bytes;
            }
            unit = unit > BLOCK_BYTES ? BLOCK_BYTES : size;
        }
        return result;
    }

    private static long at(@Nullable Buffer buffer) {
        return buffer == null ? 0 : buffer.address();
    }

    /** An allToAll or allToAllv. */
    private int exchange(Request r, long send, int type, long c, long h) {
        return hasAllToAll && !r.op.vector()
                ? nccl.ncclAlltoAll(send, at(r.recv), r.count, type, c, h)
                : blocks(r, send, type, c, h);
    }

    /**
     * The same in place: NCCL would read a block after it was overwritten by a received one, so a
     * copy is sent. All of it is in stream order; no thread waits.
     */
    private int staged(Request r, int type, long c, CudaStream stream) {
        long bytes = r.sendBuffer().byteSize();
        long h = stream.handle();
        if (bytes == 0) {
            return exchange(r, at(r.send), type, c, h);
        }
        // The stream may be the null stream, which belongs to the current device. And to allocate
        // beside a capture of another library, which may be one of this stream, would destroy it.
        int previous = device.enter();
        int mode = CudaRuntime.exchangeCaptureMode(cudart_h.cudaStreamCaptureModeRelaxed());
        try {
            return stream.isRecorded()
                    ? recorded(r, bytes, type, c, h)
                    : staged(r, bytes, type, c, h);
        } finally {
            CudaRuntime.exchangeCaptureMode(mode);
            device.exit(previous);
        }
    }

    private int staged(Request r, long bytes, int type, long c, long h) {
        device.keepPool();
        MemorySegment slot = CudaRuntime.slot();
        CudaRuntime.check(CudaRuntime.api().cudaMallocAsync(slot, bytes, h), "cudaMallocAsync");
        long copy = slot.get(ValueLayout.JAVA_LONG, 0);
        copies.add(copy);
        copiedOn = h;
        try {
            copy(r, copy, bytes, h);
            int result = exchange(r, copy, type, c, h);
            if (!grouped) {
                // NCCL may enqueue after it has returned, and the copy must be freed after that.
                rank.failures().settle(result, r.op.method());
            }
            return result;
        } finally {
            if (!grouped) {
                freeCopies();
            }
        }
    }

    /**
     * The same as part of a graph, whose launches use the copy's memory repeatedly. Each operation
     * has its own copy, since operations of a graph may run concurrently; NCCL may read the
     * addresses during the capture, so it is ordinary memory and not an allocation of the graph.
     */
    private int recorded(Request r, long bytes, int type, long c, long h) {
        CudaBuffer copy = CudaBuffer.allocate(device, DataType.UINT8, bytes);
        recorded.add(copy);
        copy(r, copy.address(), bytes, h);
        return exchange(r, copy.address(), type, c, h);
    }

    private static void copy(Request r, long to, long bytes, long h) {
        CudaRuntime.check(
                CudaRuntime.api()
                        .cudaMemcpyAsync(
                                to, at(r.send), bytes, cudart_h.cudaMemcpyDeviceToDevice(), h),
                "cudaMemcpyAsync");
    }

    /**
     * Frees the memory used by graphs with this rank's operations, which can no longer be launched.
     */
    void close() {
        recorded.forEach(CudaBuffer::close);
    }

    /** Frees the copies in stream order, after their use; an error here follows from another. */
    private void freeCopies() {
        if (copies.isEmpty()) {
            return;
        }
        int previous = device.enter();
        try {
            for (int i = copies.size() - 1; i >= 0; i--) {
                CudaRuntime.api().cudaFreeAsync(copies.remove(i), copiedOn);
            }
        } finally {
            device.exit(previous);
        }
    }

    /** An exchange of blocks as a group of sends and receives. */
    private int blocks(Request r, long send, int type, long c, long h) {
        CudaDevice.refuseVirtualThread();
        int size = r.type.size();
        long recv = at(r.recv);
        boolean v = r.op.vector();
        int result = nccl.ncclGroupStart();
        int end;
        // The group is always ended, since it belongs to the thread.
        try {
            for (int i = 0; i < rank.size() && !NcclCodes.isError(result); i++) {
                boolean to = r.op.sends(rank.rank(), r.root) && r.op.receives(i, r.root);
                boolean from = r.op.sends(i, r.root) && r.op.receives(rank.rank(), r.root);
                long sendCount = !to ? 0 : v ? r.sendCounts[i] : r.count;
                long recvCount = !from ? 0 : v ? r.recvCounts[i] : r.count;
                long sendAt =
                        send + size * (v ? r.sendDispls[i] : r.op.manySend() ? i * r.count : 0);
                long recvAt =
                        recv + size * (v ? r.recvDispls[i] : r.op.manyRecv() ? i * r.count : 0);
                if (i == rank.rank() && sendAt == recvAt) {
                    continue;
                }
                if (sendCount > 0) {
                    result = nccl.ncclSend(sendAt, sendCount, type, i, c, h);
                }
                if (recvCount > 0 && !NcclCodes.isError(result)) {
                    result = nccl.ncclRecv(recvAt, recvCount, type, i, c, h);
                }
            }
        } finally {
            end = nccl.ncclGroupEnd();
        }
        return NcclCodes.isError(result) ? result : end;
    }

    /** reduceScatterv: a group of reductions, one to each rank. */
    private int reduceBlocks(Request r, int type, long c, long h) {
        CudaDevice.refuseVirtualThread();
        int size = r.type.size();
        int op = op(r, c);
        int result = nccl.ncclGroupStart();
        int end;
        try {
            for (int i = 0; i < rank.size() && !NcclCodes.isError(result); i++) {
                if (r.sendCounts[i] > 0) {
                    long from = at(r.send) + r.sendDispls[i] * size;
                    result =
                            nccl.ncclReduce(
                                    from,
                                    i == rank.rank() ? at(r.recv) : 0,
                                    r.sendCounts[i],
                                    type,
                                    op,
                                    i,
                                    c,
                                    h);
                }
            }
        } finally {
            end = nccl.ncclGroupEnd();
        }
        return NcclCodes.isError(result) ? result : end;
    }

    /** NCCL's code of a reduction, created for its factor if necessary. */
    private int op(Request r, long c) {
        int code = NcclCodes.of(r.reduceOp, rank.size());
        if (code != NcclCodes.MADE) {
            return code;
        }
        ReduceOp last = madeOf;
        if (last != null && r.reduceOp.equals(last) && r.type == madeFor) {
            return made;
        }
        destroyMade(c);
        try (Buffer one = Buffer.wrap(scalar.asSegment().asSlice(0, r.type.size()), r.type)) {
            if (r.type.isInteger()) {
                one.setLong(0, r.reduceOp.factorBits(r.type));
            } else {
                one.set(0, r.reduceOp.factor());
            }
        }
        rank.failures()
                .settle(
                        nccl.ncclRedOpCreatePreMulSum(
                                opSlot,
                                scalar.address(),
                                NcclCodes.of(r.type),
                                nccl_h.ncclScalarHostImmediate(),
                                c),
                        "ncclRedOpCreatePreMulSum");
        made = opSlot.get(ValueLayout.JAVA_INT, 0);
        madeOf = r.reduceOp;
        madeFor = r.type;
        return made;
    }

    /** Destroys the last created reduction. */
    void destroyMade(long c) {
        if (made != NcclCodes.MADE) {
            nccl.ncclRedOpDestroy(made, c);
            made = NcclCodes.MADE;
            madeOf = null;
        }
    }
}
