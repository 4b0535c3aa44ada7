/*
 * The functions of the CUDA driver that the fake of the runtime hands out (cudaGetDriverEntryPoint):
 * they load PTX and cubins, find kernels, and launch those that were compiled for the CPU too
 * (kernel_cpu.cc). Rules are those of cuda.h of CUDA 13.0 and, where it says so, of the CUDA C++
 * Programming Guide 13.0. What a kernel would meet only while it runs, such as an
 * address that is not its device's, makes the sticky error.
 */
#include <ctype.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_internal.h"
#include "kernel_fake.h"

enum { MOST_PARAMETERS = 32, PARAMETER_ROOM = 8, SHARED_LIMIT = 48 << 10, BLOCK_LIMIT = 1024 };
enum { MAX_THREADS_PER_BLOCK = 0, NUM_REGS = 4, PTX_VERSION = 5, BINARY_VERSION = 6 };
enum { CUBIN_OF_CUDA_13 = 8 }; /* the version of the ABI in the header of its ELF files */

struct jcf_function {
  struct jcf_kernel *kernel; /* not NULL once it is loaded in a device's context */
  int device;
};

struct jcf_kernel {
  struct jcf_library *library;
  const struct jcf_host_kernel *host;
  struct jcf_function functions[JCF_MOST_DEVICES];
  struct jcf_kernel *next;
};

