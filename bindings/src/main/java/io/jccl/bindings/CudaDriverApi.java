package io.jccl.bindings;

import java.lang.foreign.MemorySegment;

/**
 * The functions of the CUDA driver that JCCL uses, one to one with cuda.h of CUDA 13.0 in names,
 * order of arguments and meaning; see NVIDIA's documentation. They load and launch kernels. All of
 * them exist since CUDA 12.0, while the runtime's counterparts exist since CUDA 12.8.
 *
 * <p>They are looked up by {@code cudaGetDriverEntryPoint}, so they belong to the driver that the
 * CUDA runtime uses. Without a driver, each call throws {@link UnsupportedOperationException} with
 * the runtime's reason.
 *
 * <p><b>Types</b> are those of {@link CudaApi}; its streams can be passed as they are. The runtime
 * creates the contexts; {@code cudaSetDevice} makes a device's primary context the current one.
 *
 * <p><b>Results</b> are {@code CUresult}. Each has the number of the {@code cudaError_t} of the
 * same meaning, so {@link CudaApi#check} serves both.
 *
 * <p><b>Threads:</b> any; the current context is per thread.
 */
public interface CudaDriverApi extends NativeApi {
    /**
     * {@code CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*
     * jitOptions, void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*
     * libraryOptions, void** libraryOptionValues, unsigned int numLibraryOptions)}
     */
    int cuLibraryLoadData(
            MemorySegment library,
            MemorySegment code,
            long jitOptions,
            long jitOptionsValues,
            int numJitOptions,
            long libraryOptions,
            long libraryOptionValues,
            int numLibraryOptions);

    /** {@code CUresult cuLibraryUnload(CUlibrary library)} */
    int cuLibraryUnload(long library);

    /**
     * {@code CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name)}
     */
    int cuLibraryGetKernel(MemorySegment pKernel, long library, MemorySegment name);

    /** {@code CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel)} */
    int cuKernelGetFunction(MemorySegment pFunc, long kernel);

    /**
     * {@code CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc)}
     */
    int cuFuncGetAttribute(MemorySegment pi, int attrib, long hfunc);

    /**
     * {@code CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
     * unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int
     * blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void**
     * extra)}; {@code f} may be a {@code CUkernel}, which runs in the context of the stream
     */
    int cuLaunchKernel(
            long f,
            int gridDimX,
            int gridDimY,
            int gridDimZ,
            int blockDimX,
            int blockDimY,
            int blockDimZ,
            int sharedMemBytes,
            long hStream,
            MemorySegment kernelParams,
            MemorySegment extra);
}
