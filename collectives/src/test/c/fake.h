/*
 * What the fakes of libcudart, libnccl and libcublas export: the functions that JCCL binds
 * (of cuBLAS those that it uses), with the binary interface of CUDA 13.0, NCCL 2.30.7 and cuBLAS
 * 13.1, and jccl_fake_* to steer and watch the fakes.
 * README.md says what they are. Declared here so that no header of CUDA or NCCL is needed; enums
 * are int, as in the binary interface.
 */
#ifndef JCCL_FAKE_H
#define JCCL_FAKE_H

#include <stddef.h>
#include <stdint.h>

#define JCF_API __attribute__((visibility("default")))

/*
 * ---- steering the fakes; exported by libcudart.so.13, the first also by the others, the last by
 * libnccl.so.2 only
 */

/* "jccl fake of libcudart" (libnccl, libcublas): no real library has this symbol. */
JCF_API const char *jccl_fake_name(void);
/* How often a function was called in this process, by its name; -1 if it was never called. */
JCF_API long jccl_fake_calls(const char *function);
/*
 * Live objects of a kind: streams, events, allocations, host, registered, pools, graphs, execs,
 * ipc, comms, registrations, windows, redops, jobs, cublas; -1 for another kind; "all" for their
 * sum. allocations holds device, managed and pool memory; host pinned memory; jobs ids of
 * communicators that no rank has taken up; cublas handles.
 */
JCF_API long jccl_fake_live(const char *kind);
/*
 * Adds rules: function[@who]:which:action[+action...][;...]. who is a rank or device; which is n,
 * the n-th call from now, n+ or *. Actions: error=, async= and sticky= (with a code), delay= and
 * late= (with milliseconds), hang, stall, corrupt, kill, die. Returns the number of rules added, or
 * -1 if the text is not understood, in which case none was.
 */
JCF_API int jccl_fake_inject(const char *rules);
/* Removes all rules. */
JCF_API void jccl_fake_clear(void);
/* Ends all injected hangs and stalls that are under way. */
JCF_API void jccl_fake_release(void);
/* From now on every call of the runtime returns this error; 0 ends that (real CUDA never does). */
JCF_API void jccl_fake_sticky(int error);
/* 1: from now on NCCL's collectives and point-to-point calls do nothing and succeed; 0: no more. */
JCF_API void jccl_fake_noop(int on);
/* 1: ranks that disagree hang, as with the real NCCL; 0: they get an error, the default. */
JCF_API void jccl_fake_mismatch_hangs(int on);
/*
 * 1: operations wait for ever for a rank that is gone, as NCCL's do between GPUs of one machine;
 * 0: they end, and the state is ncclRemoteError, as between machines; the default.
 */
JCF_API void jccl_fake_death_spins(int on);
/* The value of a field of the configuration a communicator runs with; INT_MIN if unknown. */
JCF_API int jccl_fake_config(void *comm, const char *field);

/* On which devices kernels run the blocks and threads of a launch in reverse order: bit d for d. */
JCF_API void jccl_fake_threads_reversed(int devices);

/* Of which devices this process has a context: bit d for device d. */
JCF_API int jccl_fake_contexts(void);
/* The compute capability of all devices from now on, times 10: 90 at first (JCCL_FAKE_CAPABILITY). */
JCF_API void jccl_fake_capability(int tenfold);

/* ---- CUDA runtime */

typedef int cudaError_t;
typedef struct jcf_stream *cudaStream_t;
typedef struct jcf_event *cudaEvent_t;
typedef struct jcf_pool *cudaMemPool_t;
typedef struct jcf_graph *cudaGraph_t;
typedef struct jcf_node *cudaGraphNode_t;
typedef struct jcf_exec *cudaGraphExec_t;
typedef void (*cudaHostFn_t)(void *);

typedef struct {
  char reserved[64];
} cudaIpcMemHandle_t, cudaIpcEventHandle_t;

struct cudaMemPoolPtrExportData {
  unsigned char reserved[64];
};

struct cudaPointerAttributes {
  int type, device;
  void *devicePointer, *hostPointer;
  long reserved[8];
};

struct cudaMemLocation {
  int type, id;
};

struct cudaMemAccessDesc {
  struct cudaMemLocation location;
  int flags;
};

struct cudaMemPoolProps {
  int allocType, handleTypes;
  struct cudaMemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};

typedef struct {
  int result;
  cudaGraphNode_t errorNode, errorFromNode;
} cudaGraphExecUpdateResultInfo;

