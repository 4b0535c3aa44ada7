package io.jccl.bindings;

import io.jccl.bindings.generated.nccl.ncclUniqueId;
import io.jccl.bindings.generated.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * The functions of NCCL, one to one with nccl.h 2.30.7 in names, order of arguments and meaning;
 * see NCCL's documentation.
 *
 * <p><b>Types.</b> A {@code long} named {@code comm}, {@code stream}, {@code win} or {@code handle}
 * is an opaque handle, 0 for none; one named {@code sendbuff}, {@code recvbuff}, {@code buff} or
 * {@code localbuff} is an address of device memory; {@code count}, {@code sendcount} and {@code
 * recvcount} count elements of {@code datatype}; {@code size} counts bytes. {@code datatype},
 * {@code op}, {@code stat} and {@code residence} are constants of {@code nccl_h}. A {@code
 * MemorySegment} is host memory: parameters named {@code out...} receive a result of the C type in
 * the method's description. {@link MemorySegment#NULL} stands for a null pointer.
 *
 * <p><b>Results</b> are {@code ncclResult_t} and must be checked: {@link #check} throws, {@link
 * #completed} distinguishes success from in-progress.
 *
 * <p><b>Out-slots.</b> Inside a group, and on a non-blocking communicator always, NCCL writes
 * {@code outComm} later, from another thread: its memory must outlive the communicator, and so must
 * that of a configuration's strings.
 *
 * <p><b>Threads:</b> any, one at a time per communicator; group state is per thread, so a group is
 * opened, filled and closed by one platform thread.
 */
public interface NcclApi extends NativeApi {
    // ---- version, errors

    /** Returns the version code, see {@link Version#ofNccl}. {@code outVersion}: int. */
    int ncclGetVersion(MemorySegment outVersion);

    /** Describes a result code. */
    String ncclGetErrorString(int result);

    /** Describes the last error; {@code comm} is 0 for an error without a communicator. */
    @Since("2.13")
    String ncclGetLastError(long comm);

    /** Returns the state of a communicator. {@code outAsyncError}: ncclResult_t. */
    @Since("2.4")
    int ncclCommGetAsyncError(long comm, MemorySegment outAsyncError);

    // ---- communicators

    /** Creates the id of a new communicator. {@code outUniqueId}: 128 bytes. */
    int ncclGetUniqueId(MemorySegment outUniqueId);

    /** Joins a communicator. {@code outComm}: ncclComm_t; {@code commId}: 128 bytes, copied. */
    int ncclCommInitRank(
            MemorySegment outComm,
            int nranks,
            @ByValue(ncclUniqueId.class) MemorySegment commId,
            int rank);

    /** Joins a communicator with a configuration, see {@link NcclConfig}. */
    @Since("2.14")
    int ncclCommInitRankConfig(
            MemorySegment outComm,
            int nranks,
            @ByValue(ncclUniqueId.class) MemorySegment commId,
            int rank,
            MemorySegment config);

    /** Joins a communicator that has several ids, in the same order on all ranks. */
    @Since("2.23")
    int ncclCommInitRankScalable(
            MemorySegment outComm,
            int nranks,
            int myrank,
            int nId,
            MemorySegment commIds,
            MemorySegment config);

    /** Creates one communicator per device of this process. {@code outComms}: ncclComm_t[ndev]. */
    int ncclCommInitAll(MemorySegment outComms, int ndev, MemorySegment devlist);

    /** Flushes a communicator's operations. */
    @Since("2.14")
    int ncclCommFinalize(long comm);

    /** Frees a communicator. */
    int ncclCommDestroy(long comm);

    /** Ends a communicator's operations and frees it. */
    @Since("2.4")
    int ncclCommAbort(long comm);

    /** Stops a communicator's operations and keeps it for split, shrink or destruction. */
    @Since("2.28.7")
    int ncclCommRevoke(long comm, int revokeFlags);

    /** Creates a communicator of the ranks with the same color. {@code outNewcomm}: ncclComm_t. */
    @Since("2.18")
    int ncclCommSplit(
            long comm, int color, int key, MemorySegment outNewcomm, MemorySegment config);

    /** Creates a communicator without some ranks. {@code excludeRanksList}: int[]. */
    @Since("2.27")
    int ncclCommShrink(
            long comm,
            MemorySegment excludeRanksList,
            int excludeRanksCount,
            MemorySegment outNewcomm,
            MemorySegment config,
            int shrinkFlags);

    /** Creates the id by which new ranks join a communicator. */
    @Since("2.29")
    int ncclCommGetUniqueId(long comm, MemorySegment outUniqueId);

    /**
     * Creates a communicator with more ranks; the id by pointer, null for members other than root.
     */
    @Since("2.29")
    int ncclCommGrow(
            long comm,
            int nRanks,
            MemorySegment uniqueId,
            int rank,
            MemorySegment outNewcomm,
            MemorySegment config);

    /** Gets the world size. {@code outCount}: int. */
    int ncclCommCount(long comm, MemorySegment outCount);

    /** Gets the CUDA device. {@code outDevice}: int. */
    int ncclCommCuDevice(long comm, MemorySegment outDevice);

    /** Gets the rank. {@code outRank}: int. */
    int ncclCommUserRank(long comm, MemorySegment outRank);

    /** Frees the resources named by {@code flags} until {@link #ncclCommResume}. */
    @Since("2.29.7")
    int ncclCommSuspend(long comm, int flags);

    /** Restores suspended resources. */
    @Since("2.29.7")
    int ncclCommResume(long comm);

    /** Gets a memory statistic in bytes. {@code outValue}: uint64_t. */
    @Since("2.29.7")
    int ncclCommMemStats(long comm, int stat, MemorySegment outValue);

    // ---- memory

    /** Allocates device memory that NCCL can register. {@code outPtr}: void*. */
    @Since("2.19")
    int ncclMemAlloc(MemorySegment outPtr, long size);

    /** Frees memory of {@link #ncclMemAlloc}. */
    @Since("2.19")
    int ncclMemFree(long ptr);

    /** Registers a buffer. {@code outHandle}: void*. */
    @Since("2.19")
    int ncclCommRegister(long comm, long buff, long size, MemorySegment outHandle);

    /** Deregisters a buffer. */
    @Since("2.19")
    int ncclCommDeregister(long comm, long handle);

    /** Registers a window, together with all ranks. {@code outWin}: ncclWindow_t. */
    @Since("2.27")
    int ncclCommWindowRegister(long comm, long buff, long size, MemorySegment outWin, int winFlags);

    /** Deregisters a window. */
    @Since("2.27")
    int ncclCommWindowDeregister(long comm, long win);

    /** Gets the address at which a window was registered. {@code outUserPtr}: void*. */
    @Since("2.29")
    int ncclWinGetUserPtr(long comm, long win, MemorySegment outUserPtr);

    // ---- reduction operations

    /**
     * Creates an operation that multiplies by a scalar and then sums. {@code outOp}: ncclRedOp_t;
     * {@code scalar}: address of one element, on the host or the device according to {@code
     * residence}.
     */
    @Since("2.11")
    int ncclRedOpCreatePreMulSum(
            MemorySegment outOp, long scalar, int datatype, int residence, long comm);

    /** Destroys an operation of {@link #ncclRedOpCreatePreMulSum}. */
    @Since("2.11")
    int ncclRedOpDestroy(int op, long comm);

    // ---- collectives; each is enqueued on the stream

    /** Reduces to the root. */
    int ncclReduce(
            long sendbuff,
            long recvbuff,
            long count,
            int datatype,
            int op,
            int root,
            long comm,
            long stream);

    /** Broadcasts in place. */
    int ncclBcast(long buff, long count, int datatype, int root, long comm, long stream);

    /** Broadcasts from the root. */
    int ncclBroadcast(
            long sendbuff,
            long recvbuff,
            long count,
            int datatype,
            int root,
            long comm,
            long stream);

    /** Reduces to all ranks. */
    int ncclAllReduce(
            long sendbuff, long recvbuff, long count, int datatype, int op, long comm, long stream);

    /** Reduces, and leaves {@code recvcount} elements on each rank. */
    int ncclReduceScatter(
            long sendbuff,
            long recvbuff,
            long recvcount,
            int datatype,
            int op,
            long comm,
            long stream);

    /** Gathers {@code sendcount} elements of each rank on all. */
    int ncclAllGather(
            long sendbuff, long recvbuff, long sendcount, int datatype, long comm, long stream);

    /** Exchanges {@code count} elements between every two ranks. */
    @Since("2.28")
    int ncclAlltoAll(
            long sendbuff, long recvbuff, long count, int datatype, long comm, long stream);

    /** Gathers {@code count} elements of each rank on the root. */
    @Since("2.28")
    int ncclGather(
            long sendbuff,
            long recvbuff,
            long count,
            int datatype,
            int root,
            long comm,
            long stream);

    /** Scatters {@code count} elements to each rank from the root. */
    @Since("2.28")
    int ncclScatter(
            long sendbuff,
            long recvbuff,
            long count,
            int datatype,
            int root,
            long comm,
            long stream);

    // ---- point to point

    /** Sends to a peer. */
    int ncclSend(long sendbuff, long count, int datatype, int peer, long comm, long stream);

    /** Receives from a peer. */
    int ncclRecv(long recvbuff, long count, int datatype, int peer, long comm, long stream);

    /** Writes into a peer's window, at an offset in bytes, and signals it. */
    @Since("2.29")
    int ncclPutSignal(
            long localbuff,
            long count,
            int datatype,
            int peer,
            long peerWin,
            long peerWinOffset,
            int sigIdx,
            int ctx,
            int flags,
            long comm,
            long stream);

    /** Signals a peer. */
    @Since("2.29")
    int ncclSignal(int peer, int sigIdx, int ctx, int flags, long comm, long stream);

    /** Waits for signals. {@code signalDescs}: ncclWaitSignalDesc_t[nDesc]. */
    @Since("2.29")
    int ncclWaitSignal(int nDesc, MemorySegment signalDescs, long comm, long stream);

    // ---- groups

    /** Opens a group on this thread. */
    int ncclGroupStart();

    /** Closes the group and launches it. */
    int ncclGroupEnd();

    /** Closes the group and only estimates its time, see {@link #newSimInfo}. */
    @Since("2.22")
    int ncclGroupSimulateEnd(MemorySegment simInfo);

    // ---- parameters

    /** Looks up a parameter. {@code outHandle}: ncclParamHandle_t; {@code key}: a C string. */
    @Since("2.30.4")
    int ncclParamBind(MemorySegment outHandle, MemorySegment key);

    /** Reads a parameter. {@code out}: int8_t. */
    @Since("2.30.4")
    int ncclParamGetI8(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: int16_t. */
    @Since("2.30.4")
    int ncclParamGetI16(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: int32_t. */
    @Since("2.30.4")
    int ncclParamGetI32(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: int64_t. */
    @Since("2.30.4")
    int ncclParamGetI64(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: uint8_t. */
    @Since("2.30.4")
    int ncclParamGetU8(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: uint16_t. */
    @Since("2.30.4")
    int ncclParamGetU16(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: uint32_t. */
    @Since("2.30.4")
    int ncclParamGetU32(long handle, MemorySegment out);

    /** Reads a parameter. {@code out}: uint64_t. */
    @Since("2.30.4")
    int ncclParamGetU64(long handle, MemorySegment out);

    /** Reads a parameter that is text. {@code out}: const char*, until this thread's next call. */
    @Since("2.30.4")
    int ncclParamGetStr(long handle, MemorySegment out);

    /** Reads a parameter's bytes. {@code out}: {@code maxLen} bytes; {@code outLen}: int. */
    @Since("2.30.4")
    int ncclParamGet(long handle, MemorySegment out, int maxLen, MemorySegment outLen);

    /** Reads a parameter by its key. {@code outValue}: const char*; {@code outValueLen}: int. */
    @Since("2.30.4")
    int ncclParamGetParameter(MemorySegment key, MemorySegment outValue, MemorySegment outValueLen);

    /** Lists the keys. {@code outTable}: const char**; {@code outTableLen}: int. */
    @Since("2.30.4")
    int ncclParamGetAllParameterKeys(MemorySegment outTable, MemorySegment outTableLen);

    /** Prints all parameters to standard output. */
    @Since("2.30.4")
    void ncclParamDumpAll();

    // ---- additions to the library

    /**
     * Throws unless an operation succeeded.
     *
     * @param result what it returned
     * @param operation its name, such as {@code ncclCommInitAll}
     * @param comm its communicator, or 0
     * @throws NcclException if the result is not {@code ncclSuccess}, with NCCL's last error text;
     *     also if it is {@code ncclInProgress}, which is not success
     */
    default void check(int result, String operation, long comm) {
        if (result != 0) {
            throw NcclException.of(this, result, operation, comm);
        }
    }

    /**
     * Distinguishes a completed operation from one in progress.
     *
     * @param result what it returned
     * @param operation its name
     * @param comm its communicator, or 0
     * @return true for {@code ncclSuccess}, false for {@code ncclInProgress}
     * @throws NcclException for every other result
     */
    default boolean completed(int result, String operation, long comm) {
        if (result == nccl_h.ncclInProgress()) {
            return false;
        }
        check(result, operation, comm);
        return true;
    }

    /**
     * The struct that {@link #ncclGroupSimulateEnd} fills: a {@code ncclSimInfo_t}, initialized as
     * by NCCL_SIM_INFO_INITIALIZER of nccl.h.
     *
     * @param arena the owner of its memory
     * @return the struct, with an estimated time of -1 microseconds
     */
    default MemorySegment newSimInfo(Arena arena) {
        return NcclConfig.simInfo(arena, library().version());
    }
}
