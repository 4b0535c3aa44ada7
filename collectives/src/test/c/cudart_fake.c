/*
 * A fake of the CUDA runtime: host memory as device memory, a thread per stream, CUDA's
 * order of streams and events. README.md says how it differs from the real one.
 *
 * One lock guards everything but the data that streams move; what a stream runs, it runs without
 * the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake_internal.h"

enum {
  MOST_DEVICES = JCF_MOST_DEVICES,
  ALIGNMENT = 512,
  FRESH = 0xA5,  /* what is in new memory */
  FREED = 0xDD,  /* what is in memory that was given back */
  MOST_KEPT = 256, /* freed blocks of a region that are not reused yet */
  EVENT_SLOTS = 1024,
  MOST_QUEUED = 1021 /* cuda_rules.txt, depth: copies, memsets and kernels of a stream */
};

/*
 * A larger copy from pageable memory waits for its stream: "API synchronization behavior" of the
 * runtime's documentation, and held.memcpy_async.pageable_to_device of cuda_rules.txt.
 */
static const size_t STAGED_AT_ONCE = 64 << 10;

static const size_t FILL_LIMIT = (size_t)64 << 20; /* of a block: the rest keeps what it has */
static const size_t KEPT_LIMIT = (size_t)16 << 20; /* bytes of a region in freed blocks */
static const size_t PAGE = 4096;
static const size_t CONTROL = (size_t)EVENT_SLOTS * 64;

/* ---- state */

struct op {
  struct op *next;
  uint64_t seq;
  jcf_call run, release;
  void *arg;
  int ndeps;
  struct jcf_dep *deps;
  bool counted; /* among queued of its stream */
};

struct jcf_stream {
  int device;
  unsigned flags;
  int priority;
  unsigned long long id;
  bool legacy, implicit, destroyed, working;
  int uses, queued;
  uint64_t submitted, completed;
  struct op *head, *tail;
  pthread_cond_t work, done;
  struct capture *capture;
  struct jcf_node **last; /* while capturing: what the next node follows */
  int nlast;
  struct jcf_stream *next;
};

/* A recording of an event. */
struct record {
  int uses;
  struct jcf_dep at;
  double ms;
};

/* The state of an event that several processes use, in the arena of the one that made it. */
struct slot {
  _Atomic uint64_t recorded, done;
  _Atomic uint32_t bell;
  uint32_t taken;
};

struct jcf_event {
  unsigned flags;
  int device;
  bool imported;
  struct record *latest;
  struct slot *slot;
  struct capture *capture;
  struct jcf_node **last;
  int nlast;
  struct jcf_event *next;
};

enum state { LIVE, DYING, KEPT };
enum kind { DEVICE, HOST, MANAGED, REGISTERED, IMPORTED };

struct block {
  uintptr_t base;
  size_t size; /* as asked for */
  size_t room; /* what it occupies */
  enum kind kind;
  enum state state;
  int device, region;
  unsigned flags;
  bool nccl, scratch, freed_async;
  struct jcf_pool *pool;
};

struct region {
  uintptr_t base;
  size_t size;
  size_t kept;
  int nkept;
  uintptr_t kept_blocks[MOST_KEPT]; /* oldest first */
};

struct jcf_pool {
  int device, uses;
  bool own, destroyed;
  int reuse[3];
  uint64_t threshold, reserved, reserved_high, used, used_high;
  int access[MOST_DEVICES];
  struct jcf_pool *next;
};

struct device {
  size_t used;
  unsigned flags;
  size_t limits[7];
  struct jcf_stream *legacy;
  struct jcf_pool *default_pool, *pool;
  bool peers[MOST_DEVICES];
  pthread_mutex_t host_functions; /* held while one runs */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static int ndevices, runtime_version = 13000, driver_version = 13000;
static bool peers_possible = true;
static atomic_int capability = 90; /* of all devices, times 10 */
static __thread int bound = -1; /* the device whose context is the thread's current one */
static size_t memory_size = (size_t)1 << 30, host_size = (size_t)8 << 30;
static struct device devices[MOST_DEVICES];
static struct region regions[MOST_DEVICES + 1]; /* the last one for host memory */
/*
 * The memory is there twice: under the addresses that callers get, where that of devices cannot be
 * touched, and in a store that only the fakes use. So a program that follows a device pointer on
 * the CPU ends as it would with a GPU.
 */
static char *arena, *store;
static uintptr_t devices_end;
static struct jcf_process self;
static struct block *blocks; /* by address */
static int nblocks, blocks_room;
static struct jcf_stream *streams;
static struct jcf_event *events;
static struct jcf_pool *pools;
static struct jcf_graph *graphs;
static struct jcf_exec *execs;
static struct capture *captures;
static unsigned long long next_stream_id = 1;
static atomic_int sticky;
static pthread_key_t thread_key;

static __thread int last_error;
static __thread int current;
static __thread bool on_stream_thread;
static __thread int capture_mode = cudaStreamCaptureModeGlobal;
static __thread char self_tag; /* its address names the thread */

static void *need(void *p) {
  if (p == NULL) {
    fprintf(stderr, "jccl fake: the machine is out of memory\n");
    abort();
  }
  return p;
}

static size_t setting(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text == NULL || *text == 0 ? otherwise : (size_t)strtoull(text, NULL, 10);
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* State and start time of a process, from /proc; 0 if it is gone or only waits to be reaped. */
static uint64_t start_time(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return 0;
  }
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) {
    return 0;
  }
  text[n] = 0;
  char *at = strrchr(text, ')'); /* the name before it may hold anything */
  char state = 0;
  unsigned long long start = 0;
  if (at == NULL
      || sscanf(at + 1,
             " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &state, &start)
          != 2
      || state == 'Z' || state == 'X') {
    return 0;
  }
  return start;
}

static void thread_ended(void *streams_of_thread);

static void start(void) {
  ndevices = (int)setting("JCCL_FAKE_DEVICES", 8);
  ndevices = ndevices > MOST_DEVICES ? MOST_DEVICES : ndevices;
  memory_size = setting("JCCL_FAKE_MEMORY", memory_size) / PAGE * PAGE;
  runtime_version = (int)setting("JCCL_FAKE_RUNTIME_VERSION", (size_t)runtime_version);
  driver_version = (int)setting("JCCL_FAKE_DRIVER_VERSION", (size_t)driver_version);
  peers_possible = setting("JCCL_FAKE_PEERS", 1) != 0;
  atomic_store(&capability, (int)setting("JCCL_FAKE_CAPABILITY", (size_t)capability));
  /* Twice the memory in addresses, so that fragments do not make a device look full. */
  size_t room = 2 * memory_size + ((size_t)64 << 20);
  size_t total = CONTROL + room * (size_t)ndevices + host_size;
  int fd = memfd_create("jccl-fake", MFD_CLOEXEC);
  void *map = MAP_FAILED, *again = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, (off_t)total) == 0) {
    map = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    again = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  }
  if (map == MAP_FAILED || again == MAP_FAILED) {
    fprintf(stderr, "jccl fake: no memory of %zu bytes: %s\n", total, strerror(errno));
    abort();
  }
  arena = map;
  store = again;
  devices_end = (uintptr_t)arena + CONTROL + room * (size_t)ndevices;
  if (setting("JCCL_FAKE_GUARD", 1) != 0) {
    mprotect(arena, CONTROL + room * (size_t)ndevices, PROT_NONE);
  }
  uintptr_t at = (uintptr_t)arena + CONTROL;
  for (int d = 0; d <= ndevices; d++) {
    regions[d].base = at;
    regions[d].size = d < ndevices ? room : host_size;
    at += regions[d].size;
  }
  for (int d = 0; d < ndevices; d++) {
    const size_t limits[7] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
    memcpy(devices[d].limits, limits, sizeof limits);
    pthread_mutex_init(&devices[d].host_functions, NULL);
  }
  self.pid = (int32_t)getpid();
  self.started = start_time(self.pid);
  self.arena_fd = fd;
  self.arena_size = total;
  pthread_key_create(&thread_key, thread_ended);
}

/* ---- errors */

static cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

/* What a call needs. With NEEDS_CONTEXT it makes that of the thread's device if there is none yet. */
enum need { NEEDS_NOTHING, NEEDS_DEVICES, NEEDS_CONTEXT };

void jccl_fake_capability(int tenfold) { atomic_store(&capability, tenfold); }

static atomic_uint contexts; /* a bit for each device of which this process has a context */

int jccl_fake_contexts(void) { return (int)atomic_load(&contexts); }

static void make_context(int device) {
  if ((atomic_load_explicit(&contexts, memory_order_relaxed) & 1U << device) == 0) {
    atomic_fetch_or(&contexts, 1U << device);
  }
}

static cudaError_t enter_hit(struct jcf_fn *fn, enum need needs, int who, struct jcf_hit *hit) {
  pthread_once(&started, start);
  jcf_enter(fn, who, hit);
  if (hit->hang) {
    jcf_hang(NULL);
  }
  int dead = atomic_load_explicit(&sticky, memory_order_relaxed);
  if (dead != 0) {
    return dead;
  }
  if (hit->error != 0) {
    return hit->error;
  }
  if (needs != NEEDS_NOTHING) {
    if (on_stream_thread) {
      return cudaErrorNotPermitted; /* a host function called CUDA */
    }
    if (driver_version / 1000 < runtime_version / 1000) {
      return cudaErrorInsufficientDriver;
    }
    if (ndevices == 0) {
      return cudaErrorNoDevice;
    }
  }
  if (needs == NEEDS_CONTEXT) {
    make_context(current);
    bound = current;
  }
  return cudaSuccess;
}

static cudaError_t enter(struct jcf_fn *fn, enum need needs) {
  struct jcf_hit hit;
  return enter_hit(fn, needs, current, &hit);
}

cudaError_t jcf_runtime_enter(struct jcf_fn *fn, struct jcf_hit *hit) {
  return enter_hit(fn, NEEDS_CONTEXT, current, hit);
}

/*
 * cuda.h: a function of the driver makes no context, and CUDA_ERROR_NOT_INITIALIZED before cuInit,
 * which the runtime calls when it makes one.
 */
cudaError_t jcf_driver_enter(struct jcf_fn *fn, int who, struct jcf_hit *hit) {
  cudaError_t error = enter_hit(fn, NEEDS_DEVICES, who, hit);
  return error == cudaSuccess && atomic_load(&contexts) == 0 ? cudaErrorInitializationError : error;
}

int jcf_current_context(void) { return bound; }

int jcf_capability(void) { return atomic_load(&capability); }

int jcf_driver_version(void) { return driver_version; }

cudaError_t jcf_fail(cudaError_t error) { return fail(error); }