struct cudaDeviceProp {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount, integrated, canMapHostMemory;
  int textures[39]; /* maxTexture1D to maxSurfaceCubemapLayered */
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
  int asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
  int hostNativeAtomicSupported, pageableMemoryAccess, concurrentManagedAccess;
  int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch;
  int unifiedFunctionPointers, deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
  unsigned gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported;
  int reserved[56];
};

enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidKernelImage = 200,
  cudaErrorDeviceUninitialized = 201,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedLimit = 215,
  cudaErrorInvalidPtx = 218,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorOperatingSystem = 304,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorSymbolNotFound = 500,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorPeerAccessNotEnabled = 705,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorMisalignedAddress = 716,
  cudaErrorNotPermitted = 800,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorGraphExecUpdateFailure = 910
};

enum {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

enum {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged
};

enum { cudaStreamNonBlocking = 1 };
enum { cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4 };
enum {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum {
  cudaGraphNodeTypeKernel = 0,
  cudaGraphNodeTypeMemcpy = 1,
  cudaGraphNodeTypeMemset = 2,
  cudaGraphNodeTypeHost = 3,
  cudaGraphNodeTypeEmpty = 5,
  cudaGraphNodeTypeWaitEvent = 6,
  cudaGraphNodeTypeEventRecord = 7
};

JCF_API cudaError_t cudaRuntimeGetVersion(int *version);
JCF_API cudaError_t cudaDriverGetVersion(int *version);
JCF_API const char *cudaGetErrorName(cudaError_t error);
JCF_API const char *cudaGetErrorString(cudaError_t error);
JCF_API cudaError_t cudaGetLastError(void);
JCF_API cudaError_t cudaPeekAtLastError(void);

JCF_API cudaError_t cudaGetDeviceCount(int *count);
JCF_API cudaError_t cudaGetDevice(int *device);
JCF_API cudaError_t cudaSetDevice(int device);
JCF_API cudaError_t cudaInitDevice(int device, unsigned deviceFlags, unsigned flags);
JCF_API cudaError_t cudaSetDeviceFlags(unsigned flags);
JCF_API cudaError_t cudaGetDeviceFlags(unsigned *flags);
JCF_API cudaError_t cudaDeviceGetAttribute(int *value, int attr, int device);
JCF_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
JCF_API cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device);
JCF_API cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id);
JCF_API cudaError_t cudaDeviceGetLimit(size_t *value, int limit);
JCF_API cudaError_t cudaDeviceSetLimit(int limit, size_t value);
JCF_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
JCF_API cudaError_t cudaDeviceSynchronize(void);
JCF_API cudaError_t cudaDeviceReset(void);

JCF_API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
JCF_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
JCF_API cudaError_t cudaDeviceDisablePeerAccess(int peer);
JCF_API cudaError_t cudaDeviceGetP2PAttribute(int *value, int attr, int src, int dst);

JCF_API cudaError_t cudaMalloc(void **ptr, size_t size);
JCF_API cudaError_t cudaFree(void *ptr);
JCF_API cudaError_t cudaMallocManaged(void **ptr, size_t size, unsigned flags);
JCF_API cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
JCF_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *ptr);
JCF_API cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, int kind);
JCF_API cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t count, int kind, cudaStream_t stream);
JCF_API cudaError_t cudaMemcpyPeer(
    void *dst, int dstDevice, const void *src, int srcDevice, size_t count);
JCF_API cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
    size_t count, cudaStream_t stream);
JCF_API cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
    size_t width, size_t height, int kind, cudaStream_t stream);
JCF_API cudaError_t cudaMemset(void *ptr, int value, size_t count);
JCF_API cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream);

JCF_API cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags);
JCF_API cudaError_t cudaMallocHost(void **ptr, size_t size);
JCF_API cudaError_t cudaFreeHost(void *ptr);
JCF_API cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned flags);
JCF_API cudaError_t cudaHostUnregister(void *ptr);
JCF_API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
JCF_API cudaError_t cudaHostGetFlags(unsigned *flags, void *host);

JCF_API cudaError_t cudaMallocAsync(void **ptr, size_t size, cudaStream_t stream);
JCF_API cudaError_t cudaMallocFromPoolAsync(
    void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream);
JCF_API cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream);
JCF_API cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props);
JCF_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
JCF_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);
JCF_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attr, void *value);
JCF_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attr, void *value);
JCF_API cudaError_t cudaMemPoolSetAccess(
    cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count);
JCF_API cudaError_t cudaMemPoolGetAccess(
    int *flags, cudaMemPool_t pool, struct cudaMemLocation *location);
