/*
 * Libraries of kernels in the fake of the CUDA runtime: loads PTX, finds its kernels, and launches
 * those that were compiled for the CPU too (kernel_cpu.cc). Rules are those of cuda_runtime_api.h of
 * CUDA 13.0 (cudaLibraryLoadData, cudaLibraryGetKernel, cudaLaunchKernelExC) and, where it says so,
 * of the CUDA C++ Programming Guide 13.0. What a kernel would meet only while it runs, such as an
 * address that is not its device's, makes the sticky error.
 */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_internal.h"
#include "kernel_fake.h"

enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; /* cudaDeviceAttr */
enum { MOST_PARAMETERS = 32, PARAMETER_ROOM = 8, SHARED_LIMIT = 48 << 10, BLOCK_LIMIT = 1024 };

struct jcf_kernel {
  struct jcf_library *library;
  const struct jcf_host_kernel *host;
  struct jcf_kernel *next;
};

struct jcf_library {
  char *code;
  int target; /* compute capability, times 10 */
  struct jcf_kernel *kernels;
  struct jcf_library *next;
};

struct launch {
  const struct jcf_host_kernel *host;
  unsigned grid[3], block[3];
  int device, sticky;
  bool reversed;
  atomic_int uses;
  char values[MOST_PARAMETERS][PARAMETER_ROOM];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jcf_library *libraries; /* guarded by lock */
static atomic_int reversed;

void jccl_fake_threads_reversed(int on) { atomic_store(&reversed, on); }

static void *need(void *p) {
  if (p == NULL) {
    fprintf(stderr, "jccl fake: the machine is out of memory\n");
    abort();
  }
  return p;
}

#define ENTER(function) \
  static struct jcf_fn fn_ = {.name = #function}; \
  struct jcf_hit hit_; \
  cudaError_t entered_ = jcf_runtime_enter(&fn_, &hit_); \
  if (entered_ != cudaSuccess) { \
    return jcf_fail(entered_); \
  }

/* ---- libraries */

/* The newest PTX ISA that a driver knows, times 10: PTX ISA 9.0, table of release notes. */
static int newest_isa(int driver) {
  int minor = driver % 1000 / 10;
  return driver >= 13000 ? 90 : minor <= 5 ? 80 + minor : minor <= 6 ? 85 : 79 + minor;
}

/* The number of a directive such as ".version 6.0", times 10, or -1. */
static int number_of(const char *code, const char *directive) {
  const char *at = strstr(code, directive);
  int high = 0, low = 0;
  if (at == NULL || sscanf(at + strlen(directive), " %d.%d", &high, &low) < 1) {
    return -1;
  }
  return high * 10 + low;
}

static cudaError_t check_image(const char *code, int *target) {
  int version = number_of(code, ".version"), driver = 0, major = 0, minor = 0, device = 0;
  const char *at = strstr(code, ".target sm_");
  if (version < 0 || at == NULL || strstr(code, ".address_size 64") == NULL) {
    return cudaErrorInvalidPtx;
  }
  *target = atoi(at + strlen(".target sm_"));
  if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaGetDevice(&device) != cudaSuccess
      || cudaDeviceGetAttribute(&major, CAPABILITY_MAJOR, device) != cudaSuccess
      || cudaDeviceGetAttribute(&minor, CAPABILITY_MINOR, device)
          != cudaSuccess) {
    return cudaErrorInvalidDevice;
  }
  return version > newest_isa(driver)      ? cudaErrorUnsupportedPtxVersion
      : *target > 10 * major + minor ? cudaErrorNoKernelImageForDevice
                                     : cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, int *jitOptions,
    void **jitOptionsValues, unsigned numJitOptions, int *libraryOptions,
    void **libraryOptionValues, unsigned numLibraryOptions) {
  ENTER(cudaLibraryLoadData);
  if (library == NULL || code == NULL || (numJitOptions > 0 && jitOptions == NULL)
      || (numJitOptions > 0 && jitOptionsValues == NULL)
      || (numLibraryOptions > 0 && (libraryOptions == NULL || libraryOptionValues == NULL))) {
    return jcf_fail(cudaErrorInvalidValue);
  }
  int target = 0;
  cudaError_t error = check_image(code, &target);
  if (error == cudaSuccess) {
    struct jcf_library *l = need(calloc(1, sizeof *l));
    l->code = need(strdup(code));
    l->target = target;
    pthread_mutex_lock(&lock);
    l->next = libraries;
    libraries = l;
    pthread_mutex_unlock(&lock);
    *library = l;
  }
  return jcf_fail(error);
}

static struct jcf_library **find_library(cudaLibrary_t library) {
  struct jcf_library **at = &libraries;
  while (*at != NULL && *at != library) {
    at = &(*at)->next;
  }
  return *at == NULL ? NULL : at;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  ENTER(cudaLibraryUnload);
  pthread_mutex_lock(&lock);
  struct jcf_library **at = find_library(library);
  if (at != NULL) {
    *at = library->next;
  }
  pthread_mutex_unlock(&lock);
  if (at == NULL) {
    return jcf_fail(cudaErrorInvalidValue);
  }
  for (struct jcf_kernel *k = library->kernels, *next; k != NULL; k = next) {
    next = k->next;
    free(k);
  }
  free(library->code);
  free(library);
  return cudaSuccess;
}

/* Size of the type that a parameter has in PTX, such as ".u64"; 0 for what the fake does not know. */
static unsigned size_of(const char *type) {
  return !isdigit((unsigned char)type[2]) ? 0 : (unsigned)atoi(type + 2) / 8;
}

/* Ends the process unless the parameters in the PTX are those of the source. */
static void check_parameters(const char *entry, const struct jcf_host_kernel *host) {
  const char *at = strchr(entry, '('), *end = at == NULL ? NULL : strchr(at, ')');
  int n = 0;
  while (end != NULL && (at = strstr(at, ".param ")) != NULL && at < end) {
    at += strlen(".param ");
    if (n >= host->nparameters || size_of(at) != host->parameters[n].size) {
      break;
    }
    n++;
  }
  bool more = end == NULL || (at != NULL && at < end);
  if (more || n != host->nparameters) {
    fprintf(stderr, "jccl fake: the parameters of kernel %s in the PTX are not those of its source:"
                    " run src/main/cuda/regenerate.sh\n", host->name);
    abort();
  }
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  ENTER(cudaLibraryGetKernel);
  if (kernel == NULL || name == NULL) {
    return jcf_fail(cudaErrorInvalidValue);
  }
  char entry[128];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  pthread_mutex_lock(&lock);
  struct jcf_library **at = find_library(library);
  const char *found = at == NULL ? NULL : strstr(library->code, entry);
  const struct jcf_host_kernel *host = jcf_host_kernels;
  while (found != NULL && host != NULL && strcmp(host->name, name) != 0) {
    host = host->next;
  }
  if (found != NULL) {
    if (host == NULL) {
      fprintf(stderr, "jccl fake: kernel %s is in the PTX, but not in src/main/cuda\n", name);
      abort();
    }
    check_parameters(found, host);
    struct jcf_kernel *k = library->kernels;
    while (k != NULL && k->host != host) {
      k = k->next;
    }
    if (k == NULL) {
      k = need(calloc(1, sizeof *k));
      *k = (struct jcf_kernel){library, host, library->kernels};
      library->kernels = k;
    }
    *kernel = k;
  }
  pthread_mutex_unlock(&lock);
  return jcf_fail(at == NULL  ? cudaErrorInvalidResourceHandle
          : found == NULL ? cudaErrorSymbolNotFound
                          : cudaSuccess);
}

/* With the lock: what a handle stands for, or NULL. */
static struct jcf_kernel *find_kernel(const void *handle) {
  for (struct jcf_library *l = libraries; l != NULL; l = l->next) {
    for (struct jcf_kernel *k = l->kernels; k != NULL; k = k->next) {
      if (k == handle) {
        return k;
      }
    }
  }
  return NULL;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *func) {
  ENTER(cudaFuncGetAttributes);
  if (attributes == NULL) {
    return jcf_fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_kernel *k = find_kernel(func);
  if (k != NULL) {
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = BLOCK_LIMIT;
    attributes->numRegs = 32;
    attributes->ptxVersion = k->library->target;
    attributes->binaryVersion = k->library->target;
    attributes->maxDynamicSharedSizeBytes = SHARED_LIMIT;
  }
  pthread_mutex_unlock(&lock);
  return jcf_fail(k == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

/* ---- launches */

/*
 * The error of a kernel that uses an address: memory of this device, of a peer with access, managed
 * or pinned, at a multiple of the size of what is there.
 */
static int check_address(int device, const void *address, unsigned align) {
  struct jcf_memory m = jcf_memory_of(address);
  bool reaches = !m.bad && m.type != cudaMemoryTypeUnregistered
      && (m.type != cudaMemoryTypeDevice || m.device == device
          || jcf_peer_enabled(device, m.device));
  return !reaches                          ? cudaErrorIllegalAddress
      : (uintptr_t)address % align != 0 ? cudaErrorMisalignedAddress
                                        : 0;
}

static void run(void *arg) {
  struct launch *l = arg;
  if (jcf_sticky() != 0) {
    return;
  }
  char values[MOST_PARAMETERS][PARAMETER_ROOM];
  const char *at[MOST_PARAMETERS];
  for (int i = 0; i < l->host->nparameters; i++) {
    memcpy(values[i], l->values[i], PARAMETER_ROOM);
    at[i] = values[i];
    void *address;
    memcpy(&address, values[i], sizeof address);
    if (l->host->parameters[i].align != 0 && address != NULL) {
      int error = check_address(l->device, address, l->host->parameters[i].align);
      if (error != 0) {
        jccl_fake_sticky(error);
        return;
      }
      address = jcf_stored(address);
      memcpy(values[i], &address, sizeof address);
    }
  }
  if (l->sticky != 0) {
    jccl_fake_sticky(l->sticky);
    return;
  }
  jcf_run_blocks(l->host, at, l->grid, l->block, l->reversed);
}

static void use(void *arg) { atomic_fetch_add(&((struct launch *)arg)->uses, 1); }

static void drop(void *arg) {
  if (atomic_fetch_sub(&((struct launch *)arg)->uses, 1) == 1) {
    free(arg);
  }
}

static void launch_captured(void *arg, struct jcf_stream *s) {
  use(arg);
  jcf_stream_done(jcf_enqueue(s, run, drop, arg, NULL, 0).stream);
}

static cudaError_t check_configuration(const cudaLaunchConfig_t *c) {
  const unsigned *g = c->gridDim, *b = c->blockDim;
  /* Programming Guide, table of technical specifications per compute capability. */
  bool grid = g[0] > 0 && g[1] > 0 && g[2] > 0 && g[0] <= 0x7fffffff && g[1] <= 65535
      && g[2] <= 65535;
  bool block = b[0] > 0 && b[1] > 0 && b[2] > 0 && b[0] <= BLOCK_LIMIT && b[1] <= BLOCK_LIMIT
      && b[2] <= 64 && (size_t)b[0] * b[1] * b[2] <= BLOCK_LIMIT;
  return !grid || !block                     ? cudaErrorInvalidConfiguration
      : c->dynamicSmemBytes > SHARED_LIMIT ? cudaErrorInvalidValue
      : c->numAttrs > 0                      ? cudaErrorNotSupported
                                             : cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(
    const cudaLaunchConfig_t *config, const void *func, void **args) {
  static struct jcf_fn fn = {.name = "cudaLaunchKernelExC"};
  struct jcf_hit hit;
  cudaError_t error = jcf_runtime_enter(&fn, &hit);
  if (error != cudaSuccess) {
    return jcf_fail(error);
  }
  if (config == NULL || func == NULL) {
    return jcf_fail(config == NULL ? cudaErrorInvalidValue : cudaErrorInvalidDeviceFunction);
  }
  pthread_mutex_lock(&lock);
  struct jcf_kernel *k = find_kernel(func);
  const struct jcf_host_kernel *host = k == NULL ? NULL : k->host;
  pthread_mutex_unlock(&lock);
  error = host == NULL ? cudaErrorInvalidDeviceFunction : check_configuration(config);
  if (error == cudaSuccess && args == NULL && host->nparameters > 0) {
    error = cudaErrorInvalidValue;
  }
  int device = 0;
  error = error != cudaSuccess ? error : cudaGetDevice(&device);
  struct jcf_stream *s = error != cudaSuccess ? NULL : jcf_stream_use(config->stream, device);
  /* "A kernel launch will fail if it is issued to a stream that is not associated to the current
     device" (Programming Guide, Stream and Event Behavior). */
  if (error == cudaSuccess && (s == NULL || jcf_stream_device(s) != device)) {
    error = cudaErrorInvalidResourceHandle;
  }
  if (error == cudaSuccess) {
    struct launch *l = need(calloc(1, sizeof *l));
    *l = (struct launch){.host = host, .device = device, .sticky = hit.async};
    memcpy(l->grid, config->gridDim, sizeof l->grid);
    memcpy(l->block, config->blockDim, sizeof l->block);
    l->reversed = atomic_load(&reversed) != 0;
    atomic_init(&l->uses, 1);
    for (int i = 0; i < host->nparameters; i++) {
      memcpy(l->values[i], args[i], host->parameters[i].size);
    }
    void *capture = jcf_capture_of(s, &error);
    if (error != cudaSuccess) {
      free(l);
    } else if (capture != NULL) {
      jcf_capture_node(&s, 1, launch_captured, use, drop, l);
    } else {
      jcf_stream_done(jcf_enqueue(s, run, drop, l, NULL, 0).stream);
    }
  }
  if (s != NULL) {
    jcf_stream_done(s);
  }
  return jcf_fail(error);
}