#define ENTER_ANY(function, needs) \
  static struct jcf_fn fn_ = {.name = #function}; \
  cudaError_t entered_ = enter(&fn_, needs); \
  if (entered_ != cudaSuccess) { \
    return fail(entered_); \
  }
#define ENTER(function) ENTER_ANY(function, NEEDS_CONTEXT)

int jcf_sticky(void) { return atomic_load(&sticky); }

/*
 * The result of a call that finds work complete: the error of that work, which may have come since
 * the call was entered. "This function may also return error codes from previous, asynchronous
 * launches" (cudaStreamQuery, cudaEventQuery, cudaMemcpy and the synchronizing functions).
 */
static cudaError_t failure(void) { return atomic_load(&sticky); }

void jccl_fake_sticky(int error) { atomic_store(&sticky, error); }

#define ERRORS(E) \
  E(cudaSuccess, 0, "no error") \
  E(cudaErrorInvalidValue, 1, "invalid argument") \
  E(cudaErrorMemoryAllocation, 2, "out of memory") \
  E(cudaErrorInitializationError, 3, "initialization error") \
  E(cudaErrorCudartUnloading, 4, "the runtime is being unloaded") \
  E(cudaErrorInvalidConfiguration, 9, "invalid configuration") \
  E(cudaErrorInvalidPitchValue, 12, "invalid pitch") \
  E(cudaErrorInvalidDevicePointer, 17, "invalid device pointer") \
  E(cudaErrorInvalidMemcpyDirection, 21, "invalid direction of a copy") \
  E(cudaErrorInsufficientDriver, 35, "the driver is older than the runtime") \
  E(cudaErrorDevicesUnavailable, 46, "all devices are busy") \
  E(cudaErrorInvalidDeviceFunction, 98, "invalid device function") \
  E(cudaErrorNoDevice, 100, "no device") \
  E(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
  E(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid") \
  E(cudaErrorDeviceUninitialized, 201, "invalid device context") \
  E(cudaErrorNoKernelImageForDevice, 209, "no kernel image for the device") \
  E(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error") \
  E(cudaErrorUnsupportedLimit, 215, "unsupported limit") \
  E(cudaErrorPeerAccessUnsupported, 217, "peer access is not possible") \
  E(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed") \
  E(cudaErrorNvlinkUncorrectable, 220, "uncorrectable NVLink error") \
  E(cudaErrorUnsupportedPtxVersion, 222, "the PTX was compiled with an unsupported toolchain") \
  E(cudaErrorContained, 226, "contained memory error") \
  E(cudaErrorOperatingSystem, 304, "the operating system refused") \
  E(cudaErrorInvalidResourceHandle, 400, "invalid handle") \
  E(cudaErrorIllegalState, 401, "not in the state for this call") \
  E(cudaErrorSymbolNotFound, 500, "named symbol not found") \
  E(cudaErrorNotReady, 600, "not ready") \
  E(cudaErrorIllegalAddress, 700, "illegal memory access") \
  E(cudaErrorLaunchOutOfResources, 701, "too many resources asked for") \
  E(cudaErrorLaunchTimeout, 702, "launch timed out") \
  E(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is enabled already") \
  E(cudaErrorPeerAccessNotEnabled, 705, "peer access is not enabled") \
  E(cudaErrorContextIsDestroyed, 709, "context is destroyed") \
  E(cudaErrorAssert, 710, "device-side assertion") \
  E(cudaErrorHostMemoryAlreadyRegistered, 712, "memory is registered already") \
  E(cudaErrorHostMemoryNotRegistered, 713, "memory is not registered") \
  E(cudaErrorHardwareStackError, 714, "hardware stack error") \
  E(cudaErrorIllegalInstruction, 715, "illegal instruction") \
  E(cudaErrorMisalignedAddress, 716, "misaligned address") \
  E(cudaErrorInvalidAddressSpace, 717, "invalid address space") \
  E(cudaErrorInvalidPc, 718, "invalid program counter") \
  E(cudaErrorLaunchFailure, 719, "launch failed") \
  E(cudaErrorTensorMemoryLeak, 721, "tensor memory leaked") \
  E(cudaErrorNotPermitted, 800, "not permitted") \
  E(cudaErrorNotSupported, 801, "not supported") \
  E(cudaErrorSystemNotReady, 802, "system is not ready") \
  E(cudaErrorSystemDriverMismatch, 803, "driver and system do not match") \
  E(cudaErrorStreamCaptureUnsupported, 900, "not permitted while a stream is capturing") \
  E(cudaErrorStreamCaptureInvalidated, 901, "capture was invalidated") \
  E(cudaErrorStreamCaptureMerge, 902, "two captures would be merged") \
  E(cudaErrorStreamCaptureUnmatched, 903, "capture was not begun in this stream") \
  E(cudaErrorStreamCaptureUnjoined, 904, "capture has a stream that was not joined") \
  E(cudaErrorStreamCaptureIsolation, 905, "dependency on work outside the capture") \
  E(cudaErrorStreamCaptureImplicit, 906, "implicit dependency on a capturing stream") \
  E(cudaErrorCapturedEvent, 907, "event was recorded in a capture") \
  E(cudaErrorStreamCaptureWrongThread, 908, "capture was begun by another thread") \
  E(cudaErrorTimeout, 909, "wait timed out") \
  E(cudaErrorGraphExecUpdateFailure, 910, "graph was not updated") \
  E(cudaErrorUnknown, 999, "unknown error")

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(name, code, text) case code: return #name;
    ERRORS(NAME)
#undef NAME
    default: return "unrecognized error code";
  }
}

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define TEXT(name, code, text) case code: return text " (jccl fake)";
    ERRORS(TEXT)
#undef TEXT
    default: return "unrecognized error code (jccl fake)";
  }
}

cudaError_t cudaGetLastError(void) {
  static struct jcf_fn fn = {.name = "cudaGetLastError"};
  struct jcf_hit hit;
  jcf_enter(&fn, current, &hit);
  int error = hit.error != 0 ? hit.error : atomic_load(&sticky) != 0 ? sticky : last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  static struct jcf_fn fn = {.name = "cudaPeekAtLastError"};
  struct jcf_hit hit;
  jcf_enter(&fn, current, &hit);
  return hit.error != 0 ? hit.error : atomic_load(&sticky) != 0 ? sticky : last_error;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  ENTER_ANY(cudaRuntimeGetVersion, NEEDS_NOTHING);
  if (version == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  *version = runtime_version;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  ENTER_ANY(cudaDriverGetVersion, NEEDS_NOTHING);
  if (version == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  *version = driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(
    const char *symbol, void **function, unsigned long long flags, int *status) {
  ENTER_ANY(cudaGetDriverEntryPoint, NEEDS_DEVICES);
  if (symbol == NULL || function == NULL || flags > 2) {
    return fail(cudaErrorInvalidValue);
  }
  /* The functions of the fake are of CUDA 12.0: no supported runtime is too old for them. */
  *function = jcf_driver_function(symbol);
  if (status != NULL) {
    *status = *function == NULL; /* cudaDriverEntryPointSymbolNotFound */
  }
  return cudaSuccess;
}

/* ---- streams' threads */

static void stream_unuse(struct jcf_stream *s) {
  if (--s->uses == 0) {
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->done);
    free(s->last);
    free(s);
  }
}

static struct jcf_dep tail_of(struct jcf_stream *s) {
  s->uses++;
  return (struct jcf_dep){s, s->submitted};
}

static bool passed(const struct jcf_dep *d) { return d->stream->completed >= d->seq; }

static void drop_dep(struct jcf_dep *d) {
  if (d->stream != NULL) {
    stream_unuse(d->stream);
    d->stream = NULL;
  }
}

/* Waits for a point in a stream, and gives it up. */
static void await(struct jcf_dep *d) {
  while (!passed(d)) {
    pthread_cond_wait(&d->stream->done, &lock);
  }
  drop_dep(d);
}

static void unlist_stream(struct jcf_stream *s) {
  for (struct jcf_stream **at = &streams; *at != NULL; at = &(*at)->next) {
    if (*at == s) {
      *at = s->next;
      return;
    }
  }
}

static void *work(void *arg) {
  struct jcf_stream *s = arg;
  on_stream_thread = true;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (s->head == NULL && !s->destroyed) {
      pthread_cond_wait(&s->work, &lock);
    }
    struct op *op = s->head;
    if (op == NULL) {
      break;
    }
    s->head = op->next;
    s->tail = s->head == NULL ? NULL : s->tail;
    for (int i = 0; i < op->ndeps; i++) {
      await(&op->deps[i]);
    }
    pthread_mutex_unlock(&lock);
    if (op->run != NULL && atomic_load(&sticky) == 0) {
      op->run(op->arg);
    }
    if (op->release != NULL) {
      op->release(op->arg);
    }
    pthread_mutex_lock(&lock);
    s->completed = op->seq;
    s->queued -= op->counted;
    pthread_cond_broadcast(&s->done);
    free(op->deps);
    free(op);
  }
  unlist_stream(s);
  s->uses--; /* the list's; this thread's is the last but for records and waits */
  stream_unuse(s);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void put_dep(struct op *op, const struct jcf_dep *d) {
  if (passed(d)) {
    return;
  }
  op->deps = need(realloc(op->deps, (size_t)(op->ndeps + 1) * sizeof *op->deps));
  op->deps[op->ndeps++] = *d;
  d->stream->uses++;
}

/* What the order of the legacy default stream makes an operation wait for. */
static void put_legacy_deps(struct op *op, struct jcf_stream *s) {
  if (s->legacy) {
    for (struct jcf_stream *t = streams; t != NULL; t = t->next) {
      if (t != s && t->device == s->device && (t->flags & cudaStreamNonBlocking) == 0) {
        put_dep(op, &(struct jcf_dep){t, t->submitted});
      }
    }
  } else if ((s->flags & cudaStreamNonBlocking) == 0 && devices[s->device].legacy != NULL) {
    struct jcf_stream *t = devices[s->device].legacy;
    put_dep(op, &(struct jcf_dep){t, t->submitted});
  }
}

/*
 * Enqueues; takes over arg, borrows deps. With neither run nor release it is only a wait, and NULL
 * is returned if there is nothing to wait for.
 */
static struct op *enqueue(struct jcf_stream *s, jcf_call run, jcf_call release, void *arg,
    const struct jcf_dep *deps, int ndeps) {
  struct op *op = need(calloc(1, sizeof *op));
  op->run = run;
  op->release = release;
  op->arg = arg;
  for (int i = 0; i < ndeps; i++) {
    if (deps[i].stream != s) {
      put_dep(op, &deps[i]);
    }
  }
  put_legacy_deps(op, s);
  if (run == NULL && release == NULL && op->ndeps == 0) {
    free(op);
    return NULL;
  }
  op->seq = ++s->submitted;
  if (s->tail == NULL) {
    s->head = op;
  } else {
    s->tail->next = op;
  }
  s->tail = op;
  if (!s->working) {
    s->working = true;
    s->uses++;
    pthread_attr_t a;
    pthread_t thread;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &a, work, s) != 0) {
      need(NULL);
    }
    pthread_attr_destroy(&a);
  }
  pthread_cond_signal(&s->work);
  return op;
}

/* Waits until a stream has room for a copy, a memset, a kernel or a record. */
static void await_room(struct jcf_stream *s) {
  s->uses++;
  while (s->queued >= MOST_QUEUED) {
    pthread_cond_wait(&s->done, &lock);
  }
  stream_unuse(s);
}

/* An operation that takes such room until it is complete. */
static void take_room(struct jcf_stream *s, struct op *op) {
  op->counted = true;
  s->queued++;
}

static struct jcf_stream *new_stream(int device, unsigned flags, int priority) {
  struct jcf_stream *s = need(calloc(1, sizeof *s));
  s->device = device;
  s->flags = flags;
  s->priority = priority;
  s->id = next_stream_id++;
  s->uses = 1;
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->done, NULL);
  s->next = streams;
  streams = s;
  return s;
}

static void end_stream(struct jcf_stream *s) {
  s->destroyed = true;
  if (s->working) {
    pthread_cond_signal(&s->work); /* its thread takes it off the list when it is done */
  } else {
    unlist_stream(s);
    stream_unuse(s);
  }
}

static void thread_ended(void *arg) {
  struct jcf_stream **own = arg;
  pthread_mutex_lock(&lock);
  for (int d = 0; d < ndevices; d++) {
    if (own[d] != NULL) {
      end_stream(own[d]);
    }
  }
  pthread_mutex_unlock(&lock);
  free(own);
}

static struct jcf_stream *per_thread_stream(int device) {
  struct jcf_stream **own = pthread_getspecific(thread_key);
  if (own == NULL) {
    own = need(calloc(MOST_DEVICES, sizeof *own));
    pthread_setspecific(thread_key, own);
  }
  if (own[device] == NULL) {
    own[device] = new_stream(device, 0, 0);
    own[device]->implicit = true;
  }
  return own[device];
}

static struct jcf_stream *find_stream(cudaStream_t handle, int device) {
  uintptr_t h = (uintptr_t)handle;
  if (h <= 1) {
    if (devices[device].legacy == NULL) {
      devices[device].legacy = new_stream(device, 0, 0);
      devices[device].legacy->legacy = devices[device].legacy->implicit = true;
    }
    return devices[device].legacy;
  }
  if (h == 2) {
    return per_thread_stream(device);
  }
  for (struct jcf_stream *s = streams; s != NULL; s = s->next) {
    if (s == handle) {
      return s->destroyed ? NULL : s;
    }
  }
  return NULL;
}

/* Waits for all that is enqueued on a stream now; on the legacy one, for what it waits for too. */
static void sync_stream(struct jcf_stream *s) {
  if (s->legacy) {
    struct jcf_dep *deps = NULL;
    int n = 0;
    for (struct jcf_stream *t = streams; t != NULL; t = t->next) {
      if (t->device == s->device && (t->flags & cudaStreamNonBlocking) == 0) {
        deps = need(realloc(deps, (size_t)(n + 1) * sizeof *deps));
        deps[n++] = tail_of(t);
      }
    }
    for (int i = 0; i < n; i++) {
      await(&deps[i]);
    }
    free(deps);
  } else {
    struct jcf_dep d = tail_of(s);
    await(&d);
  }
}

static bool stream_idle(const struct jcf_stream *s) {
  if (s->completed < s->submitted) {
    return false;
  }
  for (struct jcf_stream *t = streams; s->legacy && t != NULL; t = t->next) {
    if (t->device == s->device && (t->flags & cudaStreamNonBlocking) == 0
        && t->completed < t->submitted) {
      return false;
    }
  }
  return true;
}

/* Whether what is put on a stream now would run at once. */
static bool runs_at_once(const struct jcf_stream *s) {
  const struct jcf_stream *l =
      (s->flags & cudaStreamNonBlocking) != 0 ? NULL : devices[s->device].legacy;
  return stream_idle(s) && (l == NULL || l->completed == l->submitted);
}

static void sync_device(int device) {
  struct jcf_dep *deps = NULL;
  int n = 0;
  for (struct jcf_stream *t = streams; t != NULL; t = t->next) {
    if (t->device == device && t->completed < t->submitted) {
      deps = need(realloc(deps, (size_t)(n + 1) * sizeof *deps));
      deps[n++] = tail_of(t);
    }
  }
  for (int i = 0; i < n; i++) {
    await(&deps[i]);
  }
  free(deps);
}

/* ---- memory */