JCF_API cudaError_t cudaMemPoolExportToShareableHandle(
    void *handle, cudaMemPool_t pool, int type, unsigned flags);
JCF_API cudaError_t cudaMemPoolImportFromShareableHandle(
    cudaMemPool_t *pool, void *handle, int type, unsigned flags);
JCF_API cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data, void *ptr);
JCF_API cudaError_t cudaMemPoolImportPointer(
    void **ptr, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data);
JCF_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
JCF_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device);
JCF_API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool);

JCF_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr);
JCF_API cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned flags);
JCF_API cudaError_t cudaIpcCloseMemHandle(void *ptr);
JCF_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event);
JCF_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle);

JCF_API cudaError_t cudaStreamCreate(cudaStream_t *stream);
JCF_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
JCF_API cudaError_t cudaStreamCreateWithPriority(
    cudaStream_t *stream, unsigned flags, int priority);
JCF_API cudaError_t cudaStreamDestroy(cudaStream_t stream);
JCF_API cudaError_t cudaStreamQuery(cudaStream_t stream);
JCF_API cudaError_t cudaStreamSynchronize(cudaStream_t stream);
JCF_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
JCF_API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags);
JCF_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority);
JCF_API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id);
JCF_API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device);
JCF_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data);

JCF_API cudaError_t cudaGetDriverEntryPoint(
    const char *symbol, void **function, unsigned long long flags, int *status);
/*
 * What it finds. These are not exported, as libcudart does not have them. A CUresult has the number
 * of the cudaError_t of the same meaning.
 */
typedef struct jcf_library *CUlibrary;
typedef struct jcf_kernel *CUkernel;
typedef struct jcf_function *CUfunction;
typedef int (*PFN_cuLibraryLoadData)(CUlibrary *library, const void *code, int *jitOptions,
    void **jitOptionsValues, unsigned numJitOptions, int *libraryOptions,
    void **libraryOptionValues, unsigned numLibraryOptions);
typedef int (*PFN_cuLibraryUnload)(CUlibrary library);
typedef int (*PFN_cuLibraryGetKernel)(CUkernel *kernel, CUlibrary library, const char *name);
typedef int (*PFN_cuKernelGetFunction)(CUfunction *function, CUkernel kernel);
typedef int (*PFN_cuFuncGetAttribute)(int *value, int attribute, CUfunction function);
/* f: a function, or a kernel cast to it. */
typedef int (*PFN_cuLaunchKernel)(CUfunction f, unsigned gridDimX, unsigned gridDimY,
    unsigned gridDimZ, unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ,
    unsigned sharedMemBytes, cudaStream_t stream, void **kernelParams, void **extra);

JCF_API cudaError_t cudaEventCreate(cudaEvent_t *event);
JCF_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
JCF_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
JCF_API cudaError_t cudaEventRecordWithFlags(
    cudaEvent_t event, cudaStream_t stream, unsigned flags);
JCF_API cudaError_t cudaEventQuery(cudaEvent_t event);
JCF_API cudaError_t cudaEventSynchronize(cudaEvent_t event);
JCF_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);
JCF_API cudaError_t cudaEventDestroy(cudaEvent_t event);

JCF_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode);
JCF_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
JCF_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status);
JCF_API cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode);
JCF_API cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags);
JCF_API cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original);
JCF_API cudaError_t cudaGraphDestroy(cudaGraph_t graph);
JCF_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
JCF_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, int *type);
JCF_API cudaError_t cudaGraphInstantiate(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
JCF_API cudaError_t cudaGraphInstantiateWithFlags(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
JCF_API cudaError_t cudaGraphExecUpdate(
    cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info);
JCF_API cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
JCF_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
JCF_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
JCF_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags);

/* ---- NCCL */

typedef int ncclResult_t;
typedef struct ncclComm *ncclComm_t;
typedef struct jcf_window *ncclWindow_t;
typedef struct jcf_param *ncclParamHandle_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

enum {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
  ncclTimeout
};

enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps };

enum {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16,
  ncclFloat8e4m3,
  ncclFloat8e5m2,
  ncclNumTypes
};

enum { ncclScalarDevice, ncclScalarHostImmediate };

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
  int graphUsageMode, numRmaCtx, maxP2pPeers, graphStreamOrdering;
} ncclConfig_t;

typedef struct {
  size_t size;
  unsigned magic, version;
  float estimatedTime;
} ncclSimInfo_t;

