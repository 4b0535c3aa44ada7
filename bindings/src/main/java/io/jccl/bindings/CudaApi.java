package io.jccl.bindings;

import io.jccl.bindings.generated.cudart.cudaIpcEventHandle_t;
import io.jccl.bindings.generated.cudart.cudaIpcMemHandle_t;
import java.lang.foreign.MemorySegment;

/**
 * The functions of the CUDA runtime that JCCL uses, one to one with cuda_runtime_api.h of CUDA 13.0
 * in names, order of arguments and meaning; see NVIDIA's documentation.
 *
 * <p><b>Types.</b> A {@code long} is a size in bytes, an opaque handle (0: none; as a stream, the
 * default stream), or the address of device memory or of a message on the host. A {@code
 * MemorySegment} is host memory that the call reads or writes, of the C type in the prototype; for
 * a result {@code T* name} it must hold one {@code T}. Enum constants, flags and struct layouts are
 * in {@code io.jccl.bindings.generated.cudart}.
 *
 * <p><b>Results</b> are {@code cudaError_t}; {@link #check} throws for all but success. {@link
 * #cudaStreamQuery} and {@link #cudaEventQuery} return {@code cudaErrorNotReady} while work is
 * pending.
 *
 * <p><b>Threads:</b> any; the current device is per thread, and must be set on each.
 */
public interface CudaApi extends NativeApi {
    // ---- versions, errors

    /** {@code cudaError_t cudaRuntimeGetVersion(int* runtimeVersion)} */
    int cudaRuntimeGetVersion(MemorySegment runtimeVersion);

    /** {@code cudaError_t cudaDriverGetVersion(int* driverVersion)} */
    int cudaDriverGetVersion(MemorySegment driverVersion);

    /** {@code const char* cudaGetErrorName(cudaError_t error)} */
    String cudaGetErrorName(int error);

    /** {@code const char* cudaGetErrorString(cudaError_t error)} */
    String cudaGetErrorString(int error);

    /** {@code cudaError_t cudaGetLastError()} */
    int cudaGetLastError();

    /** {@code cudaError_t cudaPeekAtLastError()} */
    int cudaPeekAtLastError();

    // ---- devices

    /** {@code cudaError_t cudaGetDeviceCount(int* count)} */
    int cudaGetDeviceCount(MemorySegment count);

    /** {@code cudaError_t cudaGetDevice(int* device)} */
    int cudaGetDevice(MemorySegment device);

    /** {@code cudaError_t cudaSetDevice(int device)} */
    int cudaSetDevice(int device);

    /**
     * {@code cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)}
     */
    int cudaInitDevice(int device, int deviceFlags, int flags);

    /** {@code cudaError_t cudaSetDeviceFlags(unsigned int flags)} */
    int cudaSetDeviceFlags(int flags);

    /** {@code cudaError_t cudaGetDeviceFlags(unsigned int* flags)} */
    int cudaGetDeviceFlags(MemorySegment flags);

    /**
     * {@code cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device)}
     */
    int cudaDeviceGetAttribute(MemorySegment value, int attr, int device);

    /** {@code cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device)} */
    int cudaGetDeviceProperties(MemorySegment prop, int device);

    /** {@code cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device)} */
    int cudaDeviceGetPCIBusId(MemorySegment pciBusId, int len, int device);

    /** {@code cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* pciBusId)} */
    int cudaDeviceGetByPCIBusId(MemorySegment device, MemorySegment pciBusId);

    /** {@code cudaError_t cudaDeviceGetLimit(size_t* pValue, enum cudaLimit limit)} */
    int cudaDeviceGetLimit(MemorySegment pValue, int limit);

    /** {@code cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)} */
    int cudaDeviceSetLimit(int limit, long value);

    /**
     * {@code cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int*
     * greatestPriority)}
     */
    int cudaDeviceGetStreamPriorityRange(
            MemorySegment leastPriority, MemorySegment greatestPriority);

    /** {@code cudaError_t cudaDeviceSynchronize()} */
    int cudaDeviceSynchronize();

    /** {@code cudaError_t cudaDeviceReset()} */
    int cudaDeviceReset();

    // ---- peers

    /**
     * {@code cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice)}
     */
    int cudaDeviceCanAccessPeer(MemorySegment canAccessPeer, int device, int peerDevice);

