package io.jccl.bindings;

import java.lang.foreign.MemorySegment;

/**
 * The functions of cuBLAS that JCCL uses, one to one with cublas_v2.h 13.1 in names, order of
 * arguments and meaning; see NVIDIA's documentation. Matrices are column-major.
 *
 * <p><b>Types.</b> A {@code long} is a size in bytes, a stride in elements, an opaque handle, or
 * the address of device memory. A {@code MemorySegment} is host memory of the C type in the
 * prototype; {@code alpha} and {@code beta} are in the memory that {@link #cublasSetPointerMode}
 * selects. Enum constants are in {@code io.jccl.bindings.generated.cublas}.
 *
 * <p><b>Results</b> are {@code cublasStatus_t}; {@link #check} throws for all but success.
 *
 * <p><b>Threads:</b> one at a time per handle.
 */
public interface CublasApi extends NativeApi {
    // ---- handle

    /** {@code cublasStatus_t cublasCreate_v2(cublasHandle_t* handle)} */
    @Symbol("cublasCreate_v2")
    int cublasCreate(MemorySegment handle);

    /** {@code cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)} */
    @Symbol("cublasDestroy_v2")
    int cublasDestroy(long handle);

    /** {@code cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version)} */
    @Symbol("cublasGetVersion_v2")
    int cublasGetVersion(long handle, MemorySegment version);

    /** {@code cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId)} */
    @Symbol("cublasSetStream_v2")
    int cublasSetStream(long handle, long streamId);

    /** {@code cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* streamId)} */
    @Symbol("cublasGetStream_v2")
    int cublasGetStream(long handle, MemorySegment streamId);

    /**
     * {@code cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t
     * workspaceSizeInBytes)}
     */
    @Symbol("cublasSetWorkspace_v2")
    int cublasSetWorkspace(long handle, long workspace, long workspaceSizeInBytes);

    /**
     * {@code cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t
     * mode)}
     */
    @Symbol("cublasSetPointerMode_v2")
    int cublasSetPointerMode(long handle, int mode);

    /**
     * {@code cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t*
     * mode)}
     */
    @Symbol("cublasGetPointerMode_v2")
    int cublasGetPointerMode(long handle, MemorySegment mode);

    /** {@code cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)} */
    int cublasSetMathMode(long handle, int mode);

    /** {@code cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode)} */
    int cublasGetMathMode(long handle, MemorySegment mode);

    // ---- errors

    /** {@code const char* cublasGetStatusName(cublasStatus_t status)} */
    String cublasGetStatusName(int status);

    /** {@code const char* cublasGetStatusString(cublasStatus_t status)} */
    String cublasGetStatusString(int status);

    // ---- vectors

    /**
     * {@code cublasStatus_t cublasSaxpy_v2(cublasHandle_t handle, int n, const float* alpha, const
     * float* x, int incx, float* y, int incy)}
     */
    @Symbol("cublasSaxpy_v2")
    int cublasSaxpy(long handle, int n, MemorySegment alpha, long x, int incx, long y, int incy);

    /**
     * {@code cublasStatus_t cublasDaxpy_v2(cublasHandle_t handle, int n, const double* alpha, const
     * double* x, int incx, double* y, int incy)}
     */
    @Symbol("cublasDaxpy_v2")
    int cublasDaxpy(long handle, int n, MemorySegment alpha, long x, int incx, long y, int incy);

    /**
     * {@code cublasStatus_t cublasAxpyEx(cublasHandle_t handle, int n, const void* alpha,
     * cudaDataType alphaType, const void* x, cudaDataType xType, int incx, void* y, cudaDataType
     * yType, int incy, cudaDataType executiontype)}
     */
    int cublasAxpyEx(
            long handle,
            int n,
            MemorySegment alpha,
            int alphaType,
            long x,
            int xType,
            int incx,
            long y,
            int yType,
            int incy,
            int executiontype);

    /**
     * {@code cublasStatus_t cublasSscal_v2(cublasHandle_t handle, int n, const float* alpha, float*
     * x, int incx)}
     */
    @Symbol("cublasSscal_v2")
    int cublasSscal(long handle, int n, MemorySegment alpha, long x, int incx);

    /**
     * {@code cublasStatus_t cublasDscal_v2(cublasHandle_t handle, int n, const double* alpha,
     * double* x, int incx)}
     */
    @Symbol("cublasDscal_v2")
    int cublasDscal(long handle, int n, MemorySegment alpha, long x, int incx);

    /**
     * {@code cublasStatus_t cublasScalEx(cublasHandle_t handle, int n, const void* alpha,
     * cudaDataType alphaType, void* x, cudaDataType xType, int incx, cudaDataType executionType)}
     */
    int cublasScalEx(
            long handle,
            int n,
            MemorySegment alpha,
            int alphaType,
            long x,
            int xType,
            int incx,
            int executionType);

    // ---- matrices

    /**
     * {@code cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
     * cublasOperation_t transb, int m, int n, int k, const float* alpha, const float* A, int lda,
     * const float* B, int ldb, const float* beta, float* C, int ldc)}
     */
    @Symbol("cublasSgemm_v2")
    int cublasSgemm(
            long handle,
            int transa,
            int transb,
            int m,
            int n,
            int k,
            MemorySegment alpha,
            long A,
            int lda,
            long B,
            int ldb,
            MemorySegment beta,
            long C,
            int ldc);

    /**
     * {@code cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
     * cublasOperation_t transb, int m, int n, int k, const void* alpha, const void* A, cudaDataType
     * Atype, int lda, const void* B, cudaDataType Btype, int ldb, const void* beta, void* C,
     * cudaDataType Ctype, int ldc, cublasComputeType_t computeType, cublasGemmAlgo_t algo)}
     */
    int cublasGemmEx(
            long handle,
            int transa,
            int transb,
            int m,
            int n,
            int k,
            MemorySegment alpha,
            long A,
            int Atype,
            int lda,
            long B,
            int Btype,
            int ldb,
            MemorySegment beta,
            long C,
            int Ctype,
            int ldc,
            int computeType,
            int algo);

    /**
     * {@code cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t
     * transa, cublasOperation_t transb, int m, int n, int k, const void* alpha, const void* A,
     * cudaDataType Atype, int lda, long long strideA, const void* B, cudaDataType Btype, int ldb,
     * long long strideB, const void* beta, void* C, cudaDataType Ctype, int ldc, long long strideC,
     * int batchCount, cublasComputeType_t computeType, cublasGemmAlgo_t algo)}
     */
    int cublasGemmStridedBatchedEx(
            long handle,
            int transa,
            int transb,
            int m,
            int n,
            int k,
            MemorySegment alpha,
            long A,
            int Atype,
            int lda,
            long strideA,
            long B,
            int Btype,
            int ldb,
            long strideB,
            MemorySegment beta,
            long C,
            int Ctype,
            int ldc,
            long strideC,
            int batchCount,
            int computeType,
            int algo);

    // ---- additions to the library

    /**
     * Throws unless an operation succeeded.
     *
     * @param status what it returned
     * @param operation its name, such as {@code cublasGemmEx}
     * @throws CublasException if the status is not {@code CUBLAS_STATUS_SUCCESS}
     */
    default void check(int status, String operation) {
        if (status != 0) {
            throw CublasException.of(this, status, operation);
        }
    }
}