typedef struct {
  int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

JCF_API ncclResult_t ncclGetVersion(int *version);
JCF_API const char *ncclGetErrorString(ncclResult_t result);
JCF_API const char *ncclGetLastError(ncclComm_t comm);
JCF_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
JCF_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
JCF_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
JCF_API ncclResult_t ncclCommInitRankConfig(
    ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config);
JCF_API ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nId,
    ncclUniqueId *ids, ncclConfig_t *config);
JCF_API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices);
JCF_API ncclResult_t ncclCommFinalize(ncclComm_t comm);
JCF_API ncclResult_t ncclCommDestroy(ncclComm_t comm);
JCF_API ncclResult_t ncclCommAbort(ncclComm_t comm);
JCF_API ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
JCF_API ncclResult_t ncclCommSplit(
    ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
JCF_API ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int excludeCount,
    ncclComm_t *newcomm, ncclConfig_t *config, int flags);
JCF_API ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
JCF_API ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
    ncclComm_t *newcomm, ncclConfig_t *config);
JCF_API ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
JCF_API ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device);
JCF_API ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
JCF_API ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
JCF_API ncclResult_t ncclCommResume(ncclComm_t comm);
JCF_API ncclResult_t ncclCommMemStats(ncclComm_t comm, int stat, uint64_t *value);
JCF_API ncclResult_t ncclMemAlloc(void **ptr, size_t size);
JCF_API ncclResult_t ncclMemFree(void *ptr);
JCF_API ncclResult_t ncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle);
JCF_API ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle);
JCF_API ncclResult_t ncclCommWindowRegister(
    ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags);
JCF_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
JCF_API ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **ptr);
JCF_API ncclResult_t ncclRedOpCreatePreMulSum(
    int *op, void *scalar, int datatype, int residence, ncclComm_t comm);
JCF_API ncclResult_t ncclRedOpDestroy(int op, ncclComm_t comm);

JCF_API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, int type, int op,
    int root, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclBcast(
    void *buff, size_t count, int type, int root, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
    ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
    ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, int type,
    int op, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, int type,
    ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, int type,
    ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclGather(const void *send, void *recv, size_t count, int type, int root,
    ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclScatter(const void *send, void *recv, size_t count, int type, int root,
    ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclSend(
    const void *send, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclRecv(
    void *recv, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclPutSignal(const void *local, size_t count, int type, int peer,
    ncclWindow_t win, size_t offset, int sigIdx, int ctx, unsigned flags, ncclComm_t comm,
    cudaStream_t stream);
JCF_API ncclResult_t ncclSignal(
    int peer, int sigIdx, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclWaitSignal(
    int nDesc, ncclWaitSignalDesc_t *descs, ncclComm_t comm, cudaStream_t stream);
JCF_API ncclResult_t ncclGroupStart(void);
JCF_API ncclResult_t ncclGroupEnd(void);
JCF_API ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);

JCF_API ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key);
JCF_API ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t *out);
JCF_API ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t *out);
JCF_API ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t *out);
JCF_API ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t *out);
JCF_API ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t *out);
JCF_API ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t *out);
JCF_API ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t *out);
JCF_API ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t *out);
JCF_API ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out);
JCF_API ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len);
JCF_API ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *len);
JCF_API ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *len);
JCF_API void ncclParamDumpAll(void);

/* ---- cuBLAS */

typedef int cublasStatus_t;
typedef struct jcf_cublas *cublasHandle_t;

enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
};

enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71
};
enum { CUBLAS_GEMM_DEFAULT = -1 };

JCF_API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle);
JCF_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
JCF_API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version);
JCF_API cublasStatus_t cublasGetProperty(int type, int *value);
JCF_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
JCF_API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream);
JCF_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size);
JCF_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode);
JCF_API cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, int *mode);
JCF_API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, int mode);
JCF_API cublasStatus_t cublasGetMathMode(cublasHandle_t handle, int *mode);
JCF_API const char *cublasGetStatusName(cublasStatus_t status);
JCF_API const char *cublasGetStatusString(cublasStatus_t status);
JCF_API cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, int transa, int transb, int m, int n,
    int k, const float *alpha, const float *A, int lda, const float *B, int ldb, const float *beta,
    float *C, int ldc);
JCF_API cublasStatus_t cublasGemmEx(cublasHandle_t handle, int transa, int transb, int m, int n,
    int k, const void *alpha, const void *A, int Atype, int lda, const void *B, int Btype, int ldb,
    const void *beta, void *C, int Ctype, int ldc, int computeType, int algo);

#endif