    /** {@code cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)} */
    int cudaDeviceEnablePeerAccess(int peerDevice, int flags);

    /** {@code cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)} */
    int cudaDeviceDisablePeerAccess(int peerDevice);

    /**
     * {@code cudaError_t cudaDeviceGetP2PAttribute(int* value, enum cudaDeviceP2PAttr attr, int
     * srcDevice, int dstDevice)}
     */
    int cudaDeviceGetP2PAttribute(MemorySegment value, int attr, int srcDevice, int dstDevice);

    // ---- memory

    /** {@code cudaError_t cudaMalloc(void** devPtr, size_t size)} */
    int cudaMalloc(MemorySegment devPtr, long size);

    /** {@code cudaError_t cudaFree(void* devPtr)} */
    int cudaFree(long devPtr);

    /** {@code cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int flags)} */
    int cudaMallocManaged(MemorySegment devPtr, long size, int flags);

    /** {@code cudaError_t cudaMemGetInfo(size_t* free, size_t* total)} */
    int cudaMemGetInfo(MemorySegment free, MemorySegment total);

    /**
     * {@code cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const
     * void* ptr)}
     */
    int cudaPointerGetAttributes(MemorySegment attributes, long ptr);

    /**
     * {@code cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, enum cudaMemcpyKind
     * kind)}
     */
    int cudaMemcpy(long dst, long src, long count, int kind);

    /**
     * {@code cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum
     * cudaMemcpyKind kind, cudaStream_t stream)}
     */
    int cudaMemcpyAsync(long dst, long src, long count, int kind, long stream);

    /**
     * {@code cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice,
     * size_t count)}
     */
    int cudaMemcpyPeer(long dst, int dstDevice, long src, int srcDevice, long count);

    /**
     * {@code cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int
     * srcDevice, size_t count, cudaStream_t stream)}
     */
    int cudaMemcpyPeerAsync(
            long dst, int dstDevice, long src, int srcDevice, long count, long stream);

    /**
     * {@code cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t
     * spitch, size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)}
     */
    int cudaMemcpy2DAsync(
            long dst,
            long dpitch,
            long src,
            long spitch,
            long width,
            long height,
            int kind,
            long stream);

    /** {@code cudaError_t cudaMemset(void* devPtr, int value, size_t count)} */
    int cudaMemset(long devPtr, int value, long count);

    /**
     * {@code cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t
     * stream)}
     */
    int cudaMemsetAsync(long devPtr, int value, long count, long stream);

    // ---- pinned host memory

    /** {@code cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags)} */
    int cudaHostAlloc(MemorySegment pHost, long size, int flags);

    /** {@code cudaError_t cudaMallocHost(void** ptr, size_t size)} */
    int cudaMallocHost(MemorySegment ptr, long size);

    /** {@code cudaError_t cudaFreeHost(void* ptr)} */
    int cudaFreeHost(long ptr);

    /** {@code cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags)} */
    int cudaHostRegister(long ptr, long size, int flags);

    /** {@code cudaError_t cudaHostUnregister(void* ptr)} */
    int cudaHostUnregister(long ptr);

    /**
     * {@code cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags)}
     */
    int cudaHostGetDevicePointer(MemorySegment pDevice, long pHost, int flags);

    /** {@code cudaError_t cudaHostGetFlags(unsigned int* pFlags, void* pHost)} */
    int cudaHostGetFlags(MemorySegment pFlags, long pHost);

    // ---- stream-ordered pools

    /** {@code cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream)} */
    int cudaMallocAsync(MemorySegment devPtr, long size, long hStream);

    /**
     * {@code cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t memPool,
     * cudaStream_t stream)}
     */
    int cudaMallocFromPoolAsync(MemorySegment ptr, long size, long memPool, long stream);

    /** {@code cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream)} */
    int cudaFreeAsync(long devPtr, long hStream);

    /**
     * {@code cudaError_t cudaMemPoolCreate(cudaMemPool_t* memPool, const struct cudaMemPoolProps*
     * poolProps)}
     */
    int cudaMemPoolCreate(MemorySegment memPool, MemorySegment poolProps);

    /** {@code cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool)} */
    int cudaMemPoolDestroy(long memPool);

    /** {@code cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)} */
    int cudaMemPoolTrimTo(long memPool, long minBytesToKeep);

