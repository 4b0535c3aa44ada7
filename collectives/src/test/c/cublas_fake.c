/*
 * A fake of cuBLAS on top of the fake of the CUDA runtime: handles, and the product of
 * matrices with float32 sums. A product runs on the thread of its stream, on the memory where the
 * runtime's fake keeps that of devices.
 *
 * Arguments are checked as NVIDIA's documentation of cublasGemmEx says. What a kernel would meet
 * only while it runs, such as memory that is not its device's, makes the runtime's sticky error.
 * Of the injected actions, async= is an error of the kernel, sticky from when the product runs.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_floats.h"
#include "fake_internal.h"

enum {
  WORKSPACE = 4 << 20, /* device memory of a handle; the real one depends on the GPU */
  WORKSPACE_ALIGNMENT = 256,
  HIGH = 16 /* rows of a tile of the result */
};

struct jcf_cublas {
  int device;
  cudaStream_t stream;
  int pointer_mode, math_mode;
  atomic_bool loaded; /* has launched a product */
  struct jcf_cublas *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jcf_cublas *handles; /* guarded by lock */

const char *jccl_fake_name(void) { return "jccl fake of libcublas"; }

static void *need(void *p) {
  if (p == NULL) {
    fprintf(stderr, "jccl fake: the machine is out of memory\n");
    abort();
  }
  return p;
}

/* ---- errors */

#define STATUSES(S) \
  S(CUBLAS_STATUS_SUCCESS, "success") \
  S(CUBLAS_STATUS_NOT_INITIALIZED, "not initialized") \
  S(CUBLAS_STATUS_ALLOC_FAILED, "no memory for a resource") \
  S(CUBLAS_STATUS_INVALID_VALUE, "invalid argument") \
  S(CUBLAS_STATUS_ARCH_MISMATCH, "the device lacks a feature") \
  S(CUBLAS_STATUS_MAPPING_ERROR, "GPU memory could not be accessed") \
  S(CUBLAS_STATUS_EXECUTION_FAILED, "launch failed") \
  S(CUBLAS_STATUS_INTERNAL_ERROR, "internal error") \
  S(CUBLAS_STATUS_NOT_SUPPORTED, "not supported") \
  S(CUBLAS_STATUS_LICENSE_ERROR, "license error")

const char *cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
#define NAME(name, text) case name: return #name;
    STATUSES(NAME)
#undef NAME
    default: return "unrecognized status";
  }
}

const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
#define TEXT(name, text) case name: return text " (jccl fake)";
    STATUSES(TEXT)
#undef TEXT
    default: return "unrecognized status";
  }
}

/* Where rules may name a device, it is the caller's current one. */
static int current_device(void) {
  int device = -1;
  return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}

#define ENTER(function) \
  static struct jcf_fn fn_ = {.name = #function}; \
  struct jcf_hit hit; \
  jcf_enter(&fn_, current_device(), &hit); \
  if (hit.hang) { \
    jcf_hang(NULL); \
  } \
  if (hit.error != 0) { \
    return hit.error; \
  }

/* ---- handles */

static bool is_handle(cublasHandle_t handle) {
  pthread_mutex_lock(&lock);
  struct jcf_cublas *h = handles;
  while (h != NULL && h != handle) {
    h = h->next;
  }
  pthread_mutex_unlock(&lock);
  return h != NULL;
}

#define ENTER_WITH(function, handle) \
  ENTER(function) \
  if (!is_handle(handle)) { \
    return CUBLAS_STATUS_NOT_INITIALIZED; \
  }

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  ENTER(cublasCreate_v2);
  if (handle == NULL) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  int device = -1;
  if (jcf_sticky() != 0 || cudaGetDevice(&device) != cudaSuccess) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  if (!jcf_account(device, WORKSPACE)) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
  struct jcf_cublas *h = need(calloc(1, sizeof *h));
  h->device = device;
  pthread_mutex_lock(&lock);
  h->next = handles;
  handles = h;
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_CUBLAS, 1);
  *handle = h;
  return CUBLAS_STATUS_SUCCESS;
}