static int block_after(uintptr_t at) { /* index of the first block whose base is above at */
  int low = 0, high = nblocks;
  while (low < high) {
    int middle = (low + high) / 2;
    if (blocks[middle].base <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static struct block *block_at(const void *ptr) { /* the block that holds an address, or NULL */
  int i = block_after((uintptr_t)ptr);
  struct block *b = i == 0 ? NULL : &blocks[i - 1];
  return b != NULL && (uintptr_t)ptr - b->base < (b->size == 0 ? 1 : b->size) ? b : NULL;
}

static struct block *live_at(const void *ptr) {
  struct block *b = block_at(ptr);
  return b != NULL && b->state == LIVE && !b->freed_async ? b : NULL;
}

static bool in_arena(const void *ptr) {
  return (uintptr_t)ptr - (uintptr_t)arena < self.arena_size;
}

/* Where the fakes find what is at an address. */
static void *stored(const void *ptr) {
  uintptr_t at = (uintptr_t)ptr;
  return at >= (uintptr_t)arena && at < devices_end ? store + (at - (uintptr_t)arena)
                                                    : (void *)at;
}

void *jcf_stored(const void *ptr) { return stored(ptr); }

static struct block *insert_block(uintptr_t base, size_t size, size_t room) {
  if (nblocks == blocks_room) {
    blocks_room = blocks_room == 0 ? 256 : 2 * blocks_room;
    blocks = need(realloc(blocks, (size_t)blocks_room * sizeof *blocks));
  }
  int i = block_after(base);
  memmove(&blocks[i + 1], &blocks[i], (size_t)(nblocks - i) * sizeof *blocks);
  nblocks++;
  blocks[i] = (struct block){.base = base, .size = size, .room = room};
  return &blocks[i];
}

static void remove_block(struct block *b) {
  int i = (int)(b - blocks);
  nblocks--;
  memmove(&blocks[i], &blocks[i + 1], (size_t)(nblocks - i) * sizeof *blocks);
}

static void forget_oldest(struct region *r) {
  struct block *b = block_at((void *)r->kept_blocks[0]);
  r->nkept--;
  memmove(&r->kept_blocks[0], &r->kept_blocks[1], (size_t)r->nkept * sizeof r->kept_blocks[0]);
  r->kept -= b->room;
  uintptr_t from = (b->base + PAGE - 1) / PAGE * PAGE;
  uintptr_t to = (b->base + b->room) / PAGE * PAGE;
  if (to > from && to - from >= (size_t)1 << 20) {
    int punched = fallocate(self.arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        (off_t)(from - (uintptr_t)arena), (off_t)(to - from));
    (void)punched; /* it only gives memory back to the system */
  }
  remove_block(b);
}

static struct block *place(struct region *r, size_t size, size_t align) {
  size_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
  uintptr_t at = (r->base + align - 1) / align * align;
  int i = block_after(r->base - 1);
  for (; i < nblocks && blocks[i].base < r->base + r->size; i++) {
    if (blocks[i].base >= at + room) {
      break;
    }
    uintptr_t end = blocks[i].base + blocks[i].room;
    at = end > at ? (end + align - 1) / align * align : at;
  }
  if (room < size || at + room > r->base + r->size) {
    return NULL;
  }
  return insert_block(at, size, room);
}

static void fill(void *where, int value, size_t size) {
  char *ptr = stored(where);
  if (size <= FILL_LIMIT) {
    memset(ptr, value, size);
  } else {
    memset(ptr, value, FILL_LIMIT / 2);
    memset(ptr + size - FILL_LIMIT / 2, value, FILL_LIMIT / 2);
  }
}

/* region: a device, or ndevices for the host. Memory that is counted has to fit the device. */
static cudaError_t allocate(void **out, size_t size, enum kind kind, int device, size_t align,
    struct jcf_pool *pool, unsigned flags, bool nccl) {
  int region = kind == DEVICE ? device : ndevices;
  pthread_mutex_lock(&lock);
  if (kind == DEVICE && (size > memory_size || devices[device].used + size > memory_size)) {
    pthread_mutex_unlock(&lock);
    return cudaErrorMemoryAllocation;
  }
  struct region *r = &regions[region];
  struct block *b = place(r, size, align);
  while (b == NULL && r->nkept > 0) {
    forget_oldest(r);
    b = place(r, size, align);
  }
  if (b == NULL) {
    pthread_mutex_unlock(&lock);
    return cudaErrorMemoryAllocation;
  }
  b->kind = kind;
  b->device = device;
  b->region = region;
  b->pool = pool;
  b->flags = flags;
  b->nccl = nccl;
  void *ptr = (void *)b->base;
  if (kind == DEVICE) {
    devices[device].used += size;
  }
  if (pool != NULL) {
    pool->uses++;
    pool->used += size;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    uint64_t whole = (pool->used + (2 << 20) - 1) >> 21 << 21;
    pool->reserved = whole > pool->reserved ? whole : pool->reserved;
    pool->reserved_high =
        pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
  }
  pthread_mutex_unlock(&lock);
  fill(ptr, FRESH, size);
  jcf_live(kind == HOST ? JCF_HOST : JCF_ALLOCATIONS, 1);
  *out = ptr;
  return cudaSuccess;
}

static void pool_unuse(struct jcf_pool *p) {
  if (--p->uses == 0) {
    for (struct jcf_pool **at = &pools; *at != NULL; at = &(*at)->next) {
      if (*at == p) {
        *at = p->next;
        break;
      }
    }
    free(p);
  }
}

/* Ends a block; called with the lock, gives it up while it fills memory. */
static void release_block(struct block *b) {
  uintptr_t base = b->base;
  size_t size = b->size;
  struct region *r = &regions[b->region];
  b->state = DYING;
  if (b->kind == DEVICE) {
    devices[b->device].used -= size;
  }
  if (b->pool != NULL) {
    b->pool->used -= size;
    pool_unuse(b->pool);
    b->pool = NULL;
  }
  if (!b->scratch) {
    jcf_live(b->kind == HOST ? JCF_HOST : JCF_ALLOCATIONS, -1);
  }
  pthread_mutex_unlock(&lock);
  fill((void *)base, FREED, size);
  pthread_mutex_lock(&lock);
  b = block_at((void *)base);
  b->state = KEPT;
  while (r->nkept == MOST_KEPT || (r->nkept > 0 && r->kept + b->room > KEPT_LIMIT)) {
    forget_oldest(r);
    b = block_at((void *)base);
  }
  r->kept_blocks[r->nkept++] = base;
  r->kept += b->room;
}

struct jcf_memory jcf_memory_of(const void *ptr) {
  struct jcf_memory m = {.type = cudaMemoryTypeUnregistered, .device = -2};
  pthread_once(&started, start);
  pthread_mutex_lock(&lock);
  struct block *b = live_at(ptr);
  if (b != NULL) {
    const int types[] = {[DEVICE] = cudaMemoryTypeDevice, [HOST] = cudaMemoryTypeHost,
        [MANAGED] = cudaMemoryTypeManaged, [REGISTERED] = cudaMemoryTypeHost,
        [IMPORTED] = cudaMemoryTypeDevice};
    m.type = types[b->kind];
    m.device = b->device;
    m.base = b->base;
    m.size = b->size;
    m.pool = b->pool != NULL;
    m.nccl = b->nccl;
  }
  m.mappable = in_arena(ptr);
  m.bad = m.mappable && b == NULL;
  m.offset = (uint64_t)((uintptr_t)ptr - (uintptr_t)arena);
  pthread_mutex_unlock(&lock);
  return m;
}

bool jcf_peer_enabled(int device, int peer) {
  pthread_mutex_lock(&lock);
  bool enabled = devices[device].peers[peer];
  pthread_mutex_unlock(&lock);
  return enabled;
}

void *jcf_scratch(size_t size) {
  pthread_once(&started, start);
  pthread_mutex_lock(&lock);
  struct block *b = place(&regions[ndevices], size, 64);
  if (b != NULL) {
    b->kind = HOST;
    b->region = ndevices;
    b->scratch = true;
  }
  void *ptr = b == NULL ? NULL : (void *)b->base;
  pthread_mutex_unlock(&lock);
  return ptr;
}

void jcf_scratch_free(void *ptr) {
  if (ptr != NULL) {
    pthread_mutex_lock(&lock);
    release_block(block_at(ptr));
    pthread_mutex_unlock(&lock);
  }
}

bool jcf_account(int device, int64_t bytes) {
  pthread_mutex_lock(&lock);
  bool fits = bytes < 0 || devices[device].used + (size_t)bytes <= memory_size;
  if (fits) {
    devices[device].used += (size_t)bytes;
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

void jcf_self(struct jcf_process *out) {
  pthread_once(&started, start);
  *out = self;
}

bool jcf_alive(const struct jcf_process *p) {
  return p->pid == self.pid || start_time(p->pid) == p->started;
}

/* Arenas of other processes stay mapped: there are as many as processes. */
struct mapped {
  struct jcf_process process;
  char *at;
  struct mapped *next;
};
static struct mapped *mapped;

char *jcf_map(const struct jcf_process *p) {
  pthread_once(&started, start);
  if (p->pid == self.pid && p->started == self.started) {
    return store;
  }
  pthread_mutex_lock(&lock);
  char *at = NULL;
  for (struct mapped *m = mapped; m != NULL; m = m->next) {
    if (m->process.pid == p->pid && m->process.started == p->started) {
      at = m->at;
    }
  }
  if (at == NULL) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", p->pid, p->arena_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED
                       : mmap(NULL, p->arena_size, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (fd >= 0) {
      close(fd);
    }
    if (map != MAP_FAILED) {
      struct mapped *m = need(malloc(sizeof *m));
      *m = (struct mapped){*p, map, mapped};
      mapped = m;
      at = map;
    }
  }
  pthread_mutex_unlock(&lock);
  return at;
}

/* ---- capture and graphs: declarations that the rest needs */

enum work { COPY, SET, CALL, NOTHING, RECORD, WAIT, CUSTOM };

struct copy {
  void *dst;
  const void *src;
  size_t dpitch, spitch, width, height;
  void *staged;
};

struct jcf_node {
  enum work work;
  struct copy copy;
  int value;
  cudaHostFn_t fn;
  void *data;
  cudaEvent_t event;
  void (*launch)(void *arg, struct jcf_stream *s);
  jcf_call use, done;
  void *arg;
  struct jcf_node **after;
  int nafter;
};

struct jcf_graph {
  struct jcf_node **nodes;
  int n;
  struct jcf_graph *next;
};

struct jcf_exec {
  struct jcf_node **nodes;
  int n;
  struct jcf_exec *next;
};

struct capture {
  struct jcf_graph *graph;
  struct jcf_stream *origin;
  int mode;
  const void *thread;
  bool invalid;
  struct capture *next;
};

/* With the lock: an error if this thread may not do what could disturb a capture. */
static cudaError_t unsafe(void) {
  cudaError_t error = cudaSuccess;
  for (struct capture *c = captures; c != NULL && capture_mode != cudaStreamCaptureModeRelaxed;
      c = c->next) {
    bool mine = c->thread == &self_tag;
    bool global = c->mode == cudaStreamCaptureModeGlobal
        && capture_mode == cudaStreamCaptureModeGlobal;
    if ((mine && c->mode != cudaStreamCaptureModeRelaxed) || global) {
      c->invalid = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

static cudaError_t unsafe_now(void) {
  pthread_mutex_lock(&lock);
  cudaError_t error = unsafe();
  pthread_mutex_unlock(&lock);
  return error;
}

/* With the lock: whether work may be put on a stream. */
static cudaError_t usable(struct jcf_stream *s) {
  if (s->capture != NULL) {
    return s->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  }
  if (s->legacy) {
    for (struct jcf_stream *t = streams; t != NULL; t = t->next) {
      if (t->capture != NULL && t->device == s->device
          && (t->flags & cudaStreamNonBlocking) == 0) {
        t->capture->invalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  return cudaSuccess;
}

static void set_last(struct jcf_node ***last, int *n, struct jcf_node **nodes, int count) {
  struct jcf_node **copy = need(malloc((size_t)(count + 1) * sizeof *copy));
  if (count > 0) {
    memcpy(copy, nodes, (size_t)count * sizeof *copy);
  }
  free(*last);
  *last = copy;
  *n = count;
}

static void add_last(struct jcf_node ***last, int *n, struct jcf_node *node) {
  for (int i = 0; i < *n; i++) {
    if ((*last)[i] == node) {
      return;
    }
  }
  *last = need(realloc(*last, (size_t)(*n + 1) * sizeof **last));
  (*last)[(*n)++] = node;
}

static struct jcf_node *add_node(struct jcf_graph *g, const struct jcf_node *what) {
  struct jcf_node *node = need(malloc(sizeof *node));
  *node = *what;
  node->after = NULL;
  node->nafter = 0;
  g->nodes = need(realloc(g->nodes, (size_t)(g->n + 1) * sizeof *g->nodes));
  g->nodes[g->n++] = node;
  return node;
}

static struct op *launch_node(struct jcf_stream *s, const struct jcf_node *what);

/* Puts work on a stream, or into the graph that it captures. */
static void put_node(struct jcf_stream *s, const struct jcf_node *what) {
  if (s->capture == NULL) {
    launch_node(s, what);
    return;
  }
  struct jcf_node *node = add_node(s->capture->graph, what);
  set_last(&node->after, &node->nafter, s->last, s->nlast);
  set_last(&s->last, &s->nlast, &node, 1);
}

/* ---- copies */

static void run_copy(void *arg) {
  struct copy *c = arg;
  const char *from = c->staged != NULL ? c->staged : stored(c->src);
  char *to = stored(c->dst);
  size_t pitch = c->staged != NULL ? c->width : c->spitch;
  for (size_t y = 0; y < c->height; y++) {
    memmove(to + y * c->dpitch, from + y * pitch, c->width);
  }
}

static void release_copy(void *arg) {
  struct copy *c = arg;
  free(c->staged);
  free(c);
}

struct set {
  void *dst;
  int value;
  size_t size;
};

static void run_set(void *arg) {
  struct set *s = arg;
  memset(stored(s->dst), s->value, s->size);
}

struct call {
  cudaHostFn_t fn;
  void *data;
  int device;
};

/*
 * cuda_rules.txt, held.host_function.other: one that does not return holds up those of all streams
 * of the device, and nothing else ("may be serialized", cudaLaunchHostFunc).
 */
static void run_call(void *arg) {
  struct call *c = arg;
  pthread_mutex_lock(&devices[c->device].host_functions);
  c->fn(c->data);
  pthread_mutex_unlock(&devices[c->device].host_functions);
}

/* What an address is to a copy of so many bytes. */
enum place_of { PAGEABLE, ON_DEVICE, PINNED, ANYWHERE, NOWHERE };

static enum place_of place_of(const void *ptr, size_t size) {
  struct block *b = live_at(ptr);
  if (b == NULL) {
    return ptr == NULL || in_arena(ptr) ? NOWHERE : PAGEABLE;
  }
  if ((uintptr_t)ptr - b->base + size > b->size) {
    return NOWHERE;
  }
  return b->kind == MANAGED                            ? ANYWHERE
      : b->kind == HOST || b->kind == REGISTERED ? PINNED
                                                       : ON_DEVICE;
}

/* Whether the direction given fits the memory. */
static cudaError_t check_copy(enum place_of dst, enum place_of src, int kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  if (dst == NOWHERE || src == NOWHERE) {
    return cudaErrorInvalidValue;
  }
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  bool fits = kind == cudaMemcpyDefault
      || ((to_device ? dst != PAGEABLE : dst != ON_DEVICE)
          && (from_device ? src != PAGEABLE : src != ON_DEVICE));
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

/* Synchronous ones are allowed beside any capture that does not involve the legacy stream:
   cuda_rules.txt, capture.global.memcpy. */
static cudaError_t copy(struct copy what, int kind, cudaStream_t handle, bool synchronous) {
  if (what.width == 0 || what.height == 0) {
    return cudaSuccess;
  }
  if (what.height > 1 && (what.dpitch < what.width || what.spitch < what.width)) {
    return 12; /* cudaErrorInvalidPitchValue */
  }
  size_t dst_size = (what.height - 1) * what.dpitch + what.width;
  size_t src_size = (what.height - 1) * what.spitch + what.width;
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(handle, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle : usable(s);
  enum place_of dst = place_of(what.dst, dst_size);
  enum place_of src = place_of(what.src, src_size);
  error = error != cudaSuccess ? error : check_copy(dst, src, kind);
  if (error == cudaSuccess && s->capture != NULL) {
    put_node(s, &(struct jcf_node){.work = COPY, .copy = what});
  } else if (error == cudaSuccess) {
    bool staged = src == PAGEABLE && (dst == ON_DEVICE || dst == ANYWHERE);
    /* The CPU copies between host memory, and into pageable memory while the caller waits. */
    bool waits = dst == PAGEABLE || (dst == PINNED && src != ON_DEVICE && src != ANYWHERE)
        || (synchronous && !staged && !(src == ON_DEVICE && dst == ON_DEVICE));
    if (staged && (synchronous || what.width * what.height > STAGED_AT_ONCE)) {
      sync_stream(s);
    }
    await_room(s);
    struct copy *c = need(malloc(sizeof *c));
    *c = what;
    if (staged) {
      c->staged = need(malloc(what.width * what.height));
      for (size_t y = 0; y < what.height; y++) {
        memcpy((char *)c->staged + y * what.width, (const char *)what.src + y * what.spitch,
            what.width);
      }
    }
    take_room(s, enqueue(s, run_copy, release_copy, c, NULL, 0));
    if (waits) {
      struct jcf_dep d = tail_of(s);
      await(&d);
      error = failure();
    }
  }
  pthread_mutex_unlock(&lock);
  return error;
}

static struct copy flat(void *dst, const void *src, size_t count) {
  return (struct copy){dst, src, count, count, count, 1, NULL};
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, int kind) {
  ENTER(cudaMemcpy);
  return fail(copy(flat(dst, src, count), kind, NULL, true));
}

cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t count, int kind, cudaStream_t stream) {
  ENTER(cudaMemcpyAsync);
  return fail(copy(flat(dst, src, count), kind, stream, false));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
    size_t width, size_t height, int kind, cudaStream_t stream) {
  ENTER(cudaMemcpy2DAsync);
  struct copy c = {dst, src, dpitch, spitch, width, height, NULL};
  return fail(copy(c, kind, stream, false));
}

static cudaError_t check_peers(const void *dst, int dstDevice, const void *src, int srcDevice) {
  if (dstDevice < 0 || dstDevice >= ndevices || srcDevice < 0 || srcDevice >= ndevices) {
    return cudaErrorInvalidDevice;
  }
  struct jcf_memory d = jcf_memory_of(dst), s = jcf_memory_of(src);
  bool right = d.type == cudaMemoryTypeDevice && d.device == dstDevice
      && s.type == cudaMemoryTypeDevice && s.device == srcDevice;
  return right ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyPeer(
    void *dst, int dstDevice, const void *src, int srcDevice, size_t count) {
  ENTER(cudaMemcpyPeer);
  cudaError_t error = check_peers(dst, dstDevice, src, srcDevice);
  return fail(error != cudaSuccess
          ? error
          : copy(flat(dst, src, count), cudaMemcpyDeviceToDevice, NULL, true));
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
    size_t count, cudaStream_t stream) {
  ENTER(cudaMemcpyPeerAsync);
  cudaError_t error = check_peers(dst, dstDevice, src, srcDevice);
  return fail(error != cudaSuccess
          ? error
          : copy(flat(dst, src, count), cudaMemcpyDeviceToDevice, stream, false));
}

static cudaError_t set(void *ptr, int value, size_t count, cudaStream_t handle, bool sync) {
  if (count == 0) {
    return cudaSuccess;
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(handle, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle : usable(s);
  enum place_of where = place_of(ptr, count);
  if (error == cudaSuccess && (where == PAGEABLE || where == NOWHERE)) {
    error = cudaErrorInvalidValue;
  }
  if (error == cudaSuccess) {
    struct jcf_node node = {.work = SET, .copy = flat(ptr, NULL, count), .value = value};
    if (s->capture == NULL) {
      await_room(s);
      take_room(s, launch_node(s, &node));
    } else {
      put_node(s, &node);
    }
    if (sync && where == PINNED) {
      sync_stream(s);
    }
  }
  pthread_mutex_unlock(&lock);
  return error;
}

cudaError_t cudaMemset(void *ptr, int value, size_t count) {
  ENTER(cudaMemset);
  return fail(set(ptr, value, count, NULL, true));
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream) {
  ENTER(cudaMemsetAsync);
  return fail(set(ptr, value, count, stream, false));
}

/* ---- devices */

static bool is_device(int device) { return device >= 0 && device < ndevices; }

cudaError_t cudaGetDeviceCount(int *count) {
  ENTER_ANY(cudaGetDeviceCount, NEEDS_NOTHING);
  if (count == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  *count = 0;
  if (driver_version / 1000 < runtime_version / 1000) {
    return fail(cudaErrorInsufficientDriver);
  }
  *count = ndevices;
  return fail(ndevices == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDevice(int *device) {
  ENTER_ANY(cudaGetDevice, NEEDS_DEVICES);
  if (device == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  ENTER_ANY(cudaSetDevice, NEEDS_DEVICES);
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  current = device;
  bound = device;
  make_context(device); /* at once, since CUDA 12 */
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned deviceFlags, unsigned flags) {
  ENTER_ANY(cudaInitDevice, NEEDS_DEVICES);
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  if ((flags & ~1U) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  make_context(device);
  if ((flags & 1U) != 0) {
    pthread_mutex_lock(&lock);
    devices[device].flags = deviceFlags;
    pthread_mutex_unlock(&lock);
  }
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  ENTER_ANY(cudaSetDeviceFlags, NEEDS_DEVICES);
  unsigned schedule = flags & 7U;
  if ((flags & ~0xffU) != 0 || (schedule & (schedule - 1)) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  devices[current].flags = flags;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
  ENTER_ANY(cudaGetDeviceFlags, NEEDS_DEVICES);
  if (flags == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  *flags = devices[current].flags | 8U; /* cudaDeviceMapHost is always on */
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attr, int device) {
  ENTER_ANY(cudaDeviceGetAttribute, NEEDS_DEVICES);
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  if (value == NULL || attr < 1 || attr > 147) {
    return fail(cudaErrorInvalidValue);
  }
  switch (attr) {
    case 1: *value = 1024; break;                 /* threads per block */
    case 10: *value = 32; break;                  /* warp */
    case 13: *value = 1000000; break;             /* clock, kHz */
    case 15: case 31: case 41: case 78: case 83:  /* overlap ... managed memory */
    case 19: case 90: case 91: case 95: case 99: case 115: *value = 1; break;
    case 16: *value = 16; break;                  /* multiprocessors */
    case 39: *value = 2048; break;                /* threads of one at a time */
    case 33: *value = device + 1; break;          /* PCI bus */
    case 36: *value = 1000000; break;
    case 37: *value = 1024; break;
    case 38: *value = 4 << 20; break;
    case 40: *value = 2; break;                   /* copy engines */
    case 75: *value = atomic_load(&capability) / 10; break;
    case 76: *value = atomic_load(&capability) % 10; break;
    case 89: *value = 0; break;                   /* concurrent managed access */
    case 125: *value = 1; break;                  /* events between processes */
    case 131: case 134: *value = -1; break;       /* NUMA nodes */
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  ENTER_ANY(cudaGetDeviceProperties, NEEDS_DEVICES);
  if (p == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "jccl fake %d", device);
  memcpy(p->uuid, "jccl-fake------", 15);
  p->uuid[15] = (char)('0' + device);
  p->totalGlobalMem = memory_size;
  p->sharedMemPerBlock = 48 << 10;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->memPitch = 0x7fffffff;
  p->maxThreadsPerBlock = 1024;
  p->major = atomic_load(&capability) / 10;
  p->minor = atomic_load(&capability) % 10;
  p->multiProcessorCount = 16;
  p->canMapHostMemory = 1;
  p->concurrentKernels = 1;
  p->pciBusID = device + 1;
  p->asyncEngineCount = 2;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = 1024;
  p->l2CacheSize = 4 << 20;
  p->maxThreadsPerMultiProcessor = 2048;
  p->streamPrioritiesSupported = 1;
  p->managedMemory = 1;
  p->canUseHostPointerForRegisteredMem = 1;
  p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = 1;
  p->ipcEventSupported = 1;
  p->deviceNumaId = -1;
  p->hostNumaId = -1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device) {
  ENTER_ANY(cudaDeviceGetPCIBusId, NEEDS_DEVICES);
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  if (id == NULL || len < 13) {
    return fail(cudaErrorInvalidValue);
  }
  snprintf(id, (size_t)len, "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

/* Also takes commands to the fake, see README.md: this function any caller has. */
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
  if (device != NULL && id != NULL && jcf_command(id, device)) {
    return cudaSuccess;
  }
  ENTER_ANY(cudaDeviceGetByPCIBusId, NEEDS_DEVICES);
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (device == NULL || id == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  int read = sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
  if (read < 3) {
    domain = 0;
    read = sscanf(id, "%x:%x.%x", &bus, &slot, &function);
    if (read < 2) {
      return fail(cudaErrorInvalidValue);
    }
  }
  if (domain != 0 || slot != 0 || function != 0 || !is_device((int)bus - 1)) {
    return fail(cudaErrorInvalidDevice);
  }
  *device = (int)bus - 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t *value, int limit) {
  ENTER(cudaDeviceGetLimit);
  if (value == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  if (limit < 0 || limit > 6) {
    return fail(cudaErrorUnsupportedLimit);
  }
  pthread_mutex_lock(&lock);
  *value = devices[current].limits[limit];
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
  ENTER(cudaDeviceSetLimit);
  if (limit < 0 || limit > 6) {
    return fail(cudaErrorUnsupportedLimit);
  }
  pthread_mutex_lock(&lock);
  devices[current].limits[limit] = value;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cudaDeviceGetStreamPriorityRange);
  if (least != NULL) {
    *least = 0;
  }
  if (greatest != NULL) {
    *greatest = -5;
  }
  return cudaSuccess;
}

static void trim(struct jcf_pool *p, uint64_t keep) {
  uint64_t least = (p->used + (2 << 20) - 1) >> 21 << 21;
  least = least > keep ? least : keep;
  p->reserved = p->reserved < least ? p->reserved : least;
}

/*
 * With the lock: whoever has waited gives back what pools hold above their thresholds, which are 0
 * unless cudaMemPoolAttrReleaseThreshold was set.
 */
static void trim_pools(void) {
  for (struct jcf_pool *p = pools; p != NULL; p = p->next) {
    trim(p, p->threshold);
  }
}

cudaError_t cudaDeviceSynchronize(void) {
  ENTER(cudaDeviceSynchronize);
  pthread_mutex_lock(&lock);
  cudaError_t error = unsafe();
  for (struct jcf_stream *t = streams; t != NULL; t = t->next) {
    if (t->capture != NULL && t->device == current) {
      t->capture->invalid = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  if (error == cudaSuccess) {
    sync_device(current);
    trim_pools();
    error = failure();
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

/*
 * A process on an H200 whose kernels wait for another rank did not end: the driver's own exit handler
 * waits for what runs. One that is killed, or whose context is lost, does not wait.
 */
__attribute__((destructor)) static void wait_at_exit(void) {
  pthread_mutex_lock(&lock);
  for (int d = 0; d < ndevices && failure() == cudaSuccess; d++) {
    sync_device(d); /* gives up the lock: a destroyed stream may be freed meanwhile */
  }
  pthread_mutex_unlock(&lock);
}

static void free_event(struct jcf_event *e);
static void end_capture(struct capture *c);

cudaError_t cudaDeviceReset(void) {
  ENTER(cudaDeviceReset);
  pthread_mutex_lock(&lock);
  cudaError_t error = unsafe();
  if (error == cudaSuccess) {
    sync_device(current);
    bool found = true;
    while (found) {
      found = false;
      for (int i = 0; i < nblocks && !found; i++) {
        struct block *b = &blocks[i];
        if (b->kind == DEVICE && b->device == current && b->state == LIVE) {
          release_block(b);
          found = true;
        }
      }
    }
    struct jcf_stream *next;
    for (struct jcf_stream *t = streams; t != NULL; t = next) {
      next = t->next;
      if (t->device == current && !t->destroyed && !t->implicit) {
        jcf_live(JCF_STREAMS, -1);
        end_stream(t);
      }
    }
    struct jcf_event *after;
    for (struct jcf_event *e = events; e != NULL; e = after) {
      after = e->next;
      if (e->device == current) {
        free_event(e);
      }
    }
    memset(devices[current].peers, 0, sizeof devices[current].peers);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

/* ---- peers */

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  ENTER_ANY(cudaDeviceCanAccessPeer, NEEDS_DEVICES);
  if (can == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  if (!is_device(device) || !is_device(peer)) {
    return fail(cudaErrorInvalidDevice);
  }
  *can = device != peer && peers_possible;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  ENTER(cudaDeviceEnablePeerAccess);
  if (!is_device(peer) || peer == current) {
    return fail(cudaErrorInvalidDevice);
  }
  if (flags != 0) {
    return fail(cudaErrorInvalidValue);
  }
  if (!peers_possible) {
    return fail(217); /* cudaErrorPeerAccessUnsupported */
  }
  pthread_mutex_lock(&lock);
  bool before = devices[current].peers[peer];
  devices[current].peers[peer] = true;
  pthread_mutex_unlock(&lock);
  return fail(before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  ENTER(cudaDeviceDisablePeerAccess);
  if (!is_device(peer)) {
    return fail(cudaErrorInvalidDevice);
  }
  pthread_mutex_lock(&lock);
  bool before = devices[current].peers[peer];
  devices[current].peers[peer] = false;
  pthread_mutex_unlock(&lock);
  return fail(before ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, int attr, int src, int dst) {
  ENTER_ANY(cudaDeviceGetP2PAttribute, NEEDS_DEVICES);
  if (value == NULL || attr < 1 || attr > 5) {
    return fail(cudaErrorInvalidValue);
  }
  if (!is_device(src) || !is_device(dst) || src == dst) {
    return fail(cudaErrorInvalidDevice);
  }
  *value = attr == 2 || attr == 3 ? peers_possible : 0;
  return cudaSuccess;
}

/* ---- allocation */

cudaError_t cudaMalloc(void **ptr, size_t size) {
  ENTER(cudaMalloc);
  if (ptr == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  cudaError_t error = unsafe_now();
  if (error != cudaSuccess) {
    return fail(error);
  }
  *ptr = NULL;
  return fail(
      size == 0 ? cudaSuccess : allocate(ptr, size, DEVICE, current, ALIGNMENT, NULL, 0, false));
}

static cudaError_t free_base(void *ptr, bool host, bool nccl) {
  if (ptr == NULL) {
    return cudaSuccess;
  }
  pthread_mutex_lock(&lock);
  cudaError_t error = unsafe();
  struct block *b = live_at(ptr);
  if (error == cudaSuccess
      && (b == NULL || b->base != (uintptr_t)ptr || b->scratch || b->nccl != nccl
          || (host ? b->kind != HOST : b->kind != DEVICE && b->kind != MANAGED))) {
    error = cudaErrorInvalidValue;
  }
  if (error == cudaSuccess) {
    sync_device(b->device); /* gives up the lock */
    b = live_at(ptr);
    if (b == NULL) {
      error = cudaErrorInvalidValue;
    } else {
      release_block(b);
    }
  }
  pthread_mutex_unlock(&lock);
  return error;
}

cudaError_t cudaFree(void *ptr) {
  ENTER(cudaFree);
  return fail(free_base(ptr, false, false));
}

cudaError_t jcf_nccl_alloc(void **ptr, size_t size) {
  pthread_once(&started, start);
  return ndevices == 0 ? cudaErrorNoDevice
                       : allocate(ptr, size, DEVICE, current, PAGE, NULL, 0, true);
}

cudaError_t jcf_nccl_free(void *ptr) { return free_base(ptr, false, true); }

cudaError_t cudaMallocManaged(void **ptr, size_t size, unsigned flags) {
  ENTER(cudaMallocManaged);
  if (ptr == NULL || size == 0 || (flags != 1 && flags != 2)) {
    return fail(cudaErrorInvalidValue);
  }
  cudaError_t error = unsafe_now();
  return fail(error != cudaSuccess
          ? error
          : allocate(ptr, size, MANAGED, current, ALIGNMENT, NULL, flags, false));
}

cudaError_t cudaMemGetInfo(size_t *free_, size_t *total) {
  ENTER(cudaMemGetInfo);
  if (free_ == NULL || total == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  *free_ = memory_size - devices[current].used;
  pthread_mutex_unlock(&lock);
  *total = memory_size;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *ptr) {
  ENTER(cudaPointerGetAttributes);
  if (a == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  struct jcf_memory m = jcf_memory_of(ptr);
  memset(a, 0, sizeof *a);
  a->type = m.type;
  a->device = m.device;
  a->devicePointer = m.type == cudaMemoryTypeUnregistered ? NULL : (void *)(uintptr_t)ptr;
  a->hostPointer = m.type == cudaMemoryTypeDevice ? NULL : (void *)(uintptr_t)ptr;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags) {
  ENTER(cudaHostAlloc);
  if (ptr == NULL || (flags & ~7U) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  cudaError_t error = unsafe_now();
  if (error != cudaSuccess) {
    return fail(error);
  }
  *ptr = NULL;
  return fail(
      size == 0 ? cudaSuccess : allocate(ptr, size, HOST, current, PAGE, NULL, flags, false));
}

cudaError_t cudaMallocHost(void **ptr, size_t size) {
  ENTER(cudaMallocHost);
  if (ptr == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  cudaError_t error = unsafe_now();
  if (error != cudaSuccess) {
    return fail(error);
  }
  *ptr = NULL;
  return fail(
      size == 0 ? cudaSuccess : allocate(ptr, size, HOST, current, PAGE, NULL, 0, false));
}

cudaError_t cudaFreeHost(void *ptr) {
  ENTER(cudaFreeHost);
  return fail(free_base(ptr, true, false));
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned flags) {
  ENTER(cudaHostRegister);
  if (ptr == NULL || size == 0 || (flags & ~15U) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  cudaError_t error = unsafe();
  if (error == cudaSuccess && in_arena(ptr)) {
    struct block *b = live_at(ptr);
    error = b != NULL && b->kind == HOST ? cudaErrorHostMemoryAlreadyRegistered
                                         : cudaErrorInvalidValue;
  }
  if (error == cudaSuccess) {
    int i = block_after((uintptr_t)ptr);
    bool over_next = i < nblocks && blocks[i].base < (uintptr_t)ptr + size;
    if (block_at(ptr) != NULL || over_next) {
      error = cudaErrorHostMemoryAlreadyRegistered;
    } else {
      struct block *b = insert_block((uintptr_t)ptr, size, size);
      b->kind = REGISTERED;
      b->device = current;
      b->flags = flags;
      jcf_live(JCF_REGISTERED, 1);
    }
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaHostUnregister(void *ptr) {
  ENTER(cudaHostUnregister);
  pthread_mutex_lock(&lock);
  cudaError_t error = unsafe();
  struct block *b = block_at(ptr);
  if (error == cudaSuccess && (b == NULL || b->kind != REGISTERED)) {
    error = cudaErrorHostMemoryNotRegistered;
  } else if (error == cudaSuccess && b->base != (uintptr_t)ptr) {
    error = cudaErrorInvalidValue;
  }
  if (error == cudaSuccess) {
    sync_device(b->device);
    b = block_at(ptr);
    if (b == NULL || b->kind != REGISTERED) {
      error = cudaErrorHostMemoryNotRegistered;
    } else {
      remove_block(b);
      jcf_live(JCF_REGISTERED, -1);
    }
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

static cudaError_t pinned(const void *host, unsigned *flags) {
  pthread_mutex_lock(&lock);
  struct block *b = live_at(host);
  bool is = b != NULL && (b->kind == HOST || b->kind == REGISTERED);
  if (is && flags != NULL) {
    *flags = b->flags | 2U; /* mapped, by unified addressing */
  }
  pthread_mutex_unlock(&lock);
  return is ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
  ENTER(cudaHostGetDevicePointer);
  if (device == NULL || flags != 0 || pinned(host, NULL) != cudaSuccess) {
    return fail(cudaErrorInvalidValue);
  }
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *host) {
  ENTER(cudaHostGetFlags);
  return fail(flags == NULL ? cudaErrorInvalidValue : pinned(host, flags));
}

/* ---- pools */

static struct jcf_pool *new_pool(int device, bool own) {
  struct jcf_pool *p = need(calloc(1, sizeof *p));
  p->device = device;
  p->uses = 1;
  p->own = own;
  p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
  p->access[device] = 3;
  p->next = pools;
  pools = p;
  return p;
}

static struct jcf_pool *default_pool(int device) {
  if (devices[device].default_pool == NULL) {
    devices[device].default_pool = new_pool(device, false);
  }
  return devices[device].default_pool;
}

static struct jcf_pool *current_pool(int device) {
  struct jcf_pool *p = devices[device].pool;
  return p != NULL ? p : default_pool(device);
}

static struct jcf_pool *find_pool(cudaMemPool_t handle) {
  for (struct jcf_pool *p = pools; p != NULL; p = p->next) {
    if (p == handle) {
      return p->destroyed ? NULL : p;
    }
  }
  return NULL;
}

static cudaError_t malloc_async(
    void **ptr, size_t size, cudaMemPool_t handle, bool from_pool, cudaStream_t stream) {
  if (ptr == NULL) {
    return cudaErrorInvalidValue;
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle : usable(s);
  if (error == cudaSuccess && s->capture != NULL) {
    s->capture->invalid = true;
    error = cudaErrorNotSupported; /* the fake has no allocation nodes */
  } else if (error == cudaSuccess) {
    error = unsafe(); /* cuda_rules.txt, capture.global.malloc_async.other */
  }
  struct jcf_pool *p = NULL;
  if (error == cudaSuccess) {
    p = from_pool ? find_pool(handle) : current_pool(s->device);
    error = p == NULL ? cudaErrorInvalidValue : cudaSuccess;
  }
  int device = p == NULL ? 0 : p->device;
  pthread_mutex_unlock(&lock);
  if (error != cudaSuccess || size == 0) {
    return error;
  }
  return allocate(ptr, size, DEVICE, device, ALIGNMENT, p, 0, false);
}

cudaError_t cudaMallocAsync(void **ptr, size_t size, cudaStream_t stream) {
  ENTER(cudaMallocAsync);
  return fail(malloc_async(ptr, size, NULL, false, stream));
}

cudaError_t cudaMallocFromPoolAsync(
    void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  ENTER(cudaMallocFromPoolAsync);
  return fail(malloc_async(ptr, size, pool, true, stream));
}

static void run_free(void *ptr) {
  pthread_mutex_lock(&lock);
  struct block *b = block_at(ptr);
  if (b != NULL && b->state == LIVE && b->freed_async) {
    release_block(b);
  }
  pthread_mutex_unlock(&lock);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
  ENTER(cudaFreeAsync);
  if (ptr == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle : usable(s);
  struct block *b = live_at(ptr);
  if (error == cudaSuccess && s->capture != NULL) {
    s->capture->invalid = true;
    error = cudaErrorNotSupported;
  }
  if (error == cudaSuccess && (b == NULL || b->base != (uintptr_t)ptr || b->pool == NULL)) {
    error = cudaErrorInvalidValue;
  }
  if (error == cudaSuccess) {
    b->freed_async = true;
    enqueue(s, run_free, NULL, ptr, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props) {
  ENTER(cudaMemPoolCreate);
  if (pool == NULL || props == NULL || props->allocType != 1 || props->location.type != 1) {
    return fail(cudaErrorInvalidValue);
  }
  if (!is_device(props->location.id)) {
    return fail(cudaErrorInvalidDevice);
  }
  if (props->handleTypes != 0) {
    return fail(cudaErrorNotSupported);
  }
  pthread_mutex_lock(&lock);
  *pool = new_pool(props->location.id, true);
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_POOLS, 1);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  ENTER(cudaMemPoolDestroy);
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  bool ok = p != NULL && p->own;
  if (ok) {
    p->destroyed = true;
    if (devices[p->device].pool == p) {
      devices[p->device].pool = NULL;
    }
    pool_unuse(p); /* goes when the last allocation goes */
    jcf_live(JCF_POOLS, -1);
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  ENTER(cudaMemPoolTrimTo);
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  if (p != NULL) {
    trim(p, keep);
  }
  pthread_mutex_unlock(&lock);
  return fail(p != NULL ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attr, void *value) {
  ENTER(cudaMemPoolSetAttribute);
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  bool ok = p != NULL && value != NULL && attr >= 1 && attr <= 8 && attr != 5 && attr != 7;
  if (ok && attr <= 3) {
    memcpy(&p->reuse[attr - 1], value, sizeof(int));
  } else if (ok && attr == 4) {
    memcpy(&p->threshold, value, sizeof p->threshold);
  } else if (ok) { /* a high-water mark can only be reset */
    uint64_t v;
    memcpy(&v, value, sizeof v);
    ok = v == 0;
    if (ok && attr == 6) {
      p->reserved_high = p->reserved;
    } else if (ok) {
      p->used_high = p->used;
    }
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attr, void *value) {
  ENTER(cudaMemPoolGetAttribute);
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  bool ok = p != NULL && value != NULL && attr >= 1 && attr <= 8;
  if (ok && attr <= 3) {
    memcpy(value, &p->reuse[attr - 1], sizeof(int));
  } else if (ok) {
    const uint64_t values[] = {
        p->threshold, p->reserved, p->reserved_high, p->used, p->used_high};
    memcpy(value, &values[attr - 4], sizeof values[0]);
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAccess(
    cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
  ENTER(cudaMemPoolSetAccess);
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  cudaError_t error = p == NULL || (list == NULL && count > 0) ? cudaErrorInvalidValue
                                                                : cudaSuccess;
  for (size_t i = 0; i < count && error == cudaSuccess; i++) {
    int id = list[i].location.id, flags = list[i].flags;
    if (list[i].location.type != 1 || (flags != 0 && flags != 1 && flags != 3)) {
      error = cudaErrorInvalidValue;
    } else if (!is_device(id)) {
      error = cudaErrorInvalidDevice;
    } else if (id == p->device && flags != 3) {
      error = cudaErrorInvalidDevice; /* the device of a pool always has access */
    } else {
      p->access[id] = flags;
    }
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaMemPoolGetAccess(
    int *flags, cudaMemPool_t pool, struct cudaMemLocation *location) {
  ENTER(cudaMemPoolGetAccess);
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  bool ok = p != NULL && flags != NULL && location != NULL && location->type == 1
      && is_device(location->id);
  if (ok) {
    *flags = p->access[location->id];
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

/* Memory pools between processes are left out; memory of cudaMalloc goes between them. */
cudaError_t cudaMemPoolExportToShareableHandle(
    void *handle, cudaMemPool_t pool, int type, unsigned flags) {
  ENTER(cudaMemPoolExportToShareableHandle);
  (void)handle, (void)pool, (void)type, (void)flags;
  return fail(cudaErrorNotSupported);
}

cudaError_t cudaMemPoolImportFromShareableHandle(
    cudaMemPool_t *pool, void *handle, int type, unsigned flags) {
  ENTER(cudaMemPoolImportFromShareableHandle);
  (void)handle, (void)pool, (void)type, (void)flags;
  return fail(cudaErrorNotSupported);
}

cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data, void *ptr) {
  ENTER(cudaMemPoolExportPointer);
  (void)data, (void)ptr;
  return fail(cudaErrorNotSupported);
}

cudaError_t cudaMemPoolImportPointer(
    void **ptr, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data) {
  ENTER(cudaMemPoolImportPointer);
  (void)ptr, (void)pool, (void)data;
  return fail(cudaErrorNotSupported);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  ENTER_ANY(cudaDeviceGetDefaultMemPool, NEEDS_DEVICES);
  if (pool == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  pthread_mutex_lock(&lock);
  *pool = default_pool(device);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
  ENTER_ANY(cudaDeviceGetMemPool, NEEDS_DEVICES);
  if (pool == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  pthread_mutex_lock(&lock);
  *pool = current_pool(device);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  ENTER(cudaDeviceSetMemPool);
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  pthread_mutex_lock(&lock);
  struct jcf_pool *p = find_pool(pool);
  bool ok = p != NULL && p->device == device;
  if (ok) {
    devices[device].pool = p;
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

/* ---- streams */

static cudaError_t create_stream(cudaStream_t *out, unsigned flags, int priority) {
  if (out == NULL || (flags & ~1U) != 0) {
    return cudaErrorInvalidValue;
  }
  priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  pthread_mutex_lock(&lock);
  *out = new_stream(current, flags, priority);
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_STREAMS, 1);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  ENTER(cudaStreamCreate);
  return fail(create_stream(stream, 0, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  ENTER(cudaStreamCreateWithFlags);
  return fail(create_stream(stream, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  ENTER(cudaStreamCreateWithPriority);
  return fail(create_stream(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER(cudaStreamDestroy);
  if ((uintptr_t)stream <= 2) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  if (s != NULL) {
    if (s->capture != NULL && s->capture->origin == s) {
      end_capture(s->capture);
    } else { /* the capture goes on; whether what it did was joined shows at its end */
      s->capture = NULL;
    }
    end_stream(s);
    jcf_live(JCF_STREAMS, -1);
  }
  pthread_mutex_unlock(&lock);
  return fail(s != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* With the lock: whether the host may wait for a stream or ask about it. */
static cudaError_t may_ask(struct jcf_stream *s) {
  if (s == NULL) {
    return cudaErrorInvalidResourceHandle;
  }
  if (s->capture != NULL) {
    s->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  cudaError_t error = usable(s);
  return error != cudaSuccess ? error : unsafe(); /* cuda_rules.txt, capture.global.query.other */
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER(cudaStreamQuery);
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = may_ask(s);
  if (error == cudaSuccess) {
    error = stream_idle(s) ? failure() : cudaErrorNotReady;
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER(cudaStreamSynchronize);
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = may_ask(s);
  if (error == cudaSuccess) {
    sync_stream(s);
    trim_pools();
    error = failure();
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

static cudaError_t stream_value(cudaStream_t stream, struct jcf_stream *out) {
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  if (s != NULL) {
    *out = *s;
  }
  pthread_mutex_unlock(&lock);
  return s != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  ENTER(cudaStreamGetFlags);
  struct jcf_stream s;
  cudaError_t error = flags == NULL ? cudaErrorInvalidValue : stream_value(stream, &s);
  if (error == cudaSuccess) {
    *flags = s.flags;
  }
  return fail(error);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  ENTER(cudaStreamGetPriority);
  struct jcf_stream s;
  cudaError_t error = priority == NULL ? cudaErrorInvalidValue : stream_value(stream, &s);
  if (error == cudaSuccess) {
    *priority = s.priority;
  }
  return fail(error);
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
  ENTER(cudaStreamGetId);
  struct jcf_stream s;
  cudaError_t error = id == NULL ? cudaErrorInvalidValue : stream_value(stream, &s);
  if (error == cudaSuccess) {
    *id = s.id;
  }
  return fail(error);
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
  ENTER(cudaStreamGetDevice);
  struct jcf_stream s;
  cudaError_t error = device == NULL ? cudaErrorInvalidValue : stream_value(stream, &s);
  if (error == cudaSuccess) {
    *device = s.device;
  }
  return fail(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
  ENTER(cudaLaunchHostFunc);
  if (fn == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle : usable(s);
  if (error == cudaSuccess) {
    put_node(s, &(struct jcf_node){.work = CALL, .fn = fn, .data = data});
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

/* What libnccl uses. */

struct jcf_stream *jcf_stream_use(cudaStream_t handle, int device) {
  pthread_once(&started, start);
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(handle, device);
  if (s != NULL) {
    s->uses++;
  }
  pthread_mutex_unlock(&lock);
  return s;
}

void jcf_stream_done(struct jcf_stream *s) {
  pthread_mutex_lock(&lock);
  stream_unuse(s);
  pthread_mutex_unlock(&lock);
}

int jcf_stream_device(struct jcf_stream *s) { return s->device; }

void jcf_sync_device(int device) {
  pthread_mutex_lock(&lock);
  sync_device(device);
  pthread_mutex_unlock(&lock);
}

void jcf_launch(struct jcf_stream *s, jcf_call run, jcf_call release, void *arg) {
  pthread_mutex_lock(&lock);
  await_room(s);
  take_room(s, enqueue(s, run, release, arg, NULL, 0));
  pthread_mutex_unlock(&lock);
}

void jcf_await_room(struct jcf_stream *s) {
  pthread_mutex_lock(&lock);
  await_room(s);
  pthread_mutex_unlock(&lock);
}

struct jcf_dep jcf_enqueue(struct jcf_stream *s, jcf_call run, jcf_call release, void *arg,
    const struct jcf_dep *deps, int ndeps) {
  pthread_mutex_lock(&lock);
  struct op *op = enqueue(s, run, release, arg, deps, ndeps);
  if (op != NULL && run != NULL) {
    take_room(s, op);
  }
  struct jcf_dep d = tail_of(s);
  pthread_mutex_unlock(&lock);
  return d;
}

struct jcf_dep jcf_tail(struct jcf_stream *s) {
  pthread_mutex_lock(&lock);
  struct jcf_dep d = tail_of(s);
  pthread_mutex_unlock(&lock);
  return d;
}

bool jcf_passed(const struct jcf_dep *dep) {
  pthread_mutex_lock(&lock);
  bool is = passed(dep);
  pthread_mutex_unlock(&lock);
  return is;
}

void *jcf_capture_of(struct jcf_stream *s, cudaError_t *error) {
  pthread_mutex_lock(&lock);
  *error = usable(s);
  void *c = s->capture;
  pthread_mutex_unlock(&lock);
  return c;
}

void jcf_capture_node(struct jcf_stream **list, int n,
    void (*launch)(void *arg, struct jcf_stream *s), jcf_call use, jcf_call done, void *arg) {
  pthread_mutex_lock(&lock);
  struct jcf_node what = {
      .work = CUSTOM, .launch = launch, .use = use, .done = done, .arg = arg};
  struct jcf_node *node = add_node(list[0]->capture->graph, &what);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < list[i]->nlast; k++) {
      add_last(&node->after, &node->nafter, list[i]->last[k]);
    }
  }
  for (int i = 0; i < n; i++) {
    set_last(&list[i]->last, &list[i]->nlast, &node, 1);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- events */

static struct jcf_event *find_event(cudaEvent_t handle) {
  for (struct jcf_event *e = events; e != NULL; e = e->next) {
    if (e == handle) {
      return e;
    }
  }
  return NULL;
}

static void drop_record(void *arg) {
  struct record *r = arg;
  if (r != NULL && --r->uses == 0) {
    drop_dep(&r->at);
    free(r);
  }
}

static void release_record(void *arg) {
  pthread_mutex_lock(&lock);
  drop_record(arg);
  pthread_mutex_unlock(&lock);
}

static void run_record(void *arg) {
  struct record *r = arg;
  double ms = now_ms();
  pthread_mutex_lock(&lock);
  r->ms = ms;
  pthread_mutex_unlock(&lock);
}

/* Slots are used without the lock: other processes share them. */
struct slot_use {
  struct slot *slot;
  uint64_t number;
};

static void run_slot_record(void *arg) {
  struct slot_use *u = arg;
  uint64_t before = atomic_load(&u->slot->done);
  while (before < u->number
      && !atomic_compare_exchange_weak(&u->slot->done, &before, u->number)) {
  }
  atomic_fetch_add(&u->slot->bell, 1);
  jcf_futex_wake(&u->slot->bell);
}

static void run_slot_wait(void *arg) {
  struct slot_use *u = arg;
  for (;;) {
    uint32_t bell = atomic_load(&u->slot->bell);
    if (atomic_load(&u->slot->done) >= u->number) {
      return;
    }
    jcf_futex_wait(&u->slot->bell, bell, 100);
  }
}

static struct slot_use *use_slot(struct slot *slot, uint64_t number) {
  struct slot_use *u = need(malloc(sizeof *u));
  *u = (struct slot_use){slot, number};
  return u;
}

static void record_now(struct jcf_event *e, struct jcf_stream *s) {
  struct record *r = need(calloc(1, sizeof *r));
  r->uses = 1;
  drop_record(e->latest);
  e->latest = r;
  e->capture = NULL;
  if (runs_at_once(s) && e->slot == NULL) {
    r->ms = now_ms();
    r->at = tail_of(s);
    return;
  }
  r->uses++;
  enqueue(s, run_record, release_record, r, NULL, 0);
  r->at = tail_of(s);
  if (e->slot != NULL) {
    uint64_t number = atomic_fetch_add(&e->slot->recorded, 1) + 1;
    enqueue(s, run_slot_record, free, use_slot(e->slot, number), NULL, 0);
  }
}

static void wait_now(struct jcf_event *e, struct jcf_stream *s) {
  if (e->slot != NULL) {
    enqueue(s, run_slot_wait, free, use_slot(e->slot, atomic_load(&e->slot->recorded)), NULL, 0);
  } else if (e->latest != NULL) {
    enqueue(s, NULL, NULL, NULL, &e->latest->at, 1);
  }
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  ENTER(cudaEventCreateWithFlags);
  bool between = (flags & cudaEventInterprocess) != 0;
  if (event == NULL || (flags & ~7U) != 0
      || (between && (flags & cudaEventDisableTiming) == 0)) {
    return fail(cudaErrorInvalidValue);
  }
  struct jcf_event *e = need(calloc(1, sizeof *e));
  e->flags = flags;
  e->device = current;
  pthread_mutex_lock(&lock);
  struct slot *slots = (struct slot *)store;
  for (int i = 0; between && i < EVENT_SLOTS && e->slot == NULL; i++) {
    if (slots[i].taken == 0) {
      e->slot = &slots[i];
      e->slot->taken = 1;
      atomic_store(&e->slot->recorded, 0);
      atomic_store(&e->slot->done, 0);
    }
  }
  bool made = !between || e->slot != NULL;
  if (made) {
    e->next = events;
    events = e;
  }
  pthread_mutex_unlock(&lock);
  if (!made) {
    free(e);
    return fail(cudaErrorMemoryAllocation);
  }
  *event = e;
  jcf_live(JCF_EVENTS, 1);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  ENTER(cudaEventCreate);
  return cudaEventCreateWithFlags(event, 0);
}

static void free_event(struct jcf_event *e) {
  for (struct jcf_event **at = &events; *at != NULL; at = &(*at)->next) {
    if (*at == e) {
      *at = e->next;
      break;
    }
  }
  if (e->slot != NULL && !e->imported) {
    e->slot->taken = 0;
  }
  drop_record(e->latest);
  free(e->last);
  free(e);
  jcf_live(JCF_EVENTS, -1);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER(cudaEventDestroy);
  pthread_mutex_lock(&lock);
  struct jcf_event *e = find_event(event);
  if (e != NULL) {
    free_event(e);
  }
  pthread_mutex_unlock(&lock);
  return fail(e != NULL ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

static cudaError_t record_event(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags > 1) {
    return cudaErrorInvalidValue;
  }
  pthread_mutex_lock(&lock);
  struct jcf_event *e = find_event(event);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = e == NULL || s == NULL || (s->device != e->device && !e->imported)
      ? cudaErrorInvalidResourceHandle
      : usable(s);
  if (error == cudaSuccess && s->capture == NULL) {
    await_room(s);
    record_now(e, s);
  } else if (error == cudaSuccess && flags == 1) {
    put_node(s, &(struct jcf_node){.work = RECORD, .event = e});
  } else if (error == cudaSuccess) {
    e->capture = s->capture;
    set_last(&e->last, &e->nlast, s->last, s->nlast);
  }
  pthread_mutex_unlock(&lock);
  return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER(cudaEventRecord);
  return fail(record_event(event, stream, 0));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  ENTER(cudaEventRecordWithFlags);
  return fail(record_event(event, stream, flags));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  ENTER(cudaStreamWaitEvent);
  if (flags > 1) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_event *e = find_event(event);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = e == NULL || s == NULL ? cudaErrorInvalidResourceHandle : usable(s);
  if (error != cudaSuccess) {
  } else if (e->capture != NULL) {
    if (e->capture->invalid) {
      error = cudaErrorStreamCaptureInvalidated;
    } else if (s->capture != NULL && s->capture != e->capture) {
      s->capture->invalid = e->capture->invalid = true;
      error = cudaErrorStreamCaptureMerge;
    } else if (s->legacy) {
      e->capture->invalid = true;
      error = cudaErrorStreamCaptureImplicit;
    } else {
      if (s->capture == NULL) { /* the stream joins the capture */
        s->capture = e->capture;
        set_last(&s->last, &s->nlast, NULL, 0);
      }
      for (int i = 0; i < e->nlast; i++) {
        add_last(&s->last, &s->nlast, e->last[i]);
      }
    }
  } else if (s->capture != NULL && flags == 1) {
    put_node(s, &(struct jcf_node){.work = WAIT, .event = e});
  } else if (s->capture != NULL) {
    if (e->latest != NULL || e->slot != NULL) {
      s->capture->invalid = true;
      error = cudaErrorStreamCaptureIsolation;
    }
  } else {
    wait_now(e, s);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

/* With the lock: whether the host may wait for an event or ask about it. */
static cudaError_t may_ask_event(struct jcf_event *e) {
  if (e == NULL) {
    return cudaErrorInvalidResourceHandle;
  }
  if (e->capture != NULL) {
    e->capture->invalid = true;
    return cudaErrorCapturedEvent;
  }
  return unsafe();
}

static bool event_done(const struct jcf_event *e) {
  if (e->slot != NULL) {
    return atomic_load(&e->slot->done) >= atomic_load(&e->slot->recorded);
  }
  return e->latest == NULL || passed(&e->latest->at);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER(cudaEventQuery);
  pthread_mutex_lock(&lock);
  struct jcf_event *e = find_event(event);
  cudaError_t error = may_ask_event(e);
  if (error == cudaSuccess) {
    error = event_done(e) ? failure() : cudaErrorNotReady;
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER(cudaEventSynchronize);
  pthread_mutex_lock(&lock);
  struct jcf_event *e = find_event(event);
  cudaError_t error = may_ask_event(e);
  if (error == cudaSuccess && e->slot != NULL) {
    struct slot_use u = {e->slot, atomic_load(&e->slot->recorded)};
    pthread_mutex_unlock(&lock);
    run_slot_wait(&u);
    pthread_mutex_lock(&lock);
  } else if (error == cudaSuccess && e->latest != NULL) {
    struct jcf_dep d = e->latest->at;
    d.stream->uses++;
    await(&d);
  }
  trim_pools();
  error = error == cudaSuccess ? failure() : error;
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start_, cudaEvent_t end) {
  ENTER(cudaEventElapsedTime);
  if (ms == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_event *a = find_event(start_), *b = find_event(end);
  cudaError_t error = cudaSuccess;
  if (a == NULL || b == NULL || ((a->flags | b->flags) & cudaEventDisableTiming) != 0
      || a->latest == NULL || b->latest == NULL) {
    error = cudaErrorInvalidResourceHandle;
  } else if (a->capture != NULL || b->capture != NULL) {
    error = cudaErrorCapturedEvent;
  } else if (!event_done(a) || !event_done(b)) {
    error = cudaErrorNotReady;
  } else {
    *ms = (float)(b->latest->ms - a->latest->ms);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

/* ---- between processes */

struct handle {
  char magic[8];
  struct jcf_process process;
  uint64_t offset, size;
  int32_t device;
  int32_t unused;
};
_Static_assert(sizeof(struct handle) <= 64, "a handle has 64 bytes");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr) {
  ENTER(cudaIpcGetMemHandle);
  struct jcf_memory m = jcf_memory_of(ptr);
  if (handle == NULL || m.type != cudaMemoryTypeDevice || m.pool || !m.mappable) {
    return fail(cudaErrorInvalidValue);
  }
  struct handle h = {"jcclmem", self, m.base - (uintptr_t)arena, m.size, m.device, 0};
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &h, sizeof h);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned flags) {
  ENTER(cudaIpcOpenMemHandle);
  struct handle h;
  memcpy(&h, &handle, sizeof h);
  if (ptr == NULL || flags > 1 || memcmp(h.magic, "jcclmem", 8) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  if (h.process.pid == self.pid) {
    return fail(cudaErrorDeviceUninitialized); /* only another process can open it */
  }
  char *base = jcf_alive(&h.process) ? jcf_map(&h.process) : NULL;
  if (base == NULL) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *ptr = base + h.offset;
  pthread_mutex_lock(&lock);
  struct block *b = block_at(*ptr);
  cudaError_t error = cudaSuccess;
  if (b != NULL && b->kind == IMPORTED && b->base == (uintptr_t)*ptr) {
    b->flags++; /* opened once more */
  } else {
    b = insert_block((uintptr_t)*ptr, h.size, h.size);
    b->kind = IMPORTED;
    b->device = h.device;
    b->flags = 1;
  }
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_IPC, 1);
  return fail(error);
}

cudaError_t cudaIpcCloseMemHandle(void *ptr) {
  ENTER(cudaIpcCloseMemHandle);
  pthread_mutex_lock(&lock);
  struct block *b = block_at(ptr);
  bool ok = b != NULL && b->kind == IMPORTED && b->base == (uintptr_t)ptr;
  if (ok && --b->flags == 0) {
    remove_block(b);
  }
  pthread_mutex_unlock(&lock);
  if (ok) {
    jcf_live(JCF_IPC, -1);
  }
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
  ENTER(cudaIpcGetEventHandle);
  pthread_mutex_lock(&lock);
  struct jcf_event *e = find_event(event);
  bool ok = e != NULL && e->slot != NULL && !e->imported;
  struct handle h = {"jcclevt", self, 0, 0, 0, 0};
  if (ok) {
    h.offset = (uint64_t)((char *)e->slot - store);
    h.device = e->device;
  }
  pthread_mutex_unlock(&lock);
  if (handle == NULL || !ok) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &h, sizeof h);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
  ENTER(cudaIpcOpenEventHandle);
  struct handle h;
  memcpy(&h, &handle, sizeof h);
  if (event == NULL || memcmp(h.magic, "jcclevt", 8) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  if (h.process.pid == self.pid) {
    return fail(cudaErrorDeviceUninitialized);
  }
  char *base = jcf_alive(&h.process) ? jcf_map(&h.process) : NULL;
  if (base == NULL) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  struct jcf_event *e = need(calloc(1, sizeof *e));
  e->flags = cudaEventDisableTiming | cudaEventInterprocess;
  e->device = h.device;
  e->imported = true;
  e->slot = (struct slot *)(base + h.offset);
  pthread_mutex_lock(&lock);
  e->next = events;
  events = e;
  pthread_mutex_unlock(&lock);
  *event = e;
  jcf_live(JCF_EVENTS, 1);
  return cudaSuccess;
}

/* ---- graphs */

/* Returns the operation of a node that is one of the device's or the host's work. */
static struct op *launch_node(struct jcf_stream *s, const struct jcf_node *what) {
  switch (what->work) {
    case COPY: {
      struct copy *c = need(malloc(sizeof *c));
      *c = what->copy;
      return enqueue(s, run_copy, release_copy, c, NULL, 0);
    }
    case SET: {
      struct set *v = need(malloc(sizeof *v));
      *v = (struct set){what->copy.dst, what->value, what->copy.width};
      return enqueue(s, run_set, free, v, NULL, 0);
    }
    case CALL: {
      struct call *c = need(malloc(sizeof *c));
      *c = (struct call){what->fn, what->data, s->device};
      return enqueue(s, run_call, free, c, NULL, 0);
    }
    case RECORD:
      if (find_event(what->event) != NULL) {
        record_now(what->event, s);
      }
      break;
    case WAIT:
      if (find_event(what->event) != NULL) {
        wait_now(what->event, s);
      }
      break;
    case NOTHING:
    case CUSTOM: break;
  }
  return NULL;
}

static struct jcf_graph *new_graph(void) {
  struct jcf_graph *g = need(calloc(1, sizeof *g));
  g->next = graphs;
  graphs = g;
  jcf_live(JCF_GRAPHS, 1);
  return g;
}

static struct jcf_graph *find_graph(cudaGraph_t handle) {
  struct jcf_graph *g = graphs;
  while (g != NULL && g != handle) {
    g = g->next;
  }
  return g;
}

static struct jcf_exec *find_exec(cudaGraphExec_t handle) {
  struct jcf_exec *x = execs;
  while (x != NULL && x != handle) {
    x = x->next;
  }
  return x;
}

static void free_nodes(struct jcf_node **nodes, int n) {
  for (int i = 0; i < n; i++) {
    if (nodes[i]->work == CUSTOM) {
      nodes[i]->done(nodes[i]->arg);
    }
    free(nodes[i]->after);
    free(nodes[i]);
  }
  free(nodes);
}

static void free_graph(struct jcf_graph *g) {
  for (struct jcf_graph **at = &graphs; *at != NULL; at = &(*at)->next) {
    if (*at == g) {
      *at = g->next;
      break;
    }
  }
  free_nodes(g->nodes, g->n);
  free(g);
  jcf_live(JCF_GRAPHS, -1);
}

/* Ends a capture; the graph goes with it unless it was taken. */
static void end_capture(struct capture *c) {
  for (struct jcf_stream *t = streams; t != NULL; t = t->next) {
    t->capture = t->capture == c ? NULL : t->capture;
  }
  for (struct jcf_event *e = events; e != NULL; e = e->next) {
    e->capture = e->capture == c ? NULL : e->capture;
  }
  for (struct capture **at = &captures; *at != NULL; at = &(*at)->next) {
    if (*at == c) {
      *at = c->next;
      break;
    }
  }
  if (c->graph != NULL) {
    free_graph(c->graph);
  }
  free(c);
}

/* Copies of nodes, which follow copies. */
static struct jcf_node **copy_nodes(struct jcf_node **nodes, int n) {
  struct jcf_node **copies = need(malloc((size_t)(n + 1) * sizeof *copies));
  for (int i = 0; i < n; i++) {
    copies[i] = need(malloc(sizeof **copies));
    *copies[i] = *nodes[i];
    copies[i]->after = NULL;
    set_last(&copies[i]->after, &copies[i]->nafter, nodes[i]->after, nodes[i]->nafter);
    for (int k = 0; k < copies[i]->nafter; k++) {
      for (int j = 0; j < i; j++) {
        if (copies[i]->after[k] == nodes[j]) {
          copies[i]->after[k] = copies[j];
          break;
        }
      }
    }
    if (nodes[i]->work == CUSTOM) {
      nodes[i]->use(nodes[i]->arg);
    }
  }
  return copies;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
  ENTER(cudaStreamBeginCapture);
  if (mode < 0 || mode > 2) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle
      : s->legacy               ? cudaErrorStreamCaptureUnsupported
      : s->capture != NULL      ? cudaErrorIllegalState
                                : cudaSuccess;
  if (error == cudaSuccess) {
    struct capture *c = need(calloc(1, sizeof *c));
    c->graph = new_graph();
    c->origin = s;
    c->mode = mode;
    c->thread = &self_tag;
    c->next = captures;
    captures = c;
    s->capture = c;
    set_last(&s->last, &s->nlast, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

/* Whether every node comes before one of the last. */
static bool joined(struct jcf_graph *g, struct jcf_node **last, int nlast) {
  bool *reached = need(calloc((size_t)g->n + 1, sizeof *reached));
  bool all = true;
  for (int i = g->n - 1; i >= 0; i--) {
    for (int k = 0; k < nlast; k++) {
      reached[i] |= last[k] == g->nodes[i];
    }
    all &= reached[i];
    for (int k = 0; reached[i] && k < g->nodes[i]->nafter; k++) {
      for (int j = 0; j < i; j++) {
        reached[j] |= g->nodes[j] == g->nodes[i]->after[k];
      }
    }
  }
  free(reached);
  return all;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  ENTER(cudaStreamEndCapture);
  if (graph == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  *graph = NULL;
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  struct capture *c = s == NULL ? NULL : s->capture;
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle
      : c == NULL               ? cudaErrorIllegalState
      : c->origin != s          ? cudaErrorStreamCaptureUnmatched
      : c->mode != cudaStreamCaptureModeRelaxed && c->thread != &self_tag
      ? cudaErrorStreamCaptureWrongThread
      : cudaSuccess;
  if (error == cudaErrorStreamCaptureUnmatched) {
    c->invalid = true;
  }
  if (error == cudaSuccess) {
    if (c->invalid) {
      error = cudaErrorStreamCaptureInvalidated;
    } else if (!joined(c->graph, s->last, s->nlast)) {
      error = cudaErrorStreamCaptureUnjoined;
    }
    if (error == cudaSuccess) {
      *graph = c->graph;
      c->graph = NULL;
    }
    end_capture(c);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status) {
  ENTER(cudaStreamIsCapturing);
  if (status == NULL) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = s == NULL ? cudaErrorInvalidResourceHandle : cudaSuccess;
  if (error == cudaSuccess && s->legacy) {
    error = usable(s);
  }
  if (error == cudaSuccess) {
    *status = s->capture == NULL ? 0 : s->capture->invalid ? 2 : 1;
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
  ENTER_ANY(cudaThreadExchangeStreamCaptureMode, NEEDS_DEVICES);
  if (mode == NULL || *mode < 0 || *mode > 2) {
    return fail(cudaErrorInvalidValue);
  }
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
  ENTER(cudaGraphCreate);
  if (graph == NULL || flags != 0) {
    return fail(cudaErrorInvalidValue);
  }
  pthread_mutex_lock(&lock);
  *graph = new_graph();
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original) {
  ENTER(cudaGraphClone);
  pthread_mutex_lock(&lock);
  struct jcf_graph *g = find_graph(original);
  bool ok = g != NULL && clone != NULL;
  if (ok) {
    struct jcf_graph *made = new_graph();
    made->nodes = copy_nodes(g->nodes, g->n);
    made->n = g->n;
    *clone = made;
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENTER(cudaGraphDestroy);
  pthread_mutex_lock(&lock);
  struct jcf_graph *g = find_graph(graph);
  if (g != NULL) {
    free_graph(g);
  }
  pthread_mutex_unlock(&lock);
  return fail(g != NULL ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  ENTER(cudaGraphGetNodes);
  pthread_mutex_lock(&lock);
  struct jcf_graph *g = find_graph(graph);
  bool ok = g != NULL && count != NULL;
  if (ok && nodes != NULL) {
    for (size_t i = 0; i < *count; i++) {
      nodes[i] = i < (size_t)g->n ? g->nodes[i] : NULL;
    }
  }
  if (ok) {
    *count = nodes == NULL || (size_t)g->n < *count ? (size_t)g->n : *count;
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

static int node_type(const struct jcf_node *node) {
  switch (node->work) {
    case COPY: return cudaGraphNodeTypeMemcpy;
    case SET: return cudaGraphNodeTypeMemset;
    case CALL: return cudaGraphNodeTypeHost;
    case RECORD: return cudaGraphNodeTypeEventRecord;
    case WAIT: return cudaGraphNodeTypeWaitEvent;
    case CUSTOM: return cudaGraphNodeTypeKernel;
    default: return cudaGraphNodeTypeEmpty;
  }
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, int *type) {
  ENTER(cudaGraphNodeGetType);
  pthread_mutex_lock(&lock);
  bool ok = false;
  for (struct jcf_graph *g = graphs; g != NULL; g = g->next) {
    for (int i = 0; i < g->n; i++) {
      ok |= g->nodes[i] == node;
    }
  }
  ok &= type != NULL;
  if (ok) {
    *type = node_type(node);
  }
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

/*
 * cuda_rules.txt, capture.global.graph_launch.other. It asks for both at once, so the fake refuses
 * each alone.
 */
static cudaError_t instantiate(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  struct jcf_graph *g = find_graph(graph);
  bool ok = g != NULL && exec != NULL && flags <= 15;
  cudaError_t error = ok ? unsafe() : cudaErrorInvalidValue;
  if (error == cudaSuccess) {
    struct jcf_exec *x = need(calloc(1, sizeof *x));
    x->nodes = copy_nodes(g->nodes, g->n);
    x->n = g->n;
    x->next = execs;
    execs = x;
    *exec = x;
    jcf_live(JCF_EXECS, 1);
  }
  pthread_mutex_unlock(&lock);
  return error;
}

cudaError_t cudaGraphInstantiate(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  ENTER(cudaGraphInstantiate);
  return fail(instantiate(exec, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  ENTER(cudaGraphInstantiateWithFlags);
  return fail(instantiate(exec, graph, flags));
}

static int place_in(struct jcf_node **nodes, int n, const struct jcf_node *node) {
  int i = 0;
  while (i < n && nodes[i] != node) {
    i++;
  }
  return i;
}

cudaError_t cudaGraphExecUpdate(
    cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info) {
  ENTER(cudaGraphExecUpdate);
  pthread_mutex_lock(&lock);
  struct jcf_graph *g = find_graph(graph);
  struct jcf_exec *x = find_exec(exec);
  cudaError_t error = g == NULL || x == NULL || info == NULL ? cudaErrorInvalidValue
                                                             : cudaSuccess;
  if (error == cudaSuccess) {
    memset(info, 0, sizeof *info);
    info->result = g->n == x->n ? 0 : 2;
    for (int i = 0; i < g->n && info->result == 0; i++) {
      struct jcf_node *a = g->nodes[i], *b = x->nodes[i];
      bool same = a->nafter == b->nafter;
      for (int k = 0; same && k < a->nafter; k++) {
        same = place_in(g->nodes, i, a->after[k]) == place_in(x->nodes, i, b->after[k]);
      }
      info->result = a->work != b->work ? 3 : !same ? 2 : 0;
      info->errorNode = info->result == 0 ? NULL : a;
    }
    if (info->result != 0) {
      error = cudaErrorGraphExecUpdateFailure;
    } else {
      struct jcf_node **nodes = copy_nodes(g->nodes, g->n);
      free_nodes(x->nodes, x->n);
      x->nodes = nodes;
    }
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  ENTER(cudaGraphUpload);
  pthread_mutex_lock(&lock);
  bool ok = find_exec(exec) != NULL && find_stream(stream, current) != NULL;
  pthread_mutex_unlock(&lock);
  return fail(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  ENTER(cudaGraphLaunch);
  pthread_mutex_lock(&lock);
  struct jcf_exec *x = find_exec(exec);
  struct jcf_stream *s = find_stream(stream, current);
  cudaError_t error = x == NULL ? cudaErrorInvalidValue
      : s == NULL               ? cudaErrorInvalidResourceHandle
                                : usable(s);
  if (error == cudaSuccess && s->capture != NULL) {
    s->capture->invalid = true; /* the fake has no child graphs */
    error = cudaErrorNotSupported;
  } else if (error == cudaSuccess) {
    error = unsafe();
  }
  if (error == cudaSuccess) {
    /* Nodes one after the other: the order in which they were captured is one that is allowed.
       Another thread may destroy or update the graph meanwhile, so copies are launched. */
    struct jcf_node **nodes = copy_nodes(x->nodes, x->n);
    int n = x->n;
    s->uses++;
    for (int i = 0; i < n; i++) {
      if (nodes[i]->work == CUSTOM) {
        pthread_mutex_unlock(&lock);
        nodes[i]->launch(nodes[i]->arg, s);
        pthread_mutex_lock(&lock);
      } else {
        launch_node(s, nodes[i]);
      }
    }
    stream_unuse(s);
    free_nodes(nodes, n);
  }
  pthread_mutex_unlock(&lock);
  return fail(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  ENTER(cudaGraphExecDestroy);
  pthread_mutex_lock(&lock);
  struct jcf_exec *x = find_exec(exec);
  for (struct jcf_exec **at = &execs; x != NULL && *at != NULL; at = &(*at)->next) {
    if (*at == x) {
      *at = x->next;
      break;
    }
  }
  if (x != NULL) {
    free_nodes(x->nodes, x->n);
    free(x);
    jcf_live(JCF_EXECS, -1);
  }
  pthread_mutex_unlock(&lock);
  return fail(x != NULL ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags) {
  ENTER(cudaGraphDebugDotPrint);
  (void)flags;
  pthread_mutex_lock(&lock);
  struct jcf_graph *g = find_graph(graph);
  FILE *f = g == NULL || path == NULL ? NULL : fopen(path, "w");
  if (f != NULL) {
    const char *const names[] = {
        "copy", "set", "host function", "nothing", "record", "wait", "nccl"};
    fprintf(f, "digraph jccl_fake {\n");
    for (int i = 0; i < g->n; i++) {
      fprintf(f, "  n%d [label=\"%d %s\"];\n", i, i, names[g->nodes[i]->work]);
      for (int k = 0; k < g->nodes[i]->nafter; k++) {
        fprintf(f, "  n%d -> n%d;\n", place_in(g->nodes, g->n, g->nodes[i]->after[k]), i);
      }
    }
    fprintf(f, "}\n");
    fclose(f);
  }
  pthread_mutex_unlock(&lock);
  return fail(f != NULL   ? cudaSuccess
          : g == NULL ? cudaErrorInvalidValue
                      : cudaErrorOperatingSystem);
}