    /**
     * {@code cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
     * void* value)}
     */
    int cudaMemPoolSetAttribute(long memPool, int attr, MemorySegment value);

    /**
     * {@code cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
     * void* value)}
     */
    int cudaMemPoolGetAttribute(long memPool, int attr, MemorySegment value);

    /**
     * {@code cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct
     * cudaMemAccessDesc* descList, size_t count)}
     */
    int cudaMemPoolSetAccess(long memPool, MemorySegment descList, long count);

    /**
     * {@code cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags* flags, cudaMemPool_t
     * memPool, struct cudaMemLocation* location)}
     */
    int cudaMemPoolGetAccess(MemorySegment flags, long memPool, MemorySegment location);

    /**
     * {@code cudaError_t cudaMemPoolExportToShareableHandle(void* shareableHandle, cudaMemPool_t
     * memPool, enum cudaMemAllocationHandleType handleType, unsigned int flags)}
     */
    int cudaMemPoolExportToShareableHandle(
            MemorySegment shareableHandle, long memPool, int handleType, int flags);

    /**
     * {@code cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* memPool, void*
     * shareableHandle, enum cudaMemAllocationHandleType handleType, unsigned int flags)}
     */
    int cudaMemPoolImportFromShareableHandle(
            MemorySegment memPool, MemorySegment shareableHandle, int handleType, int flags);

    /**
     * {@code cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData* exportData,
     * void* ptr)}
     */
    int cudaMemPoolExportPointer(MemorySegment exportData, long ptr);

    /**
     * {@code cudaError_t cudaMemPoolImportPointer(void** ptr, cudaMemPool_t memPool, struct
     * cudaMemPoolPtrExportData* exportData)}
     */
    int cudaMemPoolImportPointer(MemorySegment ptr, long memPool, MemorySegment exportData);

    /** {@code cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device)} */
    int cudaDeviceGetDefaultMemPool(MemorySegment memPool, int device);

    /** {@code cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* memPool, int device)} */
    int cudaDeviceGetMemPool(MemorySegment memPool, int device);

    /** {@code cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)} */
    int cudaDeviceSetMemPool(int device, long memPool);

    // ---- memory and events of other processes

    /** {@code cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* devPtr)} */
    int cudaIpcGetMemHandle(MemorySegment handle, long devPtr);

    /**
     * {@code cudaError_t cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle, unsigned
     * int flags)}
     */
    int cudaIpcOpenMemHandle(
            MemorySegment devPtr,
            @ByValue(cudaIpcMemHandle_t.class) MemorySegment handle,
            int flags);

    /** {@code cudaError_t cudaIpcCloseMemHandle(void* devPtr)} */
    int cudaIpcCloseMemHandle(long devPtr);

    /**
     * {@code cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event)}
     */
    int cudaIpcGetEventHandle(MemorySegment handle, long event);

    /**
     * {@code cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle)}
     */
    int cudaIpcOpenEventHandle(
            MemorySegment event, @ByValue(cudaIpcEventHandle_t.class) MemorySegment handle);

    // ---- streams

    /** {@code cudaError_t cudaStreamCreate(cudaStream_t* pStream)} */
    int cudaStreamCreate(MemorySegment pStream);

    /** {@code cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags)} */
    int cudaStreamCreateWithFlags(MemorySegment pStream, int flags);

    /**
     * {@code cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags,
     * int priority)}
     */
    int cudaStreamCreateWithPriority(MemorySegment pStream, int flags, int priority);

    /** {@code cudaError_t cudaStreamDestroy(cudaStream_t stream)} */
    int cudaStreamDestroy(long stream);

    /** {@code cudaError_t cudaStreamQuery(cudaStream_t stream)} */
    int cudaStreamQuery(long stream);

    /** {@code cudaError_t cudaStreamSynchronize(cudaStream_t stream)} */
    int cudaStreamSynchronize(long stream);

    /**
     * {@code cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int
     * flags)}
     */
    int cudaStreamWaitEvent(long stream, long event, int flags);

    /** {@code cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int* flags)} */
    int cudaStreamGetFlags(long hStream, MemorySegment flags);

    /** {@code cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority)} */
    int cudaStreamGetPriority(long hStream, MemorySegment priority);

    /** {@code cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long* streamId)} */
    int cudaStreamGetId(long hStream, MemorySegment streamId);