/* Waits for the device, as the real one does. */
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  ENTER_WITH(cublasDestroy_v2, handle);
  int device = current_device();
  cudaSetDevice(handle->device);
  cudaDeviceSynchronize();
  cudaSetDevice(device);
  pthread_mutex_lock(&lock);
  for (struct jcf_cublas **at = &handles; *at != NULL; at = &(*at)->next) {
    if (*at == handle) {
      *at = handle->next;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  jcf_account(handle->device, -WORKSPACE);
  free(handle);
  jcf_live(JCF_CUBLAS, -1);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(int type, int *value) {
  ENTER(cublasGetProperty);
  static const int VERSION[] = {13, 1, 1};
  if (type < 0 || type > 2 || value == NULL) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *value = VERSION[type];
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
  ENTER_WITH(cublasGetVersion_v2, handle);
  if (version == NULL) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *version = 130101;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  ENTER_WITH(cublasSetStream_v2, handle);
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
  ENTER_WITH(cublasGetStream_v2, handle);
  if (stream == NULL) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size) {
  ENTER_WITH(cublasSetWorkspace_v2, handle);
  (void)size; /* products need none */
  return (uintptr_t)workspace % WORKSPACE_ALIGNMENT == 0 ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t set_mode(int *field, int mode, int most) {
  if (mode < 0 || mode > most) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *field = mode;
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get_mode(int field, int *mode) {
  if (mode == NULL) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *mode = field;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode) {
  ENTER_WITH(cublasSetPointerMode_v2, handle);
  return set_mode(&handle->pointer_mode, mode, CUBLAS_POINTER_MODE_DEVICE);
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, int *mode) {
  ENTER_WITH(cublasGetPointerMode_v2, handle);
  return get_mode(handle->pointer_mode, mode);
}

/* Modes of less precision are taken, and products are as without them. */
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, int mode) {
  ENTER_WITH(cublasSetMathMode, handle);
  return set_mode(&handle->math_mode, mode, 4 | 8 | 16);
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, int *mode) {
  ENTER_WITH(cublasGetMathMode, handle);
  return get_mode(handle->math_mode, mode);
}

/* ---- products */

/* Columns of a matrix, one after the other with so many elements between their starts. */
struct matrix {
  void *at;
  int type;
  int rows, columns; /* as stored */
  size_t leading;
};

struct product {
  atomic_int uses; /* 1 for a node of a graph, 1 for each run */
  bool turn_a, turn_b, scalars_on_device;
  int m, n, k;
  struct matrix a, b, c;
  double alpha, beta;
  const void *alpha_at, *beta_at;
  bool illegal; /* touches memory that is not its device's */
  struct jcf_hit hit;
};

typedef float any_float __attribute__((may_alias));
typedef double any_double __attribute__((may_alias));
typedef uint16_t any_short __attribute__((may_alias));

static size_t size_of(int type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static float load(const struct matrix *x, size_t row, size_t column) {
  size_t at = row + column * x->leading;
  const void *memory = jcf_stored(x->at);
  if (x->type == CUDA_R_32F) {
    return ((const any_float *)memory)[at];
  }
  uint16_t half = ((const any_short *)memory)[at];
  return x->type == CUDA_R_16F ? from_half(half) : bits_to_float((uint32_t)half << 16);
}

static void store(const struct matrix *x, size_t row, size_t column, float value) {
  size_t at = row + column * x->leading;
  void *memory = jcf_stored(x->at);
  if (x->type == CUDA_R_32F) {
    ((any_float *)memory)[at] = value;
  } else {
    ((any_short *)memory)[at] = x->type == CUDA_R_16F ? to_half(value) : to_bfloat(value);
  }
}

/* A scalar, which has the type of the sums. */
static double scalar(const struct product *p, const void *at) {
  return p->c.type == CUDA_R_64F ? *(const any_double *)at : *(const any_float *)at;
}

/* The same product of float64 throughout. */
static void multiply_wide(const struct product *p, double alpha, double beta) {
  const any_double *a = jcf_stored(p->a.at), *b = jcf_stored(p->b.at);
  any_double *c = jcf_stored(p->c.at);
  for (size_t i = 0; i < (size_t)p->m; i++) {
    for (size_t j = 0; j < (size_t)p->n; j++) {
      double sum = 0;
      for (size_t l = 0; alpha != 0 && l < (size_t)p->k; l++) {
        sum += a[p->turn_a ? l + i * p->a.leading : i + l * p->a.leading]
            * b[p->turn_b ? j + l * p->b.leading : l + j * p->b.leading];
      }
      any_double *at = &c[i + j * p->c.leading];
      *at = alpha * sum + (beta == 0 ? 0 : beta * *at); /* with 0 it is not read */
    }
  }
}

/*
 * c = alpha op(a) op(b) + beta c. Sixteen rows of op(a) are widened and laid side by side, as is
 * all of op(b); an element's products are added in the order of k.
 */
static void multiply(const struct product *p, float alpha, float beta) {
  size_t m = (size_t)p->m, n = (size_t)p->n, k = alpha == 0 ? 0 : (size_t)p->k;
  float *high = need(malloc((HIGH * k + 1) * sizeof *high));
  float *wide = need(malloc((n * k + 1) * sizeof *wide));
  for (size_t j = 0; j < n; j++) {
    for (size_t l = 0; l < k; l++) {
      wide[j * k + l] = p->turn_b ? load(&p->b, j, l) : load(&p->b, l, j);
    }
  }
  for (size_t i = 0; i < m; i += HIGH) {
    size_t rows = m - i < HIGH ? m - i : HIGH;
    for (size_t l = 0; l < k; l++) {
      for (size_t x = 0; x < HIGH; x++) {
        high[l * HIGH + x] = x >= rows ? 0
            : p->turn_a                ? load(&p->a, l, i + x)
                                       : load(&p->a, i + x, l);
      }
    }
    for (size_t j = 0; j < n; j++) {
      float sum[HIGH] = {0};
      for (size_t l = 0; l < k; l++) {
        float by = wide[j * k + l];
        for (size_t x = 0; x < HIGH; x++) {
          sum[x] += high[l * HIGH + x] * by;
        }
      }
      for (size_t x = 0; x < rows; x++) {
        float old = beta == 0 ? 0 : beta * load(&p->c, i + x, j); /* with 0 it is not read */
        store(&p->c, i + x, j, alpha * sum[x] + old);
      }
    }
  }
  free(high);
  free(wide);
}

static void drop_product(void *arg) {
  struct product *p = arg;
  if (atomic_fetch_sub(&p->uses, 1) == 1) {
    free(p);
  }
}

static void run_product(void *arg) {
  struct product *p = arg;
  if (p->hit.late_ms > 0) {
    jcf_sleep_ms(p->hit.late_ms);
  }
  if (p->hit.die) {
    kill(getpid(), SIGKILL);
  }
  if (p->hit.stall) {
    jcf_hang(NULL);
  }
  if (p->illegal || p->hit.async != 0) {
    jccl_fake_sticky(p->illegal ? cudaErrorIllegalAddress : p->hit.async);
    return;
  }
  double alpha = p->alpha, beta = p->beta;
  if (p->scalars_on_device) {
    alpha = scalar(p, jcf_stored(p->alpha_at));
    beta = scalar(p, jcf_stored(p->beta_at));
  }
  if (p->c.type == CUDA_R_64F) {
    multiply_wide(p, alpha, beta);
  } else {
    multiply(p, (float)alpha, (float)beta);
  }
  size_t row = (size_t)p->m / 2, column = (size_t)p->n / 2;
  if (p->hit.corrupt && p->c.type == CUDA_R_64F) {
    ((any_double *)jcf_stored(p->c.at))[row + column * p->c.leading] += 1;
  } else if (p->hit.corrupt) {
    store(&p->c, row, column, load(&p->c, row, column) + 1);
  }
}

/* As drop_product, called under the runtime's lock when a graph is copied or destroyed. */
static void use_product(void *arg) { atomic_fetch_add(&((struct product *)arg)->uses, 1); }

static void launch_captured(void *arg, struct jcf_stream *s) {
  use_product(arg);
  struct jcf_dep end = jcf_enqueue(s, run_product, drop_product, arg, NULL, 0);
  jcf_stream_done(end.stream);
}

/* Whether a device reaches all of some memory. */
static bool reaches(int device, const void *at, size_t size) {
  struct jcf_memory x = jcf_memory_of(at);
  if (x.type == cudaMemoryTypeUnregistered || (uintptr_t)at - x.base + size > x.size) {
    return false;
  }
  return x.type != cudaMemoryTypeDevice || x.device == device
      || jcf_peer_enabled(device, x.device);
}

static bool reaches_matrix(int device, const struct matrix *x) {
  if (x->rows == 0 || x->columns == 0) {
    return true;
  }
  size_t count = ((size_t)x->columns - 1) * x->leading + (size_t)x->rows;
  return reaches(device, x->at, count * size_of(x->type));
}

static bool is_type(int type) {
  return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

static bool is_leading(int leading, const struct matrix *x) {
  return leading >= (x->rows > 1 ? x->rows : 1);
}

/*
 * Whether cuBLAS has such a product: the rows of its table for float32 sums and scalars, and the
 * real one for float64.
 */
static bool is_supported(const struct product *p, int compute) {
  if (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC) {
    return p->a.type == CUDA_R_64F && p->b.type == CUDA_R_64F && p->c.type == CUDA_R_64F;
  }
  return (compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC)
      && p->a.type == p->b.type && is_type(p->a.type)
      && (p->c.type == CUDA_R_32F || p->c.type == p->a.type);
}

static cublasStatus_t launch(cublasHandle_t handle, struct product what) {
  int device = current_device();
  /* A stream of another device than the kernel's cannot take it. */
  struct jcf_stream *s =
      device != handle->device ? NULL : jcf_stream_use(handle->stream, device);
  if (jcf_sticky() != 0 || s == NULL || jcf_stream_device(s) != device) {
    if (s != NULL) {
      jcf_stream_done(s);
    }
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  what.illegal = !reaches_matrix(device, &what.c)
      || (what.scalars_on_device
              && !(reaches(device, what.alpha_at, size_of(what.c.type))
                      && reaches(device, what.beta_at, size_of(what.c.type))))
      || (what.k > 0 && (what.scalars_on_device || what.alpha != 0)
              && !(reaches_matrix(device, &what.a) && reaches_matrix(device, &what.b)));
  struct product *p = need(malloc(sizeof *p));
  *p = what;
  atomic_init(&p->uses, 1);
  cudaError_t error = cudaSuccess;
  void *capture = jcf_capture_of(s, &error);
  if (error != cudaSuccess) {
    free(p);
  } else if (capture != NULL) {
    jcf_capture_node(&s, 1, launch_captured, use_product, drop_product, p);
  } else {
    /* As on an H200, where a handle's first product waited for a stream that was held up:
       Programming Guide, "Lazy Loading", "loading kernels might require context synchronization". */
    if (!atomic_exchange(&handle->loaded, true)) {
      jcf_sync_device(device);
    }
    jcf_launch(s, run_product, drop_product, p);
  }
  jcf_stream_done(s);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t gemm(cublasHandle_t handle, const struct jcf_hit *hit, int transa,
    int transb, int m, int n, int k, const void *alpha, const void *A, int Atype, int lda,
    const void *B, int Btype, int ldb, const void *beta, void *C, int Ctype, int ldc,
    int computeType) {
  bool turn_a = transa != CUBLAS_OP_N, turn_b = transb != CUBLAS_OP_N;
  struct product p = {.turn_a = turn_a,
      .turn_b = turn_b,
      .scalars_on_device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE,
      .m = m,
      .n = n,
      .k = k,
      .a = {(void *)(uintptr_t)A, Atype, turn_a ? k : m, turn_a ? m : k, (size_t)lda},
      .b = {(void *)(uintptr_t)B, Btype, turn_b ? n : k, turn_b ? k : n, (size_t)ldb},
      .c = {C, Ctype, m, n, (size_t)ldc},
      .alpha_at = alpha,
      .beta_at = beta,
      .hit = *hit};
  bool operations = transa >= CUBLAS_OP_N && transa <= CUBLAS_OP_C && transb >= CUBLAS_OP_N
      && transb <= CUBLAS_OP_C;
  if (m < 0 || n < 0 || k < 0 || !operations || !is_leading(lda, &p.a) || !is_leading(ldb, &p.b)
      || !is_leading(ldc, &p.c) || alpha == NULL || beta == NULL) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_supported(&p, computeType)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (!p.scalars_on_device) {
    p.alpha = scalar(&p, alpha);
    p.beta = scalar(&p, beta);
  }
  return m == 0 || n == 0 ? CUBLAS_STATUS_SUCCESS : launch(handle, p);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, int transa, int transb, int m, int n, int k,
    const void *alpha, const void *A, int Atype, int lda, const void *B, int Btype, int ldb,
    const void *beta, void *C, int Ctype, int ldc, int computeType, int algo) {
  ENTER_WITH(cublasGemmEx, handle);
  bool algorithm = (algo >= -1 && algo <= 23) || (algo >= 99 && algo <= 115) || algo == 999;
  return !algorithm ? CUBLAS_STATUS_INVALID_VALUE
                    : gemm(handle, &hit, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype,
                        ldb, beta, C, Ctype, ldc, computeType);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, int transa, int transb, int m, int n, int k,
    const float *alpha, const float *A, int lda, const float *B, int ldb, const float *beta,
    float *C, int ldc) {
  ENTER_WITH(cublasSgemm_v2, handle);
  return gemm(handle, &hit, transa, transb, m, n, k, alpha, A, CUDA_R_32F, lda, B, CUDA_R_32F, ldb,
      beta, C, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F);
}