struct jcf_library {
  char *code;
  size_t size;
  int target; /* compute capability, times 10 */
  bool cubin;
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
static atomic_int reversed; /* bit d: device d */

void jccl_fake_threads_reversed(int devices) { atomic_store(&reversed, devices); }

static void *need(void *p) {
  if (p == NULL) {
    fprintf(stderr, "jccl fake: the machine is out of memory\n");
    abort();
  }
  return p;
}

#define ENTER(function, who) \
  static struct jcf_fn fn_ = {.name = #function}; \
  struct jcf_hit hit_; \
  int entered_ = jcf_driver_enter(&fn_, who, &hit_); \
  if (entered_ != cudaSuccess) { \
    return entered_; \
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

/* PTX is text, and names what it needs in its first lines. */
static int check_ptx(const char *code, int *target) {
  int version = number_of(code, ".version");
  const char *at = strstr(code, ".target sm_");
  if (version < 0 || at == NULL || strstr(code, ".address_size 64") == NULL) {
    return cudaErrorInvalidPtx;
  }
  *target = atoi(at + strlen(".target sm_"));
  return version > newest_isa(jcf_driver_version()) ? cudaErrorUnsupportedPtxVersion : cudaSuccess;
}

/*
 * A cubin is an ELF file. NVIDIA does not document its flags: as nvcc 13.0 and 12 write them, the
 * architecture is in the second byte or, in their older ABI, in the first one. That a driver of
 * CUDA 12 refuses the newer ABI is assumed; CUDA Compatibility only says that what a toolkit makes
 * runs with drivers of its major version and newer ones.
 */
static int check_cubin(const Elf64_Ehdr *elf, int *target) {
  bool newer = elf->e_ident[EI_ABIVERSION] >= CUBIN_OF_CUDA_13;
  *target = (int)(newer ? elf->e_flags >> 8 & 0xff : elf->e_flags & 0xff);
  return elf->e_machine != EM_CUDA || elf->e_ident[EI_CLASS] != ELFCLASS64
          || (newer && jcf_driver_version() < 13000)
      ? cudaErrorInvalidKernelImage
      : cudaSuccess;
}

static size_t size_of_elf(const Elf64_Ehdr *elf) {
  size_t sections = elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
  size_t segments = elf->e_phoff + (size_t)elf->e_phnum * elf->e_phentsize;
  return sections > segments ? sections : segments;
}

/*
 * Programming Guide, "Binary Compatibility" and "PTX Compatibility": a cubin runs on devices of its
 * major capability whose minor one is as high or higher, PTX of a capability on all from that on.
 */
static bool runs_on_devices(const struct jcf_library *l) {
  int has = jcf_capability();
  return has >= l->target && (!l->cubin || has / 10 == l->target / 10);
}

/* What code is loaded for later, since CUDA 12.2, unless the variable says otherwise. */
static bool is_eager(void) {
  const char *mode = getenv("CUDA_MODULE_LOADING");
  return mode != NULL && strcmp(mode, "EAGER") == 0;
}

static int cuLibraryLoadData(CUlibrary *library, const void *code, int *jitOptions,
    void **jitOptionsValues, unsigned numJitOptions, int *libraryOptions,
    void **libraryOptionValues, unsigned numLibraryOptions) {
  ENTER(cuLibraryLoadData, jcf_current_context());
  if (library == NULL || code == NULL || (numJitOptions > 0 && jitOptions == NULL)
      || (numJitOptions > 0 && jitOptionsValues == NULL)
      || (numLibraryOptions > 0 && (libraryOptions == NULL || libraryOptionValues == NULL))) {
    return cudaErrorInvalidValue;
  }
  struct jcf_library made = {.cubin = memcmp(code, ELFMAG, SELFMAG) == 0};
  int error = made.cubin ? check_cubin(code, &made.target) : check_ptx(code, &made.target);
  if (error == cudaSuccess && is_eager() && !runs_on_devices(&made)) {
    error = cudaErrorNoKernelImageForDevice;
  }
  if (error == cudaSuccess) {
    struct jcf_library *l = need(malloc(sizeof *l));
    made.size = made.cubin ? size_of_elf(code) : strlen(code) + 1;
    made.code = need(malloc(made.size));
    memcpy(made.code, code, made.size);
    pthread_mutex_lock(&lock);
    made.next = libraries;
    *l = made;
    libraries = l;
    pthread_mutex_unlock(&lock);
    *library = l;
  }
  return error;
}

static struct jcf_library **find_library(CUlibrary library) {
  struct jcf_library **at = &libraries;
  while (*at != NULL && *at != library) {
    at = &(*at)->next;
  }
  return *at == NULL ? NULL : at;
}

static int cuLibraryUnload(CUlibrary library) {
  ENTER(cuLibraryUnload, jcf_current_context());
  pthread_mutex_lock(&lock);
  struct jcf_library **at = find_library(library);
  if (at != NULL) {
    *at = library->next;
  }
  pthread_mutex_unlock(&lock);
  if (at == NULL) {
    return cudaErrorInvalidValue;
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

/* A cubin has a section for the code of each kernel. */
static bool has_kernel(const struct jcf_library *l, const char *name) {
  const Elf64_Ehdr *elf = (const void *)l->code;
  const Elf64_Shdr *sections = (const void *)(l->code + elf->e_shoff);
  const char *names = l->code + sections[elf->e_shstrndx].sh_offset;
  for (int i = 0; i < elf->e_shnum; i++) {
    const char *section = names + sections[i].sh_name;
    if (strncmp(section, ".text.", strlen(".text.")) == 0
        && strcmp(section + strlen(".text."), name) == 0) {
      return true;
    }
  }
  return false;
}

/* Whether a library has a kernel; ends the process if its PTX is not that of the source. */
static bool find_entry(const struct jcf_library *l, const char *name,
    const struct jcf_host_kernel *host) {
  char text[128];
  if (l->cubin) {
    return has_kernel(l, name); /* that its parameters are right is seen in the PTX */
  }
  snprintf(text, sizeof text, ".entry %s(", name);
  const char *entry = strstr(l->code, text);
  if (entry != NULL && host != NULL) {
    check_parameters(entry, host);
  }
  return entry != NULL;
}

static int cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  ENTER(cuLibraryGetKernel, jcf_current_context());
  if (kernel == NULL || name == NULL) {
    return cudaErrorInvalidValue;
  }
  const struct jcf_host_kernel *host = jcf_host_kernels;
  while (host != NULL && strcmp(host->name, name) != 0) {
    host = host->next;
  }
  pthread_mutex_lock(&lock);
  struct jcf_library **at = find_library(library);
  bool found = at != NULL && find_entry(library, name, host);
  if (found) {
    if (host == NULL) {
      fprintf(stderr, "jccl fake: kernel %s is in the image, but not in src/main/cuda\n", name);
      abort();
    }
    struct jcf_kernel *k = library->kernels;
    while (k != NULL && k->host != host) {
      k = k->next;
    }
    if (k == NULL) {
      k = need(calloc(1, sizeof *k));
      *k = (struct jcf_kernel){.library = library, .host = host, .next = library->kernels};
      library->kernels = k;
    }
    *kernel = k;
  }
  pthread_mutex_unlock(&lock);
  return at == NULL ? cudaErrorInvalidResourceHandle : found ? cudaSuccess : cudaErrorSymbolNotFound;
}

/* With the lock: what a handle stands for, or NULL. *device is changed for that of a function. */
static struct jcf_kernel *find_kernel(const void *handle, int *device) {
  for (struct jcf_library *l = libraries; l != NULL; l = l->next) {
    for (struct jcf_kernel *k = l->kernels; k != NULL; k = k->next) {
      if (k == handle) {
        return k;
      }
      const struct jcf_function *f = handle;
      if (f >= k->functions && f < k->functions + JCF_MOST_DEVICES) {
        *device = (int)(f - k->functions);
        return f->kernel;
      }
    }
  }
  return NULL;
}

/* With the lock: loads a kernel in a device's context, at its first use there. */
static int load_kernel(struct jcf_kernel *k, int device) {
  if (k->functions[device].kernel == NULL && !runs_on_devices(k->library)) {
    return cudaErrorNoKernelImageForDevice;
  }
  k->functions[device] = (struct jcf_function){k, device};
  return cudaSuccess;
}

static int cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  ENTER(cuKernelGetFunction, jcf_current_context());
  int device = jcf_current_context(), ignored;
  if (function == NULL || device < 0) {
    return function == NULL ? cudaErrorInvalidValue : cudaErrorDeviceUninitialized;
  }
  pthread_mutex_lock(&lock);
  struct jcf_kernel *k = find_kernel(kernel, &ignored);
  int error = k == NULL || (void *)k != (void *)kernel ? cudaErrorInvalidResourceHandle
                                                       : load_kernel(k, device);
  if (error == cudaSuccess) {
    *function = &k->functions[device];
  }
  pthread_mutex_unlock(&lock);
  return error;
}

static int cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  ENTER(cuFuncGetAttribute, jcf_current_context());
  if (value == NULL || attribute < 0) {
    return cudaErrorInvalidValue;
  }
  int device = -1;
  pthread_mutex_lock(&lock);
  struct jcf_kernel *k = find_kernel(function, &device);
  if (k != NULL && device >= 0) {
    switch (attribute) {
      case MAX_THREADS_PER_BLOCK: *value = BLOCK_LIMIT; break;
      case NUM_REGS: *value = 32; break;
      case PTX_VERSION: *value = k->library->target; break;
      case BINARY_VERSION:
        *value = k->library->cubin ? k->library->target : jcf_capability();
        break;
      default: *value = 0;
    }
  }
  pthread_mutex_unlock(&lock);
  return k == NULL || device < 0 ? cudaErrorInvalidResourceHandle : cudaSuccess;
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

/* Programming Guide, table of technical specifications per compute capability. */
static bool is_configuration(const unsigned *g, const unsigned *b, unsigned shared) {
  bool grid = g[0] > 0 && g[1] > 0 && g[2] > 0 && g[0] <= 0x7fffffff && g[1] <= 65535
      && g[2] <= 65535;
  bool block = b[0] > 0 && b[1] > 0 && b[2] > 0 && b[0] <= BLOCK_LIMIT && b[1] <= BLOCK_LIMIT
      && b[2] <= 64 && (size_t)b[0] * b[1] * b[2] <= BLOCK_LIMIT;
  return grid && block && shared <= SHARED_LIMIT;
}

static int enqueue_launch(struct jcf_stream *s, const struct launch *wanted, void **params) {
  struct launch *l = need(malloc(sizeof *l));
  *l = *wanted;
  l->reversed = atomic_load(&reversed) >> l->device & 1;
  atomic_init(&l->uses, 1);
  for (int i = 0; i < l->host->nparameters; i++) {
    memcpy(l->values[i], params[i], l->host->parameters[i].size);
  }
  int error = cudaSuccess;
  void *capture = jcf_capture_of(s, &error);
  if (error != cudaSuccess) {
    free(l);
  } else if (capture != NULL) {
    jcf_capture_node(&s, 1, launch_captured, use, drop, l);
  } else {
    jcf_launch(s, run, drop, l);
  }
  return error;
}

/*
 * A kernel runs in the context of its stream, or the current one if the stream is NULL, whatever
 * context is current; a function in its own, which has to be the stream's.
 */
static int launch_on(struct jcf_stream *s, CUfunction f, struct launch *l, unsigned shared,
    void **params) {
  l->device = jcf_stream_device(s);
  int device = l->device;
  pthread_mutex_lock(&lock);
  struct jcf_kernel *k = find_kernel(f, &device);
  int error = k == NULL || device != l->device ? cudaErrorInvalidResourceHandle
                                               : load_kernel(k, device);
  l->host = k == NULL ? NULL : k->host;
  pthread_mutex_unlock(&lock);
  if (error != cudaSuccess) {
    return error;
  }
  return !is_configuration(l->grid, l->block, shared) || (params == NULL && l->host->nparameters > 0)
      ? cudaErrorInvalidValue
      : enqueue_launch(s, l, params);
}

static int cuLaunchKernel(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
    unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes,
    cudaStream_t stream, void **kernelParams, void **extra) {
  int context = jcf_current_context();
  struct jcf_stream *s = stream == NULL && context < 0 ? NULL : jcf_stream_use(stream, context);
  static struct jcf_fn fn = {.name = "cuLaunchKernel"};
  struct jcf_hit hit;
  int error = jcf_driver_enter(&fn, s == NULL ? context : jcf_stream_device(s), &hit);
  if (error == cudaSuccess && extra != NULL) {
    error = kernelParams != NULL ? cudaErrorInvalidValue : cudaErrorNotSupported;
  }
  if (error == cudaSuccess && s == NULL) {
    error = stream == NULL ? cudaErrorDeviceUninitialized : cudaErrorInvalidResourceHandle;
  }
  if (error == cudaSuccess) {
    struct launch l = {.grid = {gridDimX, gridDimY, gridDimZ},
        .block = {blockDimX, blockDimY, blockDimZ}, .sticky = hit.async};
    error = launch_on(s, f, &l, sharedMemBytes, kernelParams);
  }
  if (s != NULL) {
    jcf_stream_done(s);
  }
  return error;
}

void *jcf_driver_function(const char *name) {
#define FUNCTION(f) {#f, (void *)f}
  static const struct {
    const char *name;
    void *address;
  } functions[] = {FUNCTION(cuLibraryLoadData), FUNCTION(cuLibraryUnload),
      FUNCTION(cuLibraryGetKernel), FUNCTION(cuKernelGetFunction), FUNCTION(cuFuncGetAttribute),
      FUNCTION(cuLaunchKernel)};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(functions[i].name, name) == 0) {
      return functions[i].address;
    }
  }
  return NULL;
}