    /** {@code cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int* device)} */
    @Since("12.8")
    int cudaStreamGetDevice(long hStream, MemorySegment device);

    /**
     * {@code cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData)}
     */
    int cudaLaunchHostFunc(long stream, MemorySegment fn, long userData);

    // ---- the driver

    /**
     * {@code cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long
     * long flags, enum cudaDriverEntryPointQueryResult* driverStatus)}
     */
    int cudaGetDriverEntryPoint(
            MemorySegment symbol, MemorySegment funcPtr, long flags, MemorySegment driverStatus);

    // ---- events

    /** {@code cudaError_t cudaEventCreate(cudaEvent_t* event)} */
    int cudaEventCreate(MemorySegment event);

    /** {@code cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags)} */
    int cudaEventCreateWithFlags(MemorySegment event, int flags);

    /** {@code cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)} */
    int cudaEventRecord(long event, long stream);

    /**
     * {@code cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned
     * int flags)}
     */
    int cudaEventRecordWithFlags(long event, long stream, int flags);

    /** {@code cudaError_t cudaEventQuery(cudaEvent_t event)} */
    int cudaEventQuery(long event);

    /** {@code cudaError_t cudaEventSynchronize(cudaEvent_t event)} */
    int cudaEventSynchronize(long event);

    /** {@code cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end)} */
    int cudaEventElapsedTime(MemorySegment ms, long start, long end);

    /** {@code cudaError_t cudaEventDestroy(cudaEvent_t event)} */
    int cudaEventDestroy(long event);

    // ---- graphs

    /**
     * {@code cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode
     * mode)}
     */
    int cudaStreamBeginCapture(long stream, int mode);

    /** {@code cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph)} */
    int cudaStreamEndCapture(long stream, MemorySegment pGraph);

    /**
     * {@code cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus*
     * pCaptureStatus)}
     */
    int cudaStreamIsCapturing(long stream, MemorySegment pCaptureStatus);

    /** {@code cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode)} */
    int cudaThreadExchangeStreamCaptureMode(MemorySegment mode);

    /** {@code cudaError_t cudaGraphCreate(cudaGraph_t* pGraph, unsigned int flags)} */
    int cudaGraphCreate(MemorySegment pGraph, int flags);

    /** {@code cudaError_t cudaGraphClone(cudaGraph_t* pGraphClone, cudaGraph_t originalGraph)} */
    int cudaGraphClone(MemorySegment pGraphClone, long originalGraph);

    /** {@code cudaError_t cudaGraphDestroy(cudaGraph_t graph)} */
    int cudaGraphDestroy(long graph);

    /**
     * {@code cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t*
     * numNodes)}
     */
    int cudaGraphGetNodes(long graph, MemorySegment nodes, MemorySegment numNodes);

    /**
     * {@code cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType* pType)}
     */
    int cudaGraphNodeGetType(long node, MemorySegment pType);

    /**
     * {@code cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
     * unsigned long long flags)}
     */
    int cudaGraphInstantiate(MemorySegment pGraphExec, long graph, long flags);

    /**
     * {@code cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t
     * graph, unsigned long long flags)}
     */
    int cudaGraphInstantiateWithFlags(MemorySegment pGraphExec, long graph, long flags);

    /**
     * {@code cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
     * cudaGraphExecUpdateResultInfo* resultInfo)}
     */
    int cudaGraphExecUpdate(long hGraphExec, long hGraph, MemorySegment resultInfo);

    /** {@code cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream)} */
    int cudaGraphUpload(long graphExec, long stream);

    /** {@code cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)} */
    int cudaGraphLaunch(long graphExec, long stream);

    /** {@code cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)} */
    int cudaGraphExecDestroy(long graphExec);

    /**
     * {@code cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int
     * flags)}
     */
    int cudaGraphDebugDotPrint(long graph, MemorySegment path, int flags);

    // ---- additions to the library

    /**
     * Throws unless an operation succeeded.
     *
     * @param result what it returned
     * @param operation its name, such as {@code cudaMalloc}
     * @throws CudaFatalException if the process cannot use CUDA any more
     * @throws CudaException for every other result but {@code cudaSuccess}
     */
    default void check(int result, String operation) {
        if (result != 0) {
            throw CudaException.of(this, result, operation);
        }
    }
}
