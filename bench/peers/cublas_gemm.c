/*
 * Products of n x n matrices by cublasGemmEx from C: the peer of jccl probe --device cuda --only matmul.
 *   cublas_gemm LIBCUDART LIBCUBLAS TYPE N...
 * TYPE is float32, tf32, bfloat16, float16 or float64, as jccl probe names them. Prints, for each N, the median in
 * TFLOP/s of seven batches, each of at least 2 ms as those of jccl probe, that end when the device is idle, after half
 * a second of products of that size, as clocks rise. Factors are integers from -3 to 3 and results float32 or float64, as jccl probe has
 * them: values and types change what a product takes. No headers of CUDA.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 7 };

static void *find(void *library, const char *name) {
  void *f = dlsym(library, name);
  if (f == NULL) {
    fprintf(stderr, "cublas_gemm: no %s\n", name);
    exit(1);
  }
  return f;
}

static void *open_library(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "cublas_gemm: %s\n", dlerror());
    exit(1);
  }
  return library;
}

#define CHECK(call) \
  do { \
    int status_ = (call); \
    if (status_ != 0) { \
      fprintf(stderr, "cublas_gemm: %s: %d\n", #call, status_); \
      exit(1); \
    } \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Type, cudaDataType, cublasComputeType_t, bytes. */
static const struct {
  const char *name;
  int type, compute;
  size_t size;
} TYPES[] = {{"float32", 0, 68, 4}, {"tf32", 0, 77, 4}, {"bfloat16", 14, 68, 2}, {"float16", 2, 68, 2},
    {"float64", 1, 70, 8}};

/* An integer from -3 to 3 in a type. */
static void put(void *m, size_t at, int type, int value) {
  static const unsigned short HALVES[] = {0, 0x3c00, 0x4000, 0x4200};
  float single = (float)value;
  unsigned bits;
  memcpy(&bits, &single, sizeof bits);
  switch (type) {
    case 0: ((float *)m)[at] = single; break;
    case 1: ((double *)m)[at] = value; break;
    case 2: ((unsigned short *)m)[at] = (unsigned short)(HALVES[abs(value)] | (value < 0 ? 0x8000 : 0)); break;
    default: ((unsigned short *)m)[at] = (unsigned short)(bits >> 16);
  }
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: cublas_gemm LIBCUDART LIBCUBLAS TYPE N...\n");
    return 2;
  }
  void *cudart = open_library(argv[1]), *cublas = open_library(argv[2]);
  int (*allocate)(void **, size_t) = (int (*)(void **, size_t))find(cudart, "cudaMalloc");
  int (*release)(void *) = (int (*)(void *))find(cudart, "cudaFree");
  int (*copy)(void *, const void *, size_t, int) =
      (int (*)(void *, const void *, size_t, int))find(cudart, "cudaMemcpy");
  int (*synchronize)(void) = (int (*)(void))find(cudart, "cudaDeviceSynchronize");
  int (*create)(void **) = (int (*)(void **))find(cublas, "cublasCreate_v2");
  int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
      const void *, void *, int, int, int, int) =
      (int (*)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
          const void *, void *, int, int, int, int))find(cublas, "cublasGemmEx");
  size_t t = 0;
  while (t < sizeof TYPES / sizeof *TYPES && strcmp(TYPES[t].name, argv[3]) != 0) {
    t++;
  }
  if (t == sizeof TYPES / sizeof *TYPES) {
    fprintf(stderr, "cublas_gemm: no type %s\n", argv[3]);
    return 2;
  }
  float one = 1, zero = 0;
  double wide_one = 1, wide_zero = 0;
  const void *alpha = TYPES[t].compute == 70 ? (void *)&wide_one : (void *)&one;
  const void *beta = TYPES[t].compute == 70 ? (void *)&wide_zero : (void *)&zero;
  void *handle = NULL;
  CHECK(create(&handle));
  for (int i = 4; i < argc; i++) {
    int n = atoi(argv[i]), type = TYPES[t].type;
    int result = type == 1 ? 1 : 0;
    size_t count = (size_t)n * (size_t)n;
    void *m[3], *host = malloc(count * TYPES[t].size);
    if (host == NULL) {
      fprintf(stderr, "cublas_gemm: no memory\n");
      return 1;
    }
    for (int j = 0; j < 2; j++) {
      for (size_t k = 0; k < count; k++) {
        put(host, k, type, (int)((k * 2654435761u + (size_t)j * 40503u) >> 7) % 4 * ((k >> 3 & 1) ? 1 : -1));
      }
      CHECK(allocate(&m[j], count * TYPES[t].size));
      CHECK(copy(m[j], host, count * TYPES[t].size, 1));
    }
    free(host);
    CHECK(allocate(&m[2], count * (result == 1 ? 8 : 4)));
    double rates[BATCHES], began = now();
    long calls = 1;
    for (int b = 0; b < BATCHES;) {
      double start = now();
      for (long c = 0; c < calls; c++) {
        CHECK(gemm(handle, 0, 0, n, n, n, alpha, m[0], type, n, m[1], type, n, beta, m[2], result, n,
            TYPES[t].compute, -1));
      }
      CHECK(synchronize());
      double seconds = now() - start;
      if (seconds < 0.002 && b == 0) {
        calls *= 2;
      } else if (now() - began > 0.5) {
        rates[b++] = 2e-12 * n * n * n * (double)calls / seconds;
      }
    }
    qsort(rates, BATCHES, sizeof *rates, compare);
    printf("%s %d %.3f\n", argv[3], n, rates[BATCHES / 2]);
    for (int j = 0; j < 3; j++) {
      CHECK(release(m[j]));
    }
  }
  return 0;
}
