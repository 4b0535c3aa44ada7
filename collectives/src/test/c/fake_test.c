/*
 * Drives the fakes of libcudart, libnccl and libcublas through their C interface alone. Exit
 * status 0 if all went well. Arguments: names of tests, or none for all; "-f" leaves out those that
 * fork; "-s" looks for functions by their names; "-v" prints what the environment can change;
 * "-l" frees a slot for a communicator too early, for AddressSanitizer to see.
 */
#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: in process %d: %s\n", __FILE__, __LINE__, getpid(), #condition); \
      abort(); \
    } \
  } while (0)
#define IS(expected, actual) \
  do { \
    long is_ = (long)(actual), wants_ = (long)(expected); \
    if (is_ != wants_) { \
      fprintf(stderr, "%s:%d: in process %d: %s is %ld, expected %ld; %s\n", __FILE__, __LINE__, \
          getpid(), #actual, is_, wants_, ncclGetLastError(NULL)); \
      abort(); \
    } \
  } while (0)
#define OK(call) IS(0, call)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pause_ms(int ms) { usleep((useconds_t)ms * 1000); }

static void no_leaks(void) {
  static const char *const KINDS[] = {"streams", "events", "allocations", "host", "registered",
      "pools", "graphs", "execs", "ipc", "comms", "registrations", "windows", "redops", "jobs",
      "cublas"};
  for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
    if (jccl_fake_live(KINDS[i]) != 0) {
      fprintf(stderr, "%ld %s left\n", jccl_fake_live(KINDS[i]), KINDS[i]);
      abort();
    }
  }
  OK(jccl_fake_live("all"));
  IS(-1, jccl_fake_live("elephants"));
}

/* ---- the runtime */

static void test_names(void) {
  CHECK(strstr(jccl_fake_name(), "jccl fake of lib") != NULL);
  int v = 0;
  OK(cudaRuntimeGetVersion(&v));
  IS(13000, v);
  OK(cudaDriverGetVersion(&v));
  IS(13000, v);
  OK(ncclGetVersion(&v));
  IS(23007, v);
  IS(1, jccl_fake_calls("ncclGetVersion"));
  IS(-1, jccl_fake_calls("cudaNever"));
  CHECK(strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation") == 0);
  CHECK(strstr(cudaGetErrorString(2), "jccl fake") != NULL);
  CHECK(strstr(ncclGetErrorString(5), "jccl fake") != NULL);
}

static void test_devices(void) {
  int n = 0, d = -1, can = -1;
  OK(cudaGetDeviceCount(&n));
  IS(8, n);
  OK(cudaGetDevice(&d));
  IS(0, d);
  IS(cudaErrorInvalidDevice, cudaSetDevice(8));
  IS(cudaErrorInvalidDevice, cudaPeekAtLastError());
  IS(cudaErrorInvalidDevice, cudaGetLastError());
  OK(cudaGetLastError());
  OK(cudaSetDevice(3));
  char id[16];
  OK(cudaDeviceGetPCIBusId(id, sizeof id, 3));
  OK(cudaDeviceGetByPCIBusId(&d, id));
  IS(3, d);
  struct cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 3));
  CHECK(strstr(p.name, "fake") != NULL);
  IS(1L << 30, p.totalGlobalMem);
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  IS(1, can);
  OK(cudaDeviceEnablePeerAccess(1, 0));
  IS(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
  OK(cudaDeviceDisablePeerAccess(1));
  IS(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
  OK(cudaSetDevice(0));
}

static void test_memory(void) {
  unsigned char *a = NULL, *big = NULL, back[100];
  size_t left = 0, total = 0, left2 = 0;
  OK(cudaMemGetInfo(&left, &total));
  OK(cudaMalloc((void **)&a, 100));
  OK(cudaMemGetInfo(&left2, &total));
  IS(100, left - left2);
  OK(cudaMemcpy(back, a, 100, cudaMemcpyDeviceToHost));
  IS(0xA5, back[57]);
  IS(cudaErrorInvalidValue, cudaMemcpy(back, a + 1, 100, cudaMemcpyDefault));
  IS(cudaErrorInvalidValue, cudaMemcpy(back, a, 100, cudaMemcpyHostToDevice));
  IS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(back, a, 100, 7));
  struct cudaPointerAttributes at;
  OK(cudaPointerGetAttributes(&at, a + 5));
  IS(cudaMemoryTypeDevice, at.type);
  IS(0, at.device);
  CHECK(at.devicePointer == a + 5 && at.hostPointer == NULL);
  OK(cudaPointerGetAttributes(&at, back));
  IS(cudaMemoryTypeUnregistered, at.type);
  IS(cudaErrorInvalidValue, cudaFree(a + 5));
  OK(cudaFree(a));
  IS(cudaErrorInvalidValue, cudaFree(a));
  IS(cudaErrorInvalidValue, cudaMemset(a, 0, 100));
  OK(cudaFree(NULL));
  IS(cudaErrorMemoryAllocation, cudaMalloc((void **)&big, (1UL << 30) + 1));
  OK(cudaMalloc((void **)&big, 1UL << 30));
  IS(cudaErrorMemoryAllocation, cudaMalloc((void **)&a, 1));
  OK(cudaFree(big));

  void *pinned = NULL, *device = NULL;
  unsigned flags = 0;
  OK(cudaHostAlloc(&pinned, 5000, 1));
  OK(cudaPointerGetAttributes(&at, pinned));
  IS(cudaMemoryTypeHost, at.type);
  OK(cudaHostGetDevicePointer(&device, pinned, 0));
  CHECK(device == pinned);
  OK(cudaHostGetFlags(&flags, pinned));
  IS(3, flags);
  IS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(pinned, 10, 0));
  IS(cudaErrorInvalidValue, cudaFree(pinned));
  OK(cudaFreeHost(pinned));
  char *own = malloc(10000);
  OK(cudaHostRegister(own, 10000, 0));
  IS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own + 100, 10, 0));
  OK(cudaPointerGetAttributes(&at, own + 9999));
  IS(cudaMemoryTypeHost, at.type);
  IS(cudaErrorInvalidValue, cudaHostUnregister(own + 1));
  OK(cudaHostUnregister(own));
  IS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own));
  free(own);
  void *managed = NULL;
  OK(cudaMallocManaged(&managed, 64, 1));
  OK(cudaPointerGetAttributes(&at, managed));
  IS(cudaMemoryTypeManaged, at.type);
  OK(cudaFree(managed));

  /* Other devices' memory: copies work, with the right device only. */
  void *zero = NULL, *one = NULL;
  OK(cudaMalloc(&zero, 64));
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&one, 64));
  OK(cudaMemset(one, 7, 64));
  OK(cudaMemcpyPeer(zero, 0, one, 1, 64));
  IS(cudaErrorInvalidValue, cudaMemcpyPeer(zero, 1, one, 0, 64));
  OK(cudaMemcpy(back, zero, 64, cudaMemcpyDefault));
  IS(7, back[63]);
  OK(cudaFree(zero));
  OK(cudaFree(one));
  OK(cudaSetDevice(0));
  no_leaks();
}

static int held; /* host functions do not end before this is 0 again */

static void hold(int is) { __atomic_store_n(&held, is, __ATOMIC_SEQ_CST); }

static void sleep_50(void *flag) {
  while (__atomic_load_n(&held, __ATOMIC_SEQ_CST) != 0) {
    pause_ms(1);
  }
  pause_ms(50);
  __atomic_store_n((int *)flag, 1, __ATOMIC_SEQ_CST);
}

static void calls_cuda(void *result) { *(int *)result = cudaDeviceSynchronize(); }

static void test_streams(void) {
  cudaStream_t a, b, free_;
  cudaEvent_t e, never, start, end;
  int slept = 0;
  char *x = NULL, back[64];
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreate(&b));
  OK(cudaStreamCreateWithPriority(&free_, cudaStreamNonBlocking, -9));
  int priority = 0;
  OK(cudaStreamGetPriority(free_, &priority));
  IS(-5, priority);
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  OK(cudaEventCreate(&never));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  OK(cudaMalloc((void **)&x, 64));
  OK(cudaStreamQuery(a));
  OK(cudaEventQuery(never));
  OK(cudaEventSynchronize(never));

  /* Work on a stream is done in order and later; another stream waits by an event. */
  OK(cudaEventRecord(start, a));
  hold(1);
  OK(cudaLaunchHostFunc(a, sleep_50, &slept));
  OK(cudaMemsetAsync(x, 1, 64, a));
  OK(cudaEventRecord(e, a));
  OK(cudaEventRecord(end, a));
  IS(cudaErrorNotReady, cudaEventQuery(e));
  IS(cudaErrorNotReady, cudaStreamQuery(a));
  hold(0);
  OK(cudaStreamWaitEvent(free_, e, 0));
  OK(cudaMemsetAsync(x, 2, 64, free_));
  OK(cudaStreamSynchronize(free_));
  IS(1, __atomic_load_n(&slept, __ATOMIC_SEQ_CST));
  OK(cudaStreamQuery(free_));
  OK(cudaEventSynchronize(end));
  float ms = 0;
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= 49 && ms < 5000);
  IS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, e));
  IS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, never));
  OK(cudaMemcpy(back, x, 64, cudaMemcpyDefault));
  IS(2, back[5]);

  /* A wait takes the recording before the call, not a later one. */
  OK(cudaStreamWaitEvent(b, e, 0));
  hold(1);
  OK(cudaLaunchHostFunc(a, sleep_50, &slept));
  OK(cudaEventRecord(e, a));
  OK(cudaStreamSynchronize(b));
  IS(cudaErrorNotReady, cudaEventQuery(e));
  hold(0);
  OK(cudaStreamSynchronize(a));

  /* The legacy stream waits for blocking ones, and they for it; others are free of it. */
  slept = 0;
  hold(1);
  OK(cudaLaunchHostFunc(a, sleep_50, &slept));
  IS(cudaErrorNotReady, cudaStreamQuery(NULL));
  hold(0);
  OK(cudaMemset(x, 3, 64)); /* on the legacy stream, asynchronous */
  OK(cudaMemsetAsync(x, 4, 32, b));
  OK(cudaStreamQuery(free_));
  OK(cudaStreamSynchronize(b));
  IS(1, slept);
  OK(cudaMemcpy(back, x, 64, cudaMemcpyDefault));
  IS(4, back[0]);
  IS(3, back[63]);

  /* Pageable memory is staged when it is read, and waited for when it is written. */
  slept = 0;
  char src[64];
  memset(src, 5, 64);
  OK(cudaLaunchHostFunc(free_, sleep_50, &slept));
  OK(cudaMemcpyAsync(x, src, 64, cudaMemcpyHostToDevice, free_));
  memset(src, 6, 64);
  OK(cudaMemcpyAsync(back, x, 64, cudaMemcpyDeviceToHost, free_));
  IS(1, slept);
  IS(5, back[9]);
  OK(cudaMemcpy2DAsync(x, 8, src, 16, 4, 4, cudaMemcpyHostToDevice, free_));
  OK(cudaMemcpyAsync(back, x, 64, cudaMemcpyDeviceToHost, free_));
  CHECK(back[0] == 6 && back[3] == 6 && back[4] == 5 && back[24] == 6 && back[28] == 5);

  int inside = 0;
  OK(cudaLaunchHostFunc(a, calls_cuda, &inside));
  OK(cudaStreamSynchronize(a));
  IS(cudaErrorNotPermitted, inside);

  /* A destroyed stream does its work. */
  slept = 0;
  OK(cudaLaunchHostFunc(b, sleep_50, &slept));
  OK(cudaEventRecord(end, b));
  OK(cudaStreamDestroy(b));
  IS(cudaErrorInvalidResourceHandle, cudaStreamDestroy(b));
  IS(cudaErrorInvalidResourceHandle, cudaStreamQuery(b));
  OK(cudaEventSynchronize(end));
  IS(1, slept);
  OK(cudaMemsetAsync(x, 0, 64, (cudaStream_t)2));
  OK(cudaStreamSynchronize((cudaStream_t)2));
  OK(cudaMemsetAsync(x, 0, 64, (cudaStream_t)1));
  OK(cudaSetDevice(1));
  IS(cudaErrorInvalidResourceHandle, cudaEventRecord(end, NULL)); /* another device's */
  int device = -1;
  OK(cudaStreamGetDevice(a, &device));
  IS(0, device);
  OK(cudaSetDevice(0));
  OK(cudaDeviceSynchronize());
  OK(cudaEventDestroy(e));
  OK(cudaEventDestroy(never));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
  IS(cudaErrorInvalidResourceHandle, cudaEventDestroy(end));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(free_));
  OK(cudaFree(x));
  no_leaks();
}

static void test_pools(void) {
  cudaStream_t s;
  cudaMemPool_t pool, other;
  struct cudaMemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = 1;
  props.location.type = 1;
  OK(cudaStreamCreate(&s));
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaMemPoolCreate(&other, &props));
  char *a, *b;
  uint64_t used = 1, threshold = 1 << 20;
  OK(cudaMallocAsync((void **)&a, 1000, s));
  OK(cudaMallocFromPoolAsync((void **)&b, 3 << 20, other, s));
  OK(cudaMemPoolGetAttribute(other, 7, &used));
  IS(3 << 20, used);
  OK(cudaMemPoolGetAttribute(other, 5, &used));
  IS(4 << 20, used);
  /* What nobody uses goes at the next wait, but for what the threshold keeps. */
  OK(cudaFreeAsync(b, s));
  OK(cudaMemPoolGetAttribute(other, 5, &used));
  IS(4 << 20, used);
  OK(cudaStreamSynchronize(s));
  OK(cudaMemPoolGetAttribute(other, 5, &used));
  IS(0, used);
  OK(cudaMallocFromPoolAsync((void **)&b, 3 << 20, other, s));
  OK(cudaMemPoolSetAttribute(other, 4, &threshold));
  OK(cudaMemsetAsync(a, 1, 1000, s));
  OK(cudaMemcpyAsync(b, a, 1000, cudaMemcpyDefault, s));
  OK(cudaFreeAsync(a, s));
  IS(cudaErrorInvalidValue, cudaFreeAsync(a, s));
  OK(cudaFreeAsync(b, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemPoolGetAttribute(other, 5, &used));
  IS(threshold, used);
  OK(cudaMemPoolTrimTo(other, 0));
  OK(cudaMemPoolGetAttribute(other, 5, &used));
  IS(0, used);
  struct cudaMemLocation where = {1, 1};
  struct cudaMemAccessDesc access = {{1, 1}, 3};
  int flags = 0;
  OK(cudaMemPoolSetAccess(other, &access, 1));
  OK(cudaMemPoolGetAccess(&flags, other, &where));
  IS(3, flags);
  OK(cudaMemPoolDestroy(other));
  IS(cudaErrorInvalidValue, cudaMemPoolDestroy(pool));
  OK(cudaStreamDestroy(s));
  no_leaks();
}

static void add_one(void *n) { ++*(int *)n; }

static void test_capture(void) {
  cudaStream_t s, t, legacy_bound;
  cudaEvent_t fork_, join_, outside;
  cudaGraph_t g, clone;
  cudaGraphExec_t x;
  int count = 0, status = -1;
  char *a, *b, back[64];
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  OK(cudaStreamCreate(&legacy_bound));
  OK(cudaEventCreate(&fork_));
  OK(cudaEventCreate(&join_));
  OK(cudaEventCreate(&outside));
  OK(cudaMalloc((void **)&a, 64));
  OK(cudaMalloc((void **)&b, 64));
  OK(cudaEventRecord(outside, t));

  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaMemsetAsync(a, 1, 64, s));
  OK(cudaEventRecord(fork_, s));
  OK(cudaStreamWaitEvent(t, fork_, 0));
  OK(cudaStreamIsCapturing(t, &status));
  IS(1, status);
  OK(cudaLaunchHostFunc(t, add_one, &count));
  OK(cudaEventRecord(join_, t));
  OK(cudaStreamWaitEvent(s, join_, 0));
  OK(cudaMemcpyAsync(b, a, 64, cudaMemcpyDeviceToDevice, s));
  OK(cudaStreamEndCapture(s, &g));
  OK(cudaStreamIsCapturing(t, &status));
  IS(0, status);
  IS(0, count);
  size_t n = 0;
  OK(cudaGraphGetNodes(g, NULL, &n));
  IS(3, n);
  cudaGraphNode_t nodes[3];
  OK(cudaGraphGetNodes(g, nodes, &n));
  int type = -1;
  OK(cudaGraphNodeGetType(nodes[1], &type));
  IS(cudaGraphNodeTypeHost, type);
  OK(cudaGraphClone(&clone, g));
  OK(cudaGraphInstantiate(&x, clone, 0));
  OK(cudaGraphDestroy(clone));
  for (int i = 1; i <= 3; i++) {
    OK(cudaMemsetAsync(b, 9, 64, t));
    OK(cudaStreamSynchronize(t));
    OK(cudaGraphLaunch(x, t));
    OK(cudaStreamSynchronize(t));
    IS(i, count);
    OK(cudaMemcpy(back, b, 64, cudaMemcpyDefault));
    IS(1, back[63]);
  }
  cudaGraphExecUpdateResultInfo info;
  OK(cudaGraphExecUpdate(x, g, &info));
  cudaGraph_t empty;
  OK(cudaGraphCreate(&empty, 0));
  IS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(x, empty, &info));
  IS(2, info.result);
  OK(cudaGraphDestroy(empty));
  OK(cudaGraphExecDestroy(x));
  OK(cudaGraphDestroy(g));

  /* What is not allowed, and what it does to the capture. */
  IS(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(NULL, 0));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  IS(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s));
  IS(cudaErrorStreamCaptureInvalidated, cudaMemsetAsync(a, 1, 64, s));
  IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
  CHECK(g == NULL);
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  void *p;
  IS(cudaErrorStreamCaptureUnsupported, cudaMalloc(&p, 8));
  IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  OK(cudaMalloc(&p, 8));
  OK(cudaFree(p));
  OK(cudaStreamEndCapture(s, &g));
  OK(cudaGraphDestroy(g));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  IS(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(s, outside, 0));
  IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork_, s));
  OK(cudaStreamWaitEvent(t, fork_, 0));
  OK(cudaMemsetAsync(a, 1, 64, t));
  IS(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(t, &g));
  IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork_, s));
  OK(cudaStreamWaitEvent(t, fork_, 0));
  OK(cudaMemsetAsync(a, 1, 64, t));
  IS(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(s, &g));
  /* A stream that joined may end: NCCL's does in every captured operation (strongstream.cc:417). */
  for (int is_joined = 0; is_joined < 2; is_joined++) {
    cudaStream_t guest;
    OK(cudaStreamCreateWithFlags(&guest, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(fork_, s));
    OK(cudaStreamWaitEvent(guest, fork_, 0));
    OK(cudaMemsetAsync(a, 1, 64, guest));
    if (is_joined == 1) {
      OK(cudaEventRecord(join_, guest));
      OK(cudaStreamWaitEvent(s, join_, 0));
    }
    OK(cudaStreamDestroy(guest));
    IS(is_joined == 1 ? cudaSuccess : cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(s, &g));
    if (is_joined == 1) {
      OK(cudaGraphDestroy(g));
    }
  }
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork_, s));
  IS(cudaErrorCapturedEvent, cudaEventQuery(fork_));
  IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &g));
  OK(cudaStreamBeginCapture(legacy_bound, cudaStreamCaptureModeRelaxed));
  IS(cudaErrorStreamCaptureImplicit, cudaMemsetAsync(a, 1, 64, NULL));
  IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(legacy_bound, &g));
  IS(cudaErrorIllegalState, cudaStreamEndCapture(s, &g));

  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaEventDestroy(fork_));
  OK(cudaEventDestroy(join_));
  OK(cudaEventDestroy(outside));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
  OK(cudaStreamDestroy(legacy_bound));
  no_leaks();
}

static void test_injection(void) {
  void *p = NULL;
  IS(-1, jccl_fake_inject("cudaMalloc"));
  IS(-1, jccl_fake_inject("cudaMalloc:0:error=2"));
  IS(2, jccl_fake_inject("cudaMalloc:2:error=2;cudaFree@0:*:delay=30"));
  OK(cudaMalloc(&p, 8));
  double before = now();
  OK(cudaFree(p));
  CHECK(now() - before > 0.025);
  IS(2, cudaMalloc(&p, 8));
  IS(2, cudaGetLastError());
  jccl_fake_clear();
  OK(jccl_fake_inject("cudaMemset:1:sticky=700") - 1);
  IS(700, cudaMemset(NULL, 0, 0));
  IS(700, cudaMalloc(&p, 8));
  IS(700, cudaGetLastError());
  IS(700, cudaGetLastError());
  IS(700, cudaDeviceSynchronize());
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  IS(ncclUnhandledCudaError, ncclCommInitRank(&comm, 1, id, 0));
  jccl_fake_clear();
  int answer = -1;
  OK(cudaDeviceGetByPCIBusId(&answer, "jccl_fake:sticky:0"));
  OK(cudaDeviceGetByPCIBusId(&answer, "jccl_fake:live:streams"));
  OK(answer);
  OK(cudaDeviceGetByPCIBusId(&answer, "jccl_fake:inject:cudaFree:1:error=1"));
  IS(1, answer);
  OK(cudaDeviceGetByPCIBusId(&answer, "jccl_fake:clear"));
  OK(cudaDeviceGetByPCIBusId(&answer, "jccl_fake:calls:cudaMemset"));
  IS(1, answer - (int)(jccl_fake_calls("cudaMemset") - 1));
  OK(cudaDeviceGetByPCIBusId(&answer, "jccl_fake:dance"));
  IS(-2, answer);
  OK(cudaMalloc(&p, 8));
  OK(cudaFree(p));
  no_leaks();
}

/* ---- ranks */

enum { MOST = 8 };

struct rank {
  int rank, n;
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  void (*body)(struct rank *);
  pthread_t thread;
};

static void open_rank(struct rank *r) {
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  OK(ncclCommInitRank(&r->comm, r->n, r->id, r->rank));
}

static void close_rank(struct rank *r) {
  OK(ncclCommDestroy(r->comm));
  OK(cudaStreamDestroy(r->stream));
}

static void *rank_main(void *arg) {
  struct rank *r = arg;
  open_rank(r);
  r->body(r);
  close_rank(r);
  return NULL;
}

static void on_threads_as(int n, void *(*start)(void *), void (*body)(struct rank *)) {
  struct rank ranks[MOST];
  memset(ranks, 0, sizeof ranks);
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  for (int i = 0; i < n; i++) {
    ranks[i].rank = i;
    ranks[i].n = n;
    ranks[i].id = id;
    ranks[i].body = body;
    OK(pthread_create(&ranks[i].thread, NULL, start, &ranks[i]));
  }
  for (int i = 0; i < n; i++) {
    OK(pthread_join(ranks[i].thread, NULL));
  }
  no_leaks();
}

static void on_threads(int n, void (*body)(struct rank *)) {
  on_threads_as(n, rank_main, body);
}

/* Ranks as processes; the id comes from rank 0, through shared memory. Rank "killed" has to be. */
static void on_processes(int n, void (*body)(struct rank *), int killed) {
  struct {
    ncclUniqueId id;
    int ready;
  } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[MOST];
  fflush(NULL);
  for (int i = 0; i < n; i++) {
    pids[i] = fork();
    if (pids[i] == 0) {
      struct rank r;
      memset(&r, 0, sizeof r);
      r.rank = i;
      r.n = n;
      r.body = body;
      if (i == 0) {
        OK(ncclGetUniqueId(&shared->id));
        __atomic_store_n(&shared->ready, 1, __ATOMIC_SEQ_CST);
      }
      while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) == 0) {
        pause_ms(1);
      }
      r.id = shared->id;
      rank_main(&r);
      no_leaks();
      _exit(0);
    }
  }
  for (int i = 0; i < n; i++) {
    int status = -1;
    waitpid(pids[i], &status, 0);
    IS(i == killed ? SIGKILL : 0, status);
  }
  munmap(shared, 4096);
}

static float *device_floats(struct rank *r, size_t n, float first, float step) {
  float *host = malloc(n * sizeof *host), *device = NULL;
  for (size_t i = 0; i < n; i++) {
    host[i] = first + step * (float)(i % 1000);
  }
  OK(cudaMalloc((void **)&device, n * sizeof *device));
  OK(cudaMemcpyAsync(device, host, n * sizeof *host, cudaMemcpyHostToDevice, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  free(host);
  return device;
}

static void expect(struct rank *r, const float *device, size_t n, float first, float step) {
  float *host = malloc(n * sizeof *host);
  OK(cudaMemcpyAsync(host, device, n * sizeof *host, cudaMemcpyDeviceToHost, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  for (size_t i = 0; i < n; i++) {
    float wanted = first + step * (float)(i % 1000);
    if (fabsf(host[i] - wanted) > 1e-6f * fabsf(wanted)) { /* averages multiply by 1 / ranks */
      fprintf(stderr, "rank %d: element %zu is %g, expected %g\n", r->rank, i, host[i], wanted);
      abort();
    }
  }
  free(host);
}

/* Every collective on float32, out of place and in place, in several sizes. */
static void collectives(struct rank *r) {
  static const size_t COUNTS[] = {1, 7, 1000, 3000, 100000};
  int n = r->n, me = r->rank;
  float ranks = (float)(n * (n - 1) / 2); /* sum of all rank numbers */
  for (size_t k = 0; k < sizeof COUNTS / sizeof *COUNTS; k++) {
    size_t c = COUNTS[k];
    int root = (int)k % n;
    float *a = device_floats(r, c, (float)me, 1), *b = device_floats(r, c, -1, 0);
    OK(ncclAllReduce(a, b, c, ncclFloat32, ncclSum, r->comm, r->stream));
    expect(r, b, c, ranks, (float)n);
    expect(r, a, c, (float)me, 1);
    OK(ncclAllReduce(a, b, c, ncclFloat32, ncclMax, r->comm, r->stream));
    expect(r, b, c, (float)(n - 1), 1);
    OK(ncclAllReduce(a, b, c, ncclFloat32, ncclMin, r->comm, r->stream));
    expect(r, b, c, 0, 1);
    OK(ncclAllReduce(a, b, c, ncclFloat32, ncclAvg, r->comm, r->stream));
    expect(r, b, c, ranks / (float)n, 1);
    OK(ncclReduce(a, me == root ? b : NULL, c, ncclFloat32, ncclSum, root, r->comm, r->stream));
    expect(r, b, c, me == root ? ranks : ranks / (float)n, me == root ? (float)n : 1);
    OK(ncclBroadcast(a, b, c, ncclFloat32, root, r->comm, r->stream));
    expect(r, b, c, (float)root, 1);
    OK(ncclAllReduce(a, a, c, ncclFloat32, ncclSum, r->comm, r->stream));
    expect(r, a, c, ranks, (float)n);
    OK(ncclBcast(a, c, ncclFloat32, root, r->comm, r->stream));
    OK(cudaFree(a));
    OK(cudaFree(b));

    a = device_floats(r, c, (float)me, 0);
    float *all = device_floats(r, c * (size_t)n, -1, 0);
    OK(ncclAllGather(a, all, c, ncclFloat32, r->comm, r->stream));
    for (int i = 0; i < n; i++) {
      expect(r, all + (size_t)i * c, c, (float)i, 0);
    }
    OK(ncclReduceScatter(all, a, c, ncclFloat32, ncclSum, r->comm, r->stream));
    expect(r, a, c, (float)(me * n), 0);
    OK(ncclReduceScatter(
        all, all + (size_t)me * c, c, ncclFloat32, ncclSum, r->comm, r->stream));
    expect(r, all + (size_t)me * c, c, (float)(me * n), 0);
    OK(ncclAllGather(all + (size_t)me * c, all, c, ncclFloat32, r->comm, r->stream));
    for (int i = 0; i < n; i++) {
      expect(r, all + (size_t)i * c, c, (float)(i * n), 0);
    }
    float *other = device_floats(r, c * (size_t)n, -1, 0);
    OK(cudaFree(a));
    a = device_floats(r, c, (float)me, 0);
    OK(ncclGather(a, other, c, ncclFloat32, root, r->comm, r->stream));
    for (int i = 0; i < n; i++) {
      expect(r, other + (size_t)i * c, c, me == root ? (float)i : -1, 0);
    }
    OK(ncclScatter(other, a, c, ncclFloat32, root, r->comm, r->stream));
    expect(r, a, c, (float)me, 0);
    for (int i = 0; i < n; i++) { /* block i of rank me holds 100 me + i */
      float *block = device_floats(r, c, (float)(100 * me + i), 0);
      OK(cudaMemcpyAsync(all + (size_t)i * c, block, c * sizeof *block,
          cudaMemcpyDeviceToDevice, r->stream));
      OK(cudaStreamSynchronize(r->stream));
      OK(cudaFree(block));
    }
    OK(ncclAlltoAll(all, other, c, ncclFloat32, r->comm, r->stream));
    for (int i = 0; i < n; i++) {
      expect(r, other + (size_t)i * c, c, (float)(100 * i + me), 0);
    }
    /* The same by messages in a group, each rank to itself too, in an order of its own. */
    OK(cudaMemsetAsync(other, 0, c * (size_t)n * sizeof *other, r->stream));
    OK(ncclGroupStart());
    for (int i = 0; i < n; i++) {
      int to = (me + i) % n, from = (me * 3 + i) % n;
      OK(ncclSend(all + (size_t)to * c, c, ncclFloat32, to, r->comm, r->stream));
      OK(ncclRecv(other + (size_t)from * c, c, ncclFloat32, from, r->comm, r->stream));
    }
    OK(ncclGroupEnd());
    for (int i = 0; i < n; i++) {
      expect(r, other + (size_t)i * c, c, (float)(100 * i + me), 0);
    }
    OK(cudaFree(a));
    OK(cudaFree(all));
    OK(cudaFree(other));
  }
  int size = 0, rank = -1, device = -1;
  OK(ncclCommCount(r->comm, &size));
  OK(ncclCommUserRank(r->comm, &rank));
  OK(ncclCommCuDevice(r->comm, &device));
  CHECK(size == n && rank == me && device == me);
}

/* One element of each type, as raw bits: 1.5 (or 3) from each of two ranks. */
static void types(struct rank *r) {
  static const struct {
    int type, size;
    uint64_t one, sum, product, average;
  } CASES[] = {
      {ncclInt8, 1, 0x7f, 0xfe, 0x01, 0xff},       /* 127 + 127 wraps to -2, halved -1 */
      {ncclUint8, 1, 0xff, 0xfe, 0x01, 0x7f},
      {ncclInt32, 4, 0x7fffffff, 0xfffffffe, 0x00000001, 0xffffffff},
      {ncclUint32, 4, 3, 6, 9, 3},
      {ncclInt64, 8, (uint64_t)-3, (uint64_t)-6, 9, (uint64_t)-3},
      {ncclUint64, 8, 1ULL << 63, 0, 0, 0},
      {ncclFloat16, 2, 0x3e00, 0x4200, 0x4080, 0x3e00},   /* 1.5, 3, 2.25 */
      {ncclFloat32, 4, 0x3fc00000, 0x40400000, 0x40100000, 0x3fc00000},
      {ncclFloat64, 8, 0x3ff8000000000000, 0x4008000000000000, 0x4002000000000000,
          0x3ff8000000000000},
      {ncclBfloat16, 2, 0x3fc0, 0x4040, 0x4010, 0x3fc0},
      {ncclFloat8e4m3, 1, 0x3c, 0x44, 0x41, 0x3c},
      {ncclFloat8e5m2, 1, 0x3e, 0x42, 0x40, 0x3e}, /* 2.25 is a tie: to even, 2 */
      {ncclFloat8e4m3, 1, 0x7e, 0x7e, 0x7e, 0x7e}, /* 448 + 448 stays there */
      {ncclFloat8e5m2, 1, 0x7b, 0x7b, 0x7b, 0x7b},
      {ncclFloat16, 2, 0x7bff, 0x7c00, 0x7c00, 0x7bff}, /* halved before it is added */
      {ncclFloat16, 2, 0x0001, 0x0002, 0x0000, 0x0000}, /* the smallest subnormal, halved 0 */
      {ncclBfloat16, 2, 0x7f7f, 0x7f80, 0x7f80, 0x7f7f},
  };
  uint64_t *d = NULL;
  OK(cudaMalloc((void **)&d, 16));
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    size_t size = (size_t)CASES[i].size;
    uint64_t wanted[] = {CASES[i].sum, CASES[i].product, CASES[i].one, CASES[i].one,
        CASES[i].average};
    for (int op = 0; op < ncclNumOps; op++) {
      uint64_t in = CASES[i].one, out = 0;
      OK(cudaMemcpyAsync(d, &in, size, cudaMemcpyHostToDevice, r->stream));
      OK(ncclAllReduce(d, d, 1, CASES[i].type, op, r->comm, r->stream));
      OK(cudaMemcpyAsync(&out, d, size, cudaMemcpyDeviceToHost, r->stream));
      if (out != wanted[op]) {
        fprintf(stderr, "case %zu, operation %d: %llx, expected %llx\n", i, op,
            (unsigned long long)out, (unsigned long long)wanted[op]);
        abort();
      }
    }
  }
  /* NaN loses, -0 is below +0. */
  float special[2] = {r->rank == 0 ? NAN : 1, r->rank == 0 ? -0.0f : 0.0f}, out[2];
  for (int op = ncclMax; op <= ncclMin; op++) {
    OK(cudaMemcpyAsync(d, special, 8, cudaMemcpyHostToDevice, r->stream));
    OK(ncclAllReduce(d, d, 2, ncclFloat32, op, r->comm, r->stream));
    OK(cudaMemcpyAsync(out, d, 8, cudaMemcpyDeviceToHost, r->stream));
    CHECK(out[0] == 1 && (signbit(out[1]) != 0) == (op == ncclMin));
  }
  /* A factor per rank, on the host for one and on the device for the other. */
  int op = -1;
  float factor = r->rank == 0 ? 2 : 10, *on_device = device_floats(r, 1, factor, 0), one = 3;
  OK(ncclRedOpCreatePreMulSum(&op, r->rank == 0 ? &factor : on_device, ncclFloat32,
      r->rank == 0 ? ncclScalarHostImmediate : ncclScalarDevice, r->comm));
  IS(ncclInvalidArgument, ncclAllReduce(d, d, 1, ncclFloat64, op, r->comm, r->stream));
  OK(cudaMemcpyAsync(d, &one, 4, cudaMemcpyHostToDevice, r->stream));
  OK(ncclAllReduce(d, d, 1, ncclFloat32, op, r->comm, r->stream));
  OK(ncclRedOpDestroy(op, r->comm));
  IS(ncclInvalidArgument, ncclRedOpDestroy(op, r->comm));
  OK(cudaMemcpyAsync(out, d, 4, cudaMemcpyDeviceToHost, r->stream));
  CHECK(out[0] == 36);
  OK(cudaFree(on_device));
  OK(cudaFree(d));
}

/* Host memory that CUDA knows, here registered, which other processes cannot map. */
static void host_buffers(struct rank *r) {
  enum { N = 300 };
  size_t all = (size_t)(N * r->n);
  float *own = malloc(2 * all * sizeof *own), *pinned = NULL;
  OK(cudaHostRegister(own, 2 * all * sizeof *own, 0));
  OK(cudaHostAlloc((void **)&pinned, all * sizeof *pinned, 0));
  for (size_t i = 0; i < 2 * all; i++) {
    own[i] = (float)r->rank;
  }
  float *mine = own + (size_t)(N * r->rank);
  OK(ncclAllGather(mine, own, N, ncclFloat32, r->comm, r->stream)); /* in place */
  OK(ncclReduceScatter(own, mine, N, ncclFloat32, ncclSum, r->comm, r->stream));
  OK(ncclAllGather(mine, pinned, N, ncclFloat32, r->comm, r->stream));
  OK(ncclAllReduce(own + all, own + all, all, ncclFloat32, ncclSum, r->comm, r->stream));
  OK(ncclGroupStart());
  OK(ncclSend(own, N, ncclFloat32, (r->rank + 1) % r->n, r->comm, r->stream));
  OK(ncclRecv(own + N * (r->n - 1), N, ncclFloat32, (r->rank + r->n - 1) % r->n, r->comm,
      r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  for (int i = 0; i < N * r->n; i++) {
    CHECK(pinned[i] == (float)(i / N * r->n));
    CHECK(own[all + (size_t)i] == (float)(r->n * (r->n - 1) / 2));
  }
  OK(cudaHostUnregister(own));
  free(own);
  OK(cudaFreeHost(pinned));
}

static void test_collectives(void) {
  for (int n = 1; n <= 4; n++) {
    on_threads(n, collectives);
  }
  on_threads(2, types);
  on_threads(3, host_buffers);
}

static void test_processes(void) {
  for (int n = 1; n <= 4; n++) {
    on_processes(n, collectives, -1);
  }
  on_processes(2, types, -1);
  on_processes(3, host_buffers, -1);
}

/* One thread with all devices; two communicators in one group; several streams. */
static void test_one_thread(void) {
  enum { N = 4, COUNT = 500 };
  ncclComm_t a[N], b[N];
  cudaStream_t s[N], t[N];
  float *x[N], *y[N];
  struct rank r[N];
  OK(ncclCommInitAll(a, N, NULL));
  OK(ncclCommInitAll(b, N, (int[]){3, 2, 1, 0}));
  for (int i = 0; i < N; i++) {
    OK(cudaSetDevice(i));
    OK(cudaStreamCreate(&s[i]));
    OK(cudaStreamCreate(&t[i]));
    r[i] = (struct rank){.rank = i, .stream = s[i]};
    x[i] = device_floats(&r[i], COUNT, (float)i, 1);
    y[i] = device_floats(&r[i], COUNT, (float)i, 0);
  }
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) {
    OK(ncclAllReduce(x[i], x[i], COUNT, ncclFloat32, ncclSum, a[i], s[i]));
    OK(ncclBroadcast(y[i], y[i], COUNT, ncclFloat32, 1, b[3 - i], i % 2 == 0 ? s[i] : t[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 0; i < N; i++) {
    OK(cudaStreamSynchronize(t[i]));
    expect(&r[i], x[i], COUNT, 6, 4);
    expect(&r[i], y[i], COUNT, 2, 0); /* rank 1 of b is on device 2 */
  }
  /* Two streams of one communicator: one operation after the other. */
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) {
    OK(ncclAllReduce(y[i], y[i], COUNT, ncclFloat32, ncclSum, a[i], s[i]));
    OK(ncclAllReduce(y[i], y[i], COUNT, ncclFloat32, ncclSum, a[i], t[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 0; i < N; i++) {
    OK(cudaStreamSynchronize(t[i]));
    expect(&r[i], y[i], COUNT, 32, 0);
  }
  /* A graph of all ranks, captured by one thread in one capture. */
  cudaEvent_t fork_, join_[N];
  cudaGraph_t g;
  cudaGraphExec_t exec;
  OK(cudaSetDevice(0));
  OK(cudaEventCreate(&fork_));
  OK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork_, s[0]));
  for (int i = 1; i < N; i++) {
    OK(cudaStreamWaitEvent(s[i], fork_, 0));
  }
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) {
    OK(ncclAllReduce(y[i], y[i], COUNT, ncclFloat32, ncclSum, a[i], s[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 1; i < N; i++) {
    OK(cudaSetDevice(i));
    OK(cudaEventCreate(&join_[i]));
    OK(cudaEventRecord(join_[i], s[i]));
    OK(cudaStreamWaitEvent(s[0], join_[i], 0));
  }
  OK(cudaStreamEndCapture(s[0], &g));
  OK(cudaGraphInstantiate(&exec, g, 0));
  OK(cudaGraphLaunch(exec, s[0]));
  OK(cudaGraphLaunch(exec, s[0]));
  OK(cudaStreamSynchronize(s[0]));
  expect(&r[2], y[2], COUNT, 32 * 16, 0);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(g));
  OK(cudaEventDestroy(fork_));
  for (int i = 0; i < N; i++) {
    if (i > 0) {
      OK(cudaEventDestroy(join_[i]));
    }
    OK(ncclCommFinalize(a[i]));
    OK(ncclCommDestroy(a[i]));
    OK(ncclCommDestroy(b[i]));
    OK(cudaFree(x[i]));
    OK(cudaFree(y[i]));
    OK(cudaStreamDestroy(s[i]));
    OK(cudaStreamDestroy(t[i]));
  }
  IS(ncclInvalidArgument, ncclCommDestroy(a[0]));
  IS(ncclInvalidUsage, ncclCommInitAll(a, 2, (int[]){1, 1}));
  CHECK(strstr(ncclGetLastError(NULL), "Duplicate GPU detected") != NULL);
  IS(ncclInvalidArgument, ncclCommInitAll(a, 2, (int[]){1, 9}));
  OK(cudaSetDevice(0));
  no_leaks();
}

static void graphs(struct rank *r) {
  float *a = device_floats(r, 100, 1, 0);
  cudaGraph_t g;
  cudaGraphExec_t x;
  OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
  OK(ncclAllReduce(a, a, 100, ncclFloat32, ncclSum, r->comm, r->stream));
  OK(ncclGroupStart());
  OK(ncclSend(a, 50, ncclFloat32, (r->rank + 1) % r->n, r->comm, r->stream));
  OK(ncclRecv(a + 50, 50, ncclFloat32, (r->rank + r->n - 1) % r->n, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamEndCapture(r->stream, &g));
  OK(cudaGraphInstantiate(&x, g, 0));
  OK(cudaGraphDestroy(g));
  for (int i = 0; i < 3; i++) {
    OK(cudaGraphLaunch(x, r->stream));
  }
  expect(r, a, 100, powf((float)r->n, 3), 0);
  OK(cudaGraphExecDestroy(x));
  OK(cudaFree(a));
}

static void management(struct rank *r) {
  /* Split by parity, keys backwards. */
  ncclComm_t half = NULL, none = (ncclComm_t)&half, fewer = NULL;
  OK(ncclCommSplit(r->comm, r->rank % 2, -r->rank, &half, NULL));
  int size = 0, rank = -1;
  OK(ncclCommCount(half, &size));
  OK(ncclCommUserRank(half, &rank));
  IS(2, size);
  IS(r->rank < 2 ? 1 : 0, rank);
  float *a = device_floats(r, 10, (float)r->rank, 0);
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, half, r->stream));
  expect(r, a, 10, r->rank % 2 == 0 ? 2 : 4, 0);
  OK(ncclCommDestroy(half));
  OK(ncclCommSplit(r->comm, r->rank == 0 ? -1 : 5, 0, &none, NULL));
  CHECK((none == NULL) == (r->rank == 0));
  if (none != NULL) {
    OK(ncclCommDestroy(none));
  }
  if (r->rank != 2) {
    OK(ncclCommShrink(r->comm, (int[]){2}, 1, &fewer, NULL, 0));
    OK(ncclCommCount(fewer, &size));
    OK(ncclCommUserRank(fewer, &rank));
    IS(3, size);
    IS(r->rank == 3 ? 2 : r->rank, rank);
    OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclMax, fewer, r->stream));
    expect(r, a, 10, 4, 0);
    OK(ncclCommDestroy(fewer));
  }
  if (r->rank != 3) { /* rank 2 knows nothing of the first time */
    fewer = NULL;
    OK(ncclCommShrink(r->comm, (int[]){3}, 1, &fewer, NULL, 0));
    OK(ncclCommUserRank(fewer, &rank));
    IS(r->rank, rank);
    OK(ncclCommDestroy(fewer));
  }
  uint64_t total = 0, less = 0;
  OK(ncclCommMemStats(r->comm, 3, &total));
  OK(ncclCommSuspend(r->comm, 1));
  OK(ncclCommMemStats(r->comm, 3, &less));
  CHECK(less < total);
  IS(ncclInvalidUsage, ncclCommSuspend(r->comm, 1));
  OK(ncclCommResume(r->comm));
  OK(ncclAllReduce(a, a, 1, ncclFloat32, ncclMax, r->comm, r->stream));
  /* Windows and signals: a ring. */
  char *w = NULL;
  ncclWindow_t win = NULL;
  void *handle = NULL, *user = NULL;
  OK(ncclMemAlloc((void **)&w, 8192));
  IS(cudaErrorInvalidValue, cudaFree(w));
  OK(ncclCommWindowRegister(r->comm, w, 8192, &win, 1));
  OK(ncclWinGetUserPtr(r->comm, win, &user));
  CHECK(user == w);
  OK(ncclCommRegister(r->comm, w, 8192, &handle));
  OK(cudaMemsetAsync(w, r->rank, 8192, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(ncclAllReduce(a, a, 1, ncclFloat32, ncclMax, r->comm, r->stream)); /* all have set theirs */
  int next = (r->rank + 1) % r->n, before = (r->rank + r->n - 1) % r->n;
  OK(ncclPutSignal(w, 100, ncclInt8, next, win, 4096, 0, 0, 0, r->comm, r->stream));
  OK(ncclSignal(next, 0, 0, 0, r->comm, r->stream));
  OK(ncclWaitSignal(1, &(ncclWaitSignalDesc_t){2, before, 0, 0}, r->comm, r->stream));
  char back[2];
  OK(cudaMemcpyAsync(back, w + 4096 + 99, 2, cudaMemcpyDeviceToHost, r->stream));
  IS(before, back[0]);
  IS(r->rank, back[1]);
  IS(ncclInvalidArgument,
      ncclPutSignal(w, 100, ncclInt8, next, win, 8100, 0, 0, 0, r->comm, r->stream));
  OK(ncclAllReduce(a, a, 1, ncclFloat32, ncclMax, r->comm, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(ncclCommDeregister(r->comm, handle));
  OK(ncclCommWindowDeregister(r->comm, win));
  OK(ncclMemFree(w));
  OK(cudaFree(a));
  OK(ncclCommRevoke(r->comm, 0));
  IS(ncclInvalidArgument, ncclCommFinalize(r->comm));
}

/* Three grow to four; the fourth has no communicator before. */
static void *grow_main(void *arg) {
  static ncclUniqueId id;
  static int made;
  struct rank *r = arg;
  int old = r->n - 1;
  ncclComm_t grown = NULL;
  if (r->rank < old) {
    r->n = old;
    open_rank(r);
    if (r->rank == 1) {
      OK(ncclCommGetUniqueId(r->comm, &id));
      IS(ncclInvalidUsage, ncclCommGetUniqueId(r->comm, &id));
      __atomic_store_n(&made, 1, __ATOMIC_SEQ_CST);
    }
    OK(ncclCommGrow(r->comm, old + 1, r->rank == 1 ? &id : NULL, -1, &grown, NULL));
  } else {
    while (__atomic_load_n(&made, __ATOMIC_SEQ_CST) == 0) {
      pause_ms(1);
    }
    OK(cudaSetDevice(r->rank));
    OK(cudaStreamCreate(&r->stream));
    OK(ncclCommGrow(NULL, old + 1, &id, old, &grown, NULL));
  }
  float *a = device_floats(r, 10, 1, 0);
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, grown, r->stream));
  expect(r, a, 10, (float)(old + 1), 0);
  OK(cudaFree(a));
  OK(ncclCommDestroy(grown));
  OK(ncclCommDestroy(r->comm));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static void test_management(void) {
  on_threads(2, graphs);
  on_threads(4, management);
  on_threads_as(4, grow_main, NULL);
}

/* ---- non-blocking communicators */

static ncclConfig_t config(int blocking) {
  ncclConfig_t c;
  memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.magic = 0xcafebeef;
  c.version = 23007;
  c.blocking = blocking;
  c.cgaClusterSize = c.minCTAs = c.maxCTAs = c.splitShare = c.trafficClass = INT_MIN;
  c.collnetEnable = c.CTAPolicy = c.shrinkShare = c.nvlsCTAs = c.nChannelsPerNetPeer = INT_MIN;
  c.nvlinkCentricSched = c.graphUsageMode = c.numRmaCtx = c.maxP2pPeers = INT_MIN;
  c.graphStreamOrdering = INT_MIN;
  return c;
}

static int settled(ncclComm_t comm) {
  int state = ncclInProgress;
  double end = now() + 20;
  while (state == ncclInProgress && now() < end) {
    OK(ncclCommGetAsyncError(comm, &state));
    pause_ms(1);
  }
  return state;
}

static void *nonblocking_main(void *arg) {
  static int asked;
  struct rank *r = arg;
  ncclConfig_t c = config(0);
  c.maxCTAs = 8;
  c.commName = "grads";
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreate(&r->stream));
  while (r->rank != 0 && __atomic_load_n(&asked, __ATOMIC_SEQ_CST) == 0) {
    pause_ms(1);
  }
  IS(ncclInProgress, ncclCommInitRankConfig(&r->comm, r->n, r->id, r->rank, &c));
  CHECK(r->comm != NULL);
  if (r->rank == 0) { /* before all are there it cannot be used */
    IS(ncclInvalidArgument, ncclCommCount(r->comm, &(int){0}));
    __atomic_store_n(&asked, 1, __ATOMIC_SEQ_CST);
  }
  OK(settled(r->comm));
  IS(0, jccl_fake_config(r->comm, "blocking"));
  IS(8, jccl_fake_config(r->comm, "maxCTAs"));
  IS(1, jccl_fake_config(r->comm, "commName=grads"));
  float *a = device_floats(r, 100, 1, 0);
  IS(ncclInProgress, ncclAllReduce(a, a, 100, ncclFloat32, ncclSum, r->comm, r->stream));
  OK(settled(r->comm));
  expect(r, a, 100, (float)r->n, 0);
  ncclComm_t child = (ncclComm_t)&a;
  OK(ncclCommSplit(r->comm, 0, 0, &child, NULL));
  CHECK(child == NULL);
  OK(settled(r->comm));
  CHECK(child != NULL && child != (ncclComm_t)&a);
  IS(8, jccl_fake_config(child, "maxCTAs"));
  IS(ncclInProgress, ncclCommFinalize(child));
  OK(settled(child));
  OK(ncclCommDestroy(child));
  OK(cudaFree(a));
  IS(ncclInProgress, ncclCommFinalize(r->comm));
  OK(settled(r->comm));
  OK(ncclCommDestroy(r->comm));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static void test_nonblocking(void) {
  jccl_fake_inject("ncclCommSplit@0:1:late=40;ncclCommInitRankConfig@1:1:late=40");
  on_threads_as(2, nonblocking_main, NULL);
  jccl_fake_clear();
  /* A rank that never comes: abort ends the wait. */
  ncclUniqueId id;
  ncclComm_t comm;
  ncclConfig_t c = config(0);
  OK(ncclGetUniqueId(&id));
  IS(ncclInProgress, ncclCommInitRankConfig(&comm, 2, id, 0, &c));
  pause_ms(60);
  int state = 0;
  OK(ncclCommGetAsyncError(comm, &state));
  IS(ncclInProgress, state);
  OK(ncclCommAbort(comm));
  no_leaks();
  /* A hang in initialization is ended by abort too. */
  jccl_fake_inject("ncclCommInitRankConfig:1:hang");
  OK(ncclGetUniqueId(&id));
  IS(ncclInProgress, ncclCommInitRankConfig(&comm, 1, id, 0, &c));
  pause_ms(60);
  OK(ncclCommGetAsyncError(comm, &state));
  IS(ncclInProgress, state);
  OK(ncclCommAbort(comm));
  jccl_fake_clear();
  no_leaks();
  /* The id of a job that nobody joins stays. */
  OK(ncclGetUniqueId(&id));
  IS(1, jccl_fake_live("jobs"));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclCommDestroy(comm));
  no_leaks();
  /* Configurations: a shorter struct of an older version is read as far as it goes. */
  c = config(1);
  c.version = 21400;
  c.size = 24;
  c.maxCTAs = 3;
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRankConfig(&comm, 1, id, 0, &c));
  IS(64, jccl_fake_config(comm, "maxCTAs"));
  OK(ncclCommDestroy(comm));
  OK(ncclGetUniqueId(&id));
  c = config(1);
  c.magic = 1;
  IS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &c));
  c = config(7);
  IS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &c));
  c = config(1);
  c.cgaClusterSize = 9;
  IS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &c));
  OK(ncclCommInitRankScalable(&comm, 1, 0, 1, &id, NULL));
  OK(ncclCommDestroy(comm));
  no_leaks();
}

/* ---- faults */

static void bad_arguments(struct rank *r) {
  float *a = device_floats(r, 10, 0, 0), host[10], *elsewhere = NULL;
  int other = r->rank + 4; /* cudaFree there waits for nobody's operation */
  ncclComm_t c = r->comm;
  IS(ncclInvalidArgument, ncclAllReduce(host, a, 10, ncclFloat32, ncclSum, c, r->stream));
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 11, ncclFloat32, ncclSum, c, r->stream));
  IS(ncclInvalidArgument, ncclAllReduce(NULL, a, 10, ncclFloat32, ncclSum, c, r->stream));
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 10, 12, ncclSum, c, r->stream));
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 10, ncclFloat32, 5, c, r->stream));
  IS(ncclInvalidArgument, ncclBroadcast(a, a, 10, ncclFloat32, r->n, c, r->stream));
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, NULL, r->stream));
  IS(ncclInvalidArgument,
      ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, (ncclComm_t)host, r->stream));
  OK(cudaSetDevice(other));
  OK(cudaMalloc((void **)&elsewhere, 40));
  IS(ncclInvalidArgument, ncclAllReduce(elsewhere, a, 10, ncclFloat32, ncclSum, c, r->stream));
  cudaStream_t wrong;
  OK(cudaStreamCreate(&wrong));
  IS(ncclUnhandledCudaError, ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, c, wrong));
  OK(cudaStreamDestroy(wrong));
  IS(ncclUnhandledCudaError, ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, c, wrong));
  OK(cudaFree(elsewhere));
  OK(cudaSetDevice(r->rank));
  IS(ncclInvalidUsage, ncclSend(a, 10, ncclFloat32, r->rank, c, r->stream));
  IS(ncclInvalidUsage, ncclGroupEnd());
  /* An error in a group: the end reports it and launches nothing. */
  OK(ncclGroupStart());
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, c, r->stream));
  IS(ncclInvalidArgument, ncclAllReduce(host, a, 10, ncclFloat32, ncclSum, c, r->stream));
  IS(ncclInvalidArgument, ncclGroupEnd());
  ncclSimInfo_t info = {sizeof info, 0x74685283, 23007, -1};
  OK(ncclGroupStart());
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, c, r->stream));
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime > 0);
  OK(ncclAllReduce(a, a, 0, ncclFloat32, ncclSum, c, r->stream));
  OK(cudaStreamQuery(r->stream));
  float *freed = a;
  OK(cudaFree(a));
  IS(ncclInvalidArgument, ncclAllReduce(freed, freed, 10, ncclFloat32, ncclSum, c, r->stream));
  a = device_floats(r, 10, 1, 0);
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, c, r->stream)); /* all is well still */
  expect(r, a, 10, (float)r->n, 0);
  OK(cudaFree(a));
}

static int async_error(ncclComm_t comm) {
  int state = 0;
  double end = now() + 20;
  while (state == 0 && now() < end) {
    OK(ncclCommGetAsyncError(comm, &state));
    pause_ms(1);
  }
  return state;
}

static int state_now(ncclComm_t comm) {
  int state = -1;
  OK(ncclCommGetAsyncError(comm, &state));
  return state;
}

/* After an asynchronous error the stream hangs until the communicator is aborted. */
static void abort_rank(struct rank *r) {
  IS(cudaErrorNotReady, cudaStreamQuery(r->stream));
  OK(ncclCommAbort(r->comm));
  OK(cudaStreamSynchronize(r->stream));
  r->comm = NULL;
}

static void mismatch(struct rank *r) {
  float *a = device_floats(r, 10, 1, 0);
  OK(ncclAllReduce(a, a, r->rank == 0 ? 10 : 9, ncclFloat32, ncclSum, r->comm, r->stream));
  IS(ncclInvalidUsage, async_error(r->comm));
  CHECK(strstr(ncclGetLastError(r->comm), "9") != NULL);
  IS(ncclInvalidUsage, ncclAllReduce(a, a, 9, ncclFloat32, ncclSum, r->comm, r->stream));
  abort_rank(r);
  OK(cudaFree(a));
}

static void wrong_message(struct rank *r) {
  float *a = device_floats(r, 10, 1, 0);
  if (r->rank == 0) {
    OK(ncclSend(a, 10, ncclFloat32, 1, r->comm, r->stream));
  } else {
    OK(ncclRecv(a, 9, ncclFloat32, 0, r->comm, r->stream));
  }
  IS(ncclInvalidUsage, async_error(r->comm));
  abort_rank(r);
  OK(cudaFree(a));
}

static void injected(struct rank *r) {
  float *a = device_floats(r, 10, 1, 0);
  int first = ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream);
  if (r->rank == 1) { /* its second call has a synchronous error: ranks are out of step now */
    OK(first);
    IS(ncclSystemError, ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
  } else {
    OK(first);
    OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream));
    pause_ms(150); /* rank 1 has given up, which no rank of its process sees */
    OK(state_now(r->comm));
  }
  if (r->rank == 0) {
    abort_rank(r);
  } else {
    OK(state_now(r->comm));
    OK(ncclCommAbort(r->comm));
    r->comm = NULL;
  }
  OK(cudaFree(a));
}

static void stalled(struct rank *r) {
  static int seen;
  float *a = device_floats(r, 10, 1, 0);
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream));
  pause_ms(80);
  IS(cudaErrorNotReady, cudaStreamQuery(r->stream));
  int state = -1;
  OK(ncclCommGetAsyncError(r->comm, &state));
  OK(state);
  __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST);
  if (r->rank == 0) {
    while (__atomic_load_n(&seen, __ATOMIC_SEQ_CST) < r->n) {
      pause_ms(1);
    }
    jccl_fake_release();
  }
  expect(r, a, 10, (float)r->n, 0);
  OK(cudaFree(a));
}

static void injected_async(struct rank *r) {
  float *a = device_floats(r, 10, 1, 0);
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream));
  if (r->rank == 0) {
    IS(ncclInternalError, async_error(r->comm));
  } else {
    pause_ms(150);
    OK(state_now(r->comm));
  }
  OK(ncclCommAbort(r->comm));
  r->comm = NULL;
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaFree(a));
}

/* The last rank is killed while an operation runs; the others wait for it. */
static void lose_the_last(struct rank *r, float *a) {
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream));
  expect(r, a, 10, (float)r->n, 0);
  if (r->rank == r->n - 1) {
    jccl_fake_inject("ncclAllReduce:1:die");
  }
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r->comm, r->stream));
  if (r->rank == r->n - 1) {
    pause_ms(20000);
  }
}

/* As between machines: the connection breaks, and then only a new communicator is left. */
static void killed(struct rank *r) {
  float *a = device_floats(r, 10, 1, 0);
  lose_the_last(r, a);
  IS(ncclRemoteError, async_error(r->comm));
  CHECK(strstr(ncclGetLastError(r->comm), "gone") != NULL);
  ncclComm_t fewer = NULL;
  IS(ncclRemoteError, ncclCommShrink(r->comm, (int[]){r->n - 1}, 1, &fewer, NULL, 1));
  CHECK(fewer == NULL);
  OK(cudaStreamSynchronize(r->stream)); /* what ran was ended nevertheless */
  OK(ncclCommAbort(r->comm));
  r->comm = NULL;
  OK(cudaFree(a));
}

/* As between GPUs of one machine: NCCL notices nothing, and shrinking with an abort goes on. */
static void killed_unseen(struct rank *r) {
  jccl_fake_death_spins(1);
  float *a = device_floats(r, 10, 1, 0);
  lose_the_last(r, a);
  pause_ms(200);
  ncclResult_t state = ncclInternalError;
  OK(ncclCommGetAsyncError(r->comm, &state));
  IS(ncclSuccess, state);
  IS(cudaErrorNotReady, cudaStreamQuery(r->stream));
  ncclComm_t fewer = NULL;
  OK(ncclCommShrink(r->comm, (int[]){r->n - 1}, 1, &fewer, NULL, 1));
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaFree(a));
  a = device_floats(r, 10, 1, 0);
  OK(ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, fewer, r->stream));
  expect(r, a, 10, (float)(r->n - 1), 0);
  OK(ncclCommDestroy(fewer));
  OK(ncclCommAbort(r->comm));
  r->comm = NULL;
  OK(cudaFree(a));
}

static void *duplicate_main(void *arg) {
  struct rank *r = arg;
  OK(cudaSetDevice(1));
  IS(ncclInvalidUsage, ncclCommInitRank(&r->comm, r->n, r->id, r->rank));
  CHECK(r->comm != NULL); /* half-made: to be aborted */
  OK(ncclCommAbort(r->comm));
  return NULL;
}

static void test_faults(void) {
  setenv("NCCL_CHECK_POINTERS", "1", 1);
  on_threads(2, bad_arguments);
  unsetenv("NCCL_CHECK_POINTERS");
  on_threads(2, mismatch);
  on_threads(2, wrong_message);
  jccl_fake_inject("ncclAllReduce@1:2:error=2");
  on_threads(2, injected);
  jccl_fake_clear();
  jccl_fake_inject("ncclAllReduce@1:1:stall");
  on_threads(2, stalled);
  jccl_fake_clear();
  jccl_fake_inject("ncclAllReduce@0:1:async=3");
  on_threads(2, injected_async);
  jccl_fake_clear();
  on_threads_as(2, duplicate_main, NULL);
  /* No memory for a communicator. */
  void *big = NULL;
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  OK(cudaSetDevice(0));
  OK(cudaMalloc(&big, (1UL << 30) - 1000));
  OK(ncclGetUniqueId(&id));
  IS(ncclUnhandledCudaError, ncclCommInitRank(&comm, 1, id, 0));
  CHECK(strstr(ncclGetLastError(NULL), "out of memory") != NULL);
  OK(ncclCommAbort(comm));
  OK(cudaFree(big));
  no_leaks();
}

static void test_killed(void) { on_processes(3, killed, 2); }
static void test_killed_unseen(void) { on_processes(3, killed_unseen, 2); }

/* Memory and events between processes. */
static void test_ipc(void) {
  struct {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
    int step;
  } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    char *x = NULL, back[64];
    cudaEvent_t e;
    while (__atomic_load_n(&shared->step, __ATOMIC_SEQ_CST) == 0) {
      pause_ms(1);
    }
    OK(cudaIpcOpenMemHandle((void **)&x, shared->memory, 1));
    OK(cudaIpcOpenEventHandle(&e, shared->event));
    OK(cudaStreamWaitEvent(NULL, e, 0));
    OK(cudaMemcpyAsync(back, x, 64, cudaMemcpyDeviceToHost, NULL));
    IS(8, back[63]);
    OK(cudaMemset(x, 9, 64));
    OK(cudaDeviceSynchronize());
    OK(cudaIpcCloseMemHandle(x));
    OK(cudaEventDestroy(e));
    no_leaks();
    _exit(0);
  }
  pid_t parent = fork();
  if (parent == 0) {
    char *x = NULL, back[64];
    int slept = 0, status = -1;
    cudaEvent_t e;
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, 1));
    OK(cudaMalloc((void **)&x, 64));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventInterprocess));
    OK(cudaIpcGetMemHandle(&shared->memory, x));
    OK(cudaIpcGetEventHandle(&shared->event, e));
    IS(cudaErrorDeviceUninitialized, cudaIpcOpenMemHandle((void **)&x, shared->memory, 1));
    hold(1);
    OK(cudaLaunchHostFunc(s, sleep_50, &slept));
    OK(cudaMemsetAsync(x, 8, 64, s));
    OK(cudaEventRecord(e, s));
    IS(cudaErrorNotReady, cudaEventQuery(e));
    hold(0);
    __atomic_store_n(&shared->step, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->step, __ATOMIC_SEQ_CST) < 2) {
      pause_ms(1);
    }
    (void)status;
    OK(cudaEventSynchronize(e));
    OK(cudaMemcpy(back, x, 64, cudaMemcpyDefault));
    IS(9, back[0]);
    OK(cudaFree(x));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
    no_leaks();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  OK(status);
  __atomic_store_n(&shared->step, 2, __ATOMIC_SEQ_CST);
  waitpid(parent, &status, 0);
  OK(status);
  munmap(shared, 4096);
}

/* The CPU cannot touch device memory, before it is freed or after. */
static void test_guard(void) {
  for (int freed = 0; freed < 2; freed++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      volatile char *a = NULL;
      signal(SIGSEGV, SIG_DFL);
      OK(cudaMalloc((void **)&a, 100));
      if (freed == 1) {
        OK(cudaFree((void *)a));
      }
      _exit(a[3]);
    }
    int status = -1;
    waitpid(child, &status, 0);
    IS(SIGSEGV, WTERMSIG(status));
  }
}

/* ---- where NCCL corrupts memory, crashes or hangs, and the fake ends the process at once */

static void nonblocking_rank(struct rank *r) {
  ncclConfig_t c = config(0);
  OK(cudaSetDevice(0));
  OK(ncclGetUniqueId(&r->id));
  ncclCommInitRankConfig(&r->comm, 1, r->id, 0, &c);
  OK(settled(r->comm));
  OK(cudaStreamCreate(&r->stream));
}

static void *look_at_state(void *arg) {
  for (;;) {
    ncclCommGetAsyncError(arg, &(int){0});
  }
  return NULL;
}

/* A watchdog that looks at the state while operations run. */
static void two_threads(void) {
  struct rank r = {.n = 1};
  pthread_t watchdog;
  nonblocking_rank(&r);
  float *a = device_floats(&r, 10, 1, 0);
  pthread_create(&watchdog, NULL, look_at_state, r.comm);
  for (;;) {
    ncclAllReduce(a, a, 10, ncclFloat32, ncclSum, r.comm, r.stream);
  }
}

static void slot_used_again(void) {
  struct rank r = {.n = 1};
  nonblocking_rank(&r);
  ncclComm_t slot = NULL;
  OK(ncclCommSplit(r.comm, -1, 0, &slot, NULL));
  slot = (ncclComm_t)&r; /* it is somebody else's by now */
  settled(r.comm);
  pause_ms(1000);
}

static void name_freed(void) {
  struct rank r = {.n = 1};
  char name[] = "gradients";
  ncclConfig_t c = config(1);
  c.commName = name;
  OK(cudaSetDevice(0));
  OK(ncclGetUniqueId(&r.id));
  OK(ncclCommInitRankConfig(&r.comm, 1, r.id, 0, &c));
  memset(name, 'x', sizeof name - 1);
  ncclCommDestroy(r.comm);
}

static void foreign_window(void) {
  struct rank r = {.n = 1};
  nonblocking_rank(&r);
  ncclCommWindowDeregister(r.comm, (ncclWindow_t)&r);
}

static void revoked_unseen(void) {
  struct rank r = {.n = 1};
  nonblocking_rank(&r);
  float *a = device_floats(&r, 10, 1, 0);
  OK(ncclGroupStart());
  ncclSend(a, 1, ncclFloat32, 0, r.comm, r.stream);
  ncclRecv(a, 1, ncclFloat32, 0, r.comm, r.stream);
  ncclGroupEnd();
  ncclCommRevoke(r.comm, 0);
}

/* In the end, for a sanitizer: the slot of a split with colour -1 is freed before it is written. */
static int late_slot(void) {
  struct rank r = {.n = 1};
  nonblocking_rank(&r);
  ncclComm_t *slot = malloc(sizeof *slot);
  OK(ncclCommSplit(r.comm, -1, 0, slot, NULL));
  free(slot);
  OK(settled(r.comm));
  OK(ncclCommAbort(r.comm));
  return 0;
}

static void test_deaths(void) {
  static const struct {
    void (*run)(void);
    int signal;
    const char *message;
  } DEATHS[] = {{two_threads, SIGABRT, "while another thread is in"},
      {slot_used_again, SIGABRT, "the slot"}, {name_freed, SIGABRT, "commName"},
      {foreign_window, SIGSEGV, "is no window"}, {revoked_unseen, SIGABRT, "nobody saw end"}};
  for (size_t i = 0; i < sizeof DEATHS / sizeof *DEATHS; i++) {
    int ends[2];
    char text[4096] = "";
    OK(pipe(ends));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], 2);
      close(ends[0]);
      signal(SIGSEGV, SIG_DFL);
      alarm(60);
      DEATHS[i].run();
      _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0; n += (size_t)got) {
    }
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != DEATHS[i].signal
        || strstr(text, DEATHS[i].message) == NULL) {
      fprintf(stderr, "death %zu: status %x, expected signal %d and \"%s\":\n%s\n", i, status,
          DEATHS[i].signal, DEATHS[i].message, text);
      abort();
    }
  }
}

static void *blocking_alone(void *arg) {
  struct rank *r = arg;
  ncclConfig_t c = config(1);
  OK(cudaSetDevice(0));
  CHECK(ncclCommInitRankConfig(&r->comm, 2, r->id, 0, &c) != ncclSuccess);
  return NULL;
}

/* A blocking initialization whose other rank never comes. */
/* NCCL takes any address; a bad one faults in the kernel, and then nothing works any more. */
static void test_bad_address(void) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    ncclUniqueId id;
    ncclComm_t comm;
    float host[4] = {0}, *a = NULL;
    cudaStream_t s;
    OK(cudaSetDevice(0));
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc((void **)&a, 16));
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    OK(ncclAllReduce(a, a, 4, ncclFloat32, ncclSum, comm, s));
    OK(cudaStreamSynchronize(s));
    OK(ncclAllReduce(host, a, 4, ncclFloat32, ncclSum, comm, s));
    IS(cudaErrorIllegalAddress, cudaStreamSynchronize(s));
    IS(cudaErrorIllegalAddress, cudaSetDevice(0));
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  IS(0, status);
}

static void test_blocking(void) {
  struct rank r = {.n = 2};
  pthread_t thread;
  OK(ncclGetUniqueId(&r.id));
  pthread_create(&thread, NULL, blocking_alone, &r);
  ncclComm_t seen = NULL;
  while (seen == NULL) {
    pause_ms(1);
    seen = __atomic_load_n(&r.comm, __ATOMIC_ACQUIRE);
  }
  pause_ms(50);
  OK(state_now(seen));
  OK(ncclCommAbort(seen));
  pthread_join(thread, NULL);
  no_leaks();
  /* NCCL keeps one text for the process, which stays when things are well again. */
  ncclComm_t comm;
  OK(ncclGetUniqueId(&r.id));
  OK(ncclCommInitRank(&comm, 1, r.id, 0));
  IS(ncclInvalidArgument, ncclBroadcast(NULL, NULL, 1, ncclFloat32, 9, comm, NULL));
  OK(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
  CHECK(strstr(ncclGetLastError(comm), "rank 9") != NULL);
  /* Float8 is reduced by compute capability 9.0 and later. */
  float *a = NULL;
  OK(cudaMalloc((void **)&a, 16));
  jccl_fake_capability(89);
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 4, ncclFloat8e4m3, ncclSum, comm, NULL));
  OK(ncclAllGather(a, a, 4, ncclFloat8e4m3, comm, NULL));
  /* Empty collectives are discarded before that, and before the type of an operation is compared. */
  OK(ncclAllReduce(a, a, 0, ncclFloat8e4m3, ncclSum, comm, NULL));
  float twice = 2;
  int op;
  OK(ncclRedOpCreatePreMulSum(&op, &twice, ncclFloat32, ncclScalarHostImmediate, comm));
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 2, ncclFloat64, op, comm, NULL));
  OK(ncclAllReduce(a, a, 0, ncclFloat64, op, comm, NULL));
  OK(ncclRedOpDestroy(op, comm));
  IS(ncclInvalidArgument, ncclAllReduce(a, a, 0, ncclFloat32, op, comm, NULL));
  OK(ncclAlltoAll(a, a, 4, ncclFloat32, comm, NULL)); /* in place, as one rank alone may */
  jccl_fake_capability(90);
  OK(ncclAllReduce(a, a, 4, ncclFloat8e4m3, ncclSum, comm, NULL));
  OK(cudaStreamSynchronize(NULL));
  OK(cudaFree(a));
  OK(ncclCommDestroy(comm));
  no_leaks();
}

/* Of which devices calls make contexts: each in a process of its own. */
static void context_calls(int call) {
  cudaEvent_t e;
  int n = 0;
  switch (call) {
    case 0: /* asking makes none */
      OK(cudaGetDeviceCount(&n));
      OK(cudaGetDevice(&n));
      OK(cudaDeviceGetAttribute(&n, 75, 1));
      OK(cudaDeviceCanAccessPeer(&n, 0, 1));
      break;
    case 1: OK(cudaSetDevice(0)); break;
    case 2: /* a thread that never chose a device works on device 0 */
      OK(cudaEventCreate(&e));
      break;
    case 3:
      OK(cudaSetDevice(2));
      OK(cudaEventCreate(&e));
      break;
    default: /* "restoring" device 0 makes its context */
      OK(cudaGetDevice(&n));
      OK(cudaSetDevice(3));
      OK(cudaSetDevice(n));
  }
}

static void test_contexts(void) {
  static const int MASKS[] = {0, 1, 1, 4, 9};
  for (int i = 0; i < 5; i++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      context_calls(i);
      IS(MASKS[i], jccl_fake_contexts());
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    IS(0, status);
  }
}

static void for_a_while(void *unused) {
  (void)unused;
  pause_ms(20);
}

/* The end of a process waits for a stream that was destroyed, which its thread frees then. */
static void test_exit(void) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    cudaStream_t other, busy;
    OK(cudaStreamCreate(&other));
    OK(cudaStreamCreate(&busy));
    OK(cudaLaunchHostFunc(busy, for_a_while, NULL));
    OK(cudaStreamDestroy(busy));
    exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  IS(0, status);
}

static void test_params(void) {
  ncclParamHandle_t h;
  int64_t v = 0;
  const char *text = NULL, **keys = NULL;
  int n = 0;
  OK(ncclParamBind(&h, "NCCL_BUFFSIZE"));
  OK(ncclParamGetI64(h, &v));
  IS(4194304, v);
  int8_t small;
  IS(ncclInvalidArgument, ncclParamGetI8(h, &small));
  OK(ncclParamGetStr(h, &text));
  CHECK(strcmp(text, "4194304") == 0);
  OK(ncclParamGetAllParameterKeys(&keys, &n));
  CHECK(n > 5 && strncmp(keys[0], "NCCL_", 5) == 0);
  OK(ncclParamGetParameter(keys[0], &text, &n));
  IS(ncclInvalidArgument, ncclParamBind(&h, "NCCL_ELEPHANT"));
}

/* Prints what a small operation costs; a rank a thread. */
static double small_ms;

static void many(struct rank *r) {
  enum { ROUNDS = 300 };
  float *a = device_floats(r, 8, 0, 0);
  double start = now();
  for (int i = 0; i < ROUNDS; i++) {
    OK(ncclAllReduce(a, a, 8, ncclFloat32, ncclSum, r->comm, r->stream));
    OK(cudaStreamSynchronize(r->stream));
  }
  if (r->rank == 0) {
    small_ms = (now() - start) * 1e3 / ROUNDS;
  }
  OK(cudaFree(a));
}

static void test_speed(void) {
  on_threads(4, many);
  printf("allReduce of 32 bytes on 4 ranks, synchronized: %.3f ms\n", small_ms);
  jccl_fake_noop(1);
  OK(ncclAllReduce(NULL, NULL, 5, 0, 0, NULL, NULL));
  jccl_fake_noop(0);
}

/* ---- cuBLAS */

/* Elements as the types store them: small whole numbers are exact in all four. */
static void put(void *at, int type, size_t i, int value) {
  uint32_t bits;
  float f = (float)value;
  memcpy(&bits, &f, sizeof bits);
  if (type == CUDA_R_64F) {
    ((double *)at)[i] = value;
  } else if (type == CUDA_R_32F) {
    ((float *)at)[i] = f;
  } else if (type == CUDA_R_16BF) {
    ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
  } else {
    uint32_t magnitude = value == 0 ? 0 : (bits >> 13 & 0x3ffff) - (112U << 10);
    ((uint16_t *)at)[i] = (uint16_t)((bits >> 16 & 0x8000) | magnitude);
  }
}

static int value_of(int matrix, int row, int column) {
  return (row * 7 + column * 3 + matrix * 5) % 9 - 4;
}

enum { ROOM = 64 * 64 };

/* A matrix of such values in device memory, stored turned if asked for. */
static void *on_device(int matrix, int type, bool turned, int rows, int columns, int leading) {
  static char host[ROOM * 8];
  size_t size = type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
  void *device = NULL;
  memset(host, 0xff, sizeof host); /* NaN where there is no element */
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < columns; j++) {
      size_t at = turned ? (size_t)j + (size_t)i * (size_t)leading
                         : (size_t)i + (size_t)j * (size_t)leading;
      put(host, type, at, value_of(matrix, i, j));
    }
  }
  OK(cudaMalloc(&device, ROOM * size));
  OK(cudaMemcpy(device, host, ROOM * size, cudaMemcpyHostToDevice));
  return device;
}

static void one_product(
    cublasHandle_t h, cudaStream_t s, int type, int ta, int tb, int m, int n, int k, float beta) {
  int lda = (ta ? k : m) + 2, ldb = (tb ? n : k) + 1, ldc = m + 3;
  bool wide = type == CUDA_R_64F;
  int sums = wide ? CUDA_R_64F : CUDA_R_32F;
  size_t size = wide ? 8 : 4;
  float alpha = 2, back[ROOM];
  double alpha64 = 2, beta64 = beta, back64[ROOM];
  void *a = on_device(1, type, ta, m, k, lda);
  void *b = on_device(2, type, tb, k, n, ldb);
  void *c = on_device(3, sums, false, m, n, ldc);
  if (beta == 0) {
    OK(cudaMemset(c, 0xff, ROOM * size)); /* not a number, and not to be read */
  }
  OK(cudaDeviceSynchronize()); /* the stream does not wait for the default one */
  OK(cublasGemmEx(h, ta, tb, m, n, k, wide ? (void *)&alpha64 : &alpha, a, type, lda, b, type, ldb,
      wide ? (void *)&beta64 : &beta, c, sums, ldc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT));
  OK(cudaMemcpyAsync(wide ? (void *)back64 : back, c, ROOM * size, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  for (int j = 0; j < n; j++) {
    for (int i = 0; i < ldc; i++) {
      double is = wide ? back64[i + j * ldc] : back[i + j * ldc];
      if (i >= m) {
        CHECK(isnan(is)); /* between columns nothing is written */
        continue;
      }
      float sum = 0;
      for (int p = 0; p < k; p++) {
        sum += (float)(value_of(1, i, p) * value_of(2, p, j));
      }
      CHECK(is == 2 * sum + (beta == 0 ? 0 : beta * (float)value_of(3, i, j)));
    }
  }
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(c));
}

static void products(cublasHandle_t h, cudaStream_t s) {
  static const int TYPES[] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F, CUDA_R_64F};
  static const int SHAPES[][3] = {{1, 1, 1}, {5, 3, 4}, {16, 7, 1}, {33, 17, 21}, {4, 3, 0}};
  for (int t = 0; t < 4; t++) {
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
      for (int turns = 0; turns < 4; turns++) {
        for (int beta = -1; beta <= 1; beta++) {
          one_product(h, s, TYPES[t], turns & 1, turns >> 1, SHAPES[i][0], SHAPES[i][1],
              SHAPES[i][2], (float)beta);
        }
      }
    }
  }
}

static void cublas_refuses(cublasHandle_t h, float *x) {
  float one = 1;
#define GEMM(ta, m, k, lda, ldc, alpha, type, ctype, compute, algo) \
  cublasGemmEx(h, ta, 0, m, 2, k, alpha, x, type, lda, x + 64, type, 4, &one, x + 128, ctype, ldc, \
      compute, algo)
  OK(GEMM(0, 3, 4, 3, 3, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(3, 3, 4, 3, 3, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(0, -1, 4, 3, 3, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(0, 3, -4, 3, 3, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(0, 3, 4, 2, 3, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(1, 3, 4, 3, 3, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(0, 3, 4, 3, 2, &one, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(0, 3, 4, 3, 3, NULL, 0, 0, 68, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, GEMM(0, 3, 4, 3, 3, &one, 0, 0, 68, 50));
  IS(CUBLAS_STATUS_NOT_SUPPORTED, GEMM(0, 3, 4, 3, 3, &one, 0, CUDA_R_16BF, 68, -1));
  IS(CUBLAS_STATUS_NOT_SUPPORTED, GEMM(0, 3, 4, 3, 3, &one, CUDA_R_64F, 0, 68, -1));
  IS(CUBLAS_STATUS_NOT_SUPPORTED, GEMM(0, 3, 4, 3, 3, &one, 0, 0, 70, -1));
  OK(GEMM(0, 0, 4, 1, 1, &one, 0, 0, 68, -1));
#undef GEMM
  IS(CUBLAS_STATUS_INVALID_VALUE, cublasSetPointerMode_v2(h, 2));
  IS(CUBLAS_STATUS_INVALID_VALUE, cublasSetMathMode(h, -1));
  IS(CUBLAS_STATUS_INVALID_VALUE, cublasSetWorkspace_v2(h, (char *)x + 4, 1 << 20));
  IS(CUBLAS_STATUS_NOT_INITIALIZED, cublasSetStream_v2(NULL, NULL));
  IS(CUBLAS_STATUS_NOT_INITIALIZED, cublasDestroy_v2((cublasHandle_t)&one));
  IS(CUBLAS_STATUS_INVALID_VALUE, cublasCreate_v2(NULL));
  OK(cudaSetDevice(1));
  IS(CUBLAS_STATUS_EXECUTION_FAILED,
      cublasSgemm_v2(h, 0, 0, 1, 1, 1, &one, x, 1, x, 1, &one, x + 64, 1));
  OK(cudaSetDevice(0));
  OK(cudaDeviceSynchronize());
}

static void add_one_late(void *f) {
  int slept = 0;
  sleep_50(&slept);
  *(float *)f += 1;
}

/* Products are run by their stream, after what is before them in it and before what follows. */
static void products_wait(cublasHandle_t h, cudaStream_t s, float *x) {
  float one = 1, none = 0, *host = NULL;
  OK(cudaMallocHost((void **)&host, 4));
  *host = 4;
  hold(1);
  OK(cudaLaunchHostFunc(s, add_one_late, host));
  OK(cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, s));
  OK(cublasSgemm_v2(h, 0, 0, 1, 1, 1, &one, x, 1, x, 1, &none, x + 1, 1));
  IS(cudaErrorNotReady, cudaStreamQuery(s));
  hold(0);
  one = 7; /* was read when the product was enqueued */
  OK(cudaMemcpyAsync(host, x + 1, 4, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  IS(25, *host);
  OK(cudaFreeHost(host));
}

static void until_set(void *flag) {
  while (__atomic_load_n((int *)flag, __ATOMIC_SEQ_CST) == 0) {
    pause_ms(1);
  }
}

/* A handle's first product waits for all streams of the device, the second for none. */
static void first_product_waits(cudaStream_t s, float *x) {
  cublasHandle_t h = NULL;
  cudaStream_t other = NULL;
  float one = 1, none = 0;
  int slept = 0, go_on = 0;
  OK(cublasCreate_v2(&h));
  OK(cublasSetStream_v2(h, s));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaLaunchHostFunc(other, sleep_50, &slept));
  OK(cublasSgemm_v2(h, 0, 0, 1, 1, 1, &one, x, 1, x, 1, &none, x + 1, 1));
  IS(1, __atomic_load_n(&slept, __ATOMIC_SEQ_CST));
  OK(cudaLaunchHostFunc(other, until_set, &go_on));
  OK(cublasSgemm_v2(h, 0, 0, 1, 1, 1, &one, x, 1, x, 1, &none, x + 1, 1));
  __atomic_store_n(&go_on, 1, __ATOMIC_SEQ_CST);
  OK(cudaDeviceSynchronize());
  OK(cudaStreamDestroy(other));
  OK(cublasDestroy_v2(h));
}

static void products_in_graphs(cublasHandle_t h, cudaStream_t s, float *x) {
  float scalars[2] = {1, 1}, out = 0, start[4] = {3, 2, 10, 0};
  OK(cudaMemcpy(x, start, sizeof start, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(x + 8, scalars, sizeof scalars, cudaMemcpyHostToDevice));
  OK(cudaDeviceSynchronize());
  OK(cublasSetPointerMode_v2(h, CUBLAS_POINTER_MODE_DEVICE));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  OK(cublasSgemm_v2(h, 0, 0, 1, 1, 1, x + 8, x, 1, x + 1, 1, x + 9, x + 2, 1));
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    OK(cudaGraphLaunch(exec, s));
  }
  OK(cudaMemcpyAsync(&out, x + 2, 4, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  IS(28, out);
  OK(cudaGraphExecDestroy(exec));
  OK(cublasSetPointerMode_v2(h, CUBLAS_POINTER_MODE_HOST));
}

static void products_fail(cublasHandle_t h, cudaStream_t s, float *x) {
  float one = 1, none = 0, y[2];
#define PRODUCT() cublasSgemm_v2(h, 0, 0, 1, 1, 1, &one, x, 1, x, 1, &none, x + 1, 1)
  OK(cudaMemcpy(x, &one, 4, cudaMemcpyHostToDevice));
  OK(cudaDeviceSynchronize());
  OK(jccl_fake_inject("cublasSgemm_v2@0:1:error=14;cublasSgemm_v2@1:*:error=15;"
                        "cublasSgemm_v2:2:corrupt;cublasSgemm_v2:3:stall")
      - 4);
  IS(CUBLAS_STATUS_INTERNAL_ERROR, PRODUCT());
  OK(PRODUCT());
  OK(cudaMemcpyAsync(y, x, sizeof y, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  IS(2, y[1]);
  OK(PRODUCT());
  pause_ms(20);
  IS(cudaErrorNotReady, cudaStreamQuery(s));
  jccl_fake_release();
  OK(cudaStreamSynchronize(s));
  jccl_fake_clear();
  IS(1, jccl_fake_inject("cublasSgemm_v2:1:async=719"));
  OK(PRODUCT());
  IS(719, cudaStreamSynchronize(s));
  IS(CUBLAS_STATUS_EXECUTION_FAILED, PRODUCT());
  jccl_fake_sticky(0);
  jccl_fake_clear();
  /* One element more than there is. */
  OK(cublasSgemm_v2(h, 0, 0, 1, 1, 2, &one, x, 256, x, 2, &none, x + 1, 1));
  IS(cudaErrorIllegalAddress, cudaStreamSynchronize(s));
  IS(CUBLAS_STATUS_NOT_INITIALIZED, cublasCreate_v2(&(cublasHandle_t){NULL}));
  jccl_fake_sticky(0);
#undef PRODUCT
}

/* Kernels by the names and parameters that src/main/cuda has; only these lines of PTX are read. */
static const char PTX[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry sum_f64(\n.param .u64 a,\n.param .u32 b,\n.param .u32 c,\n"
                          ".param .u64 d\n)\n"
                          ".visible .entry fill_u32(\n.param .u64 a,\n.param .u32 b,\n.param .u64 c\n)\n";

static PFN_cuLibraryLoadData libraryLoadData;
static PFN_cuLibraryUnload libraryUnload;
static PFN_cuLibraryGetKernel libraryGetKernel;
static PFN_cuKernelGetFunction kernelGetFunction;
static PFN_cuFuncGetAttribute funcGetAttribute;
static PFN_cuLaunchKernel launchKernel;

static void *entry_point(const char *name) {
  void *f = NULL;
  int status = -1;
  OK(cudaGetDriverEntryPoint(name, &f, 0, &status));
  IS(0, status);
  return f;
}

static int load(CUlibrary *library, const void *code) {
  return libraryLoadData(library, code, NULL, NULL, 0, NULL, NULL, 0);
}

static int launch(void *f, unsigned grid, unsigned block, cudaStream_t s, void **args) {
  return launchKernel(f, grid, 1, 1, block, 1, 1, 0, s, args, NULL);
}

static void kernels_refused(CUkernel fill, cudaStream_t s, void **args) {
  IS(cudaErrorInvalidResourceHandle, launch(NULL, 1, 256, s, args));
  IS(cudaErrorInvalidResourceHandle, launch(args, 1, 256, s, args));
  IS(cudaErrorInvalidValue, launch(fill, 1, 256, s, NULL));
  IS(cudaErrorInvalidValue, launchKernel((CUfunction)fill, 1, 1, 1, 256, 1, 1, 0, s, args, args));
  IS(cudaErrorInvalidValue, launch(fill, 0, 256, s, args));
  IS(cudaErrorInvalidValue, launch(fill, 1, 1025, s, args));
  CUfunction other = NULL;
  OK(cudaSetDevice(1));
  OK(kernelGetFunction(&other, fill)); /* in the context of device 1; the stream is of device 0 */
  IS(cudaErrorInvalidResourceHandle, launch(other, 1, 256, s, args));
  OK(cudaSetDevice(0));
}

/* Binary compatibility: within a major capability, upwards. */
static void cubins(void) {
  struct {
    Elf64_Ehdr header;
    Elf64_Shdr sections[2];
    char names[32];
  } elf = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8},
               .e_machine = 190, .e_flags = 80 << 8, .e_shnum = 2,
               .e_shoff = sizeof(Elf64_Ehdr), .e_shentsize = sizeof(Elf64_Shdr)},
      .sections = {{.sh_offset = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Shdr)}, {.sh_name = 1}},
      .names = "\0.text.sum_f64"};
  elf.header.e_phoff = sizeof elf; /* no segments; the size is where they would begin */
  static const struct {
    int cubin, device, error;
  } cases[] = {{80, 80, 0}, {80, 86, 0}, {80, 89, 0}, {86, 80, 209}, {80, 90, 209}, {90, 89, 209},
      {80, 75, 209}, {100, 103, 0}, {100, 120, 209}};
  CUlibrary library;
  CUkernel sum, none;
  CUfunction function;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    elf.header.e_flags = (unsigned)cases[i].cubin << 8;
    jccl_fake_capability(cases[i].device);
    OK(load(&library, &elf));
    OK(libraryGetKernel(&sum, library, "sum_f64"));
    IS(cudaErrorSymbolNotFound, libraryGetKernel(&none, library, "sum"));
    IS(cases[i].error, kernelGetFunction(&function, sum));
    OK(libraryUnload(library));
  }
  jccl_fake_capability(90);
  elf.header.e_machine = 62;
  IS(cudaErrorInvalidKernelImage, load(&library, &elf));
}

static void kernel_runs(CUkernel sum, CUkernel fill, cudaStream_t s) {
  enum { N = 1000 };
  double in[N], expected = 0, *x, out = 0;
  for (int i = 0; i < N; i++) {
    in[i] = i;
    expected += i;
  }
  OK(cudaMalloc((void **)&x, sizeof in));
  OK(cudaMemcpy(x, in, sizeof in, cudaMemcpyDefault));
  int n = N, add = 0;
  double *target = x + 1;
  void *args[] = {&x, &n, &add, &target};
  OK(launch(sum, 1, 256, s, args));
  n = -1; /* arguments were copied */
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(&out, target, sizeof out, cudaMemcpyDefault));
  CHECK(out == expected);
  uint32_t value = 7;
  long count = 1;
  char *odd = (char *)x + 2;
  void *fill_args[] = {&odd, &value, &count};
  kernels_refused(fill, s, fill_args);
  OK(cudaSetDevice(1)); /* a kernel takes the context of its stream */
  OK(launch(fill, 1, 256, s, fill_args));
  IS(cudaErrorMisalignedAddress, cudaStreamSynchronize(s));
  jccl_fake_sticky(0);
  OK(cudaSetDevice(0)); /* not earlier: it may return the error of the launch */
  OK(cudaFree(x));
}

static void test_kernels(void) {
  CUlibrary library;
  CUkernel sum, fill, none;
  CUfunction function;
  cudaStream_t s;
  void *nothing = &library;
  int status = 0, value = 0;
  OK(cudaSetDevice(0));
  IS(cudaErrorInvalidValue, cudaGetDriverEntryPoint(NULL, &nothing, 0, NULL));
  IS(cudaErrorInvalidValue, cudaGetDriverEntryPoint("cuLaunchKernel", &nothing, 3, NULL));
  OK(cudaGetDriverEntryPoint("cuNothing", &nothing, 0, &status));
  CHECK(nothing == NULL && status == 1);
  libraryLoadData = (PFN_cuLibraryLoadData)entry_point("cuLibraryLoadData");
  libraryUnload = (PFN_cuLibraryUnload)entry_point("cuLibraryUnload");
  libraryGetKernel = (PFN_cuLibraryGetKernel)entry_point("cuLibraryGetKernel");
  kernelGetFunction = (PFN_cuKernelGetFunction)entry_point("cuKernelGetFunction");
  funcGetAttribute = (PFN_cuFuncGetAttribute)entry_point("cuFuncGetAttribute");
  launchKernel = (PFN_cuLaunchKernel)entry_point("cuLaunchKernel");
  IS(cudaErrorInvalidValue, load(NULL, PTX));
  IS(cudaErrorInvalidPtx, load(&library, "no PTX"));
  IS(cudaErrorUnsupportedPtxVersion,
      load(&library, ".version 9.9\n.target sm_70\n.address_size 64\n"));
  OK(load(&library, PTX)); /* nothing is compiled before a function is needed */
  IS(cudaErrorSymbolNotFound, libraryGetKernel(&none, library, "fill"));
  OK(libraryGetKernel(&sum, library, "sum_f64"));
  OK(libraryGetKernel(&fill, library, "fill_u32"));
  jccl_fake_capability(61);
  IS(cudaErrorNoKernelImageForDevice, kernelGetFunction(&function, fill));
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  IS(cudaErrorNoKernelImageForDevice, load(&library, PTX));
  unsetenv("CUDA_MODULE_LOADING");
  jccl_fake_capability(90);
  OK(kernelGetFunction(&function, fill));
  OK(funcGetAttribute(&value, 0, function));
  IS(1024, value);
  OK(funcGetAttribute(&value, 5, function));
  IS(70, value);
  OK(cudaStreamCreate(&s));
  for (int reversed = 0; reversed < 2; reversed++) {
    jccl_fake_threads_reversed(reversed);
    kernel_runs(sum, fill, s);
  }
  jccl_fake_threads_reversed(0);
  OK(cudaStreamDestroy(s));
  OK(libraryUnload(library));
  IS(cudaErrorInvalidResourceHandle, funcGetAttribute(&value, 0, function));
  IS(cudaErrorInvalidValue, libraryUnload(library));
  cubins();
  no_leaks();
}

static void test_cublas(void) {
  cublasHandle_t h = NULL;
  cudaStream_t s = NULL, is = NULL;
  float *x = NULL;
  size_t before = 0, after = 0, total = 0;
  int v[3], mode = 7;
  for (int i = 0; i < 3; i++) {
    OK(cublasGetProperty(i, &v[i]));
  }
  IS(CUBLAS_STATUS_INVALID_VALUE, cublasGetProperty(3, v));
  IS(13, v[0]);
  OK(cudaMemGetInfo(&before, &total));
  OK(cublasCreate_v2(&h));
  OK(cudaMemGetInfo(&after, &total));
  IS(4 << 20, before - after);
  IS(1, jccl_fake_live("cublas"));
  OK(cublasGetVersion_v2(h, v));
  IS(130101, v[0]);
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cublasSetStream_v2(h, s));
  OK(cublasGetStream_v2(h, &is));
  CHECK(is == s);
  OK(cublasGetPointerMode_v2(h, &mode));
  IS(CUBLAS_POINTER_MODE_HOST, mode);
  OK(cublasGetMathMode(h, &mode));
  IS(0, mode);
  OK(cudaMalloc((void **)&x, 256 * 4));
  products(h, s);
  cublas_refuses(h, x);
  products_wait(h, s, x);
  first_product_waits(s, x);
  products_in_graphs(h, s, x);
  products_fail(h, s, x);
  CHECK(strcmp(cublasGetStatusName(3), "CUBLAS_STATUS_ALLOC_FAILED") == 0);
  CHECK(strstr(cublasGetStatusString(3), "jccl fake") != NULL);
  OK(cudaFree(x));
  OK(cublasDestroy_v2(h));
  OK(cudaStreamDestroy(s));
  OK(cudaMemGetInfo(&after, &total));
  IS(before, after);
  void *most = NULL;
  OK(cudaMalloc(&most, after - (1 << 20)));
  IS(CUBLAS_STATUS_ALLOC_FAILED, cublasCreate_v2(&h));
  OK(cudaFree(most));
  no_leaks();
}

static const struct {
  const char *name;
  void (*run)(void);
  bool forks;
} TESTS[] = {{"processes", test_processes, true}, {"killed", test_killed, true},
    {"killed_unseen", test_killed_unseen, true},
    {"ipc", test_ipc, true}, {"guard", test_guard, true}, {"deaths", test_deaths, true},
    {"contexts", test_contexts, true}, {"bad_address", test_bad_address, true},
    {"exit", test_exit, true},
    {"blocking", test_blocking, false}, {"names", test_names, false},
    {"devices", test_devices, false},
    {"memory", test_memory, false}, {"streams", test_streams, false},
    {"pools", test_pools, false}, {"capture", test_capture, false},
    {"injection", test_injection, false}, {"collectives", test_collectives, false},
    {"one_thread", test_one_thread, false}, {"management", test_management, false},
    {"nonblocking", test_nonblocking, false}, {"faults", test_faults, false},
    {"params", test_params, false}, {"cublas", test_cublas, false},
    {"kernels", test_kernels, false}, {"speed", test_speed, false}};

/* Whether functions are there, by name. */
static int symbols(char **names) {
  int missing = 0;
  for (; *names != NULL; names++) {
    if (dlsym(RTLD_DEFAULT, *names) == NULL) {
      fprintf(stderr, "%s is missing\n", *names);
      missing = 1;
    }
  }
  return missing;
}

/* What the environment can change. */
static int settings(void) {
  int version = 0, devices = 0;
  void *p = NULL;
  OK(ncclGetVersion(&version));
  OK(cudaGetDeviceCount(&devices));
  int result = cudaMalloc(&p, 65537);
  printf("nccl %d, devices %d, cudaMalloc of 65537 bytes %d, cudaFree %d, noop %d\n", version,
      devices, result, cudaFree(NULL), ncclAllReduce(NULL, NULL, 1, 7, 0, NULL, NULL));
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "-s") == 0) {
    return symbols(argv + 2);
  }
  if (argc > 1 && strcmp(argv[1], "-v") == 0) {
    return settings();
  }
  if (argc > 1 && strcmp(argv[1], "-l") == 0) {
    return late_slot();
  }
  bool no_forks = argc > 1 && strcmp(argv[1], "-f") == 0;
  int run = 0;
  alarm(300);
  for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
    bool wanted = argc <= 1 + no_forks;
    for (int k = 1 + no_forks; k < argc; k++) {
      wanted |= strcmp(argv[k], TESTS[i].name) == 0;
    }
    if (wanted && !(no_forks && TESTS[i].forks)) {
      double start = now();
      TESTS[i].run();
      printf("%s: %.0f ms\n", TESTS[i].name, (now() - start) * 1e3);
      fflush(stdout);
      run++;
    }
  }
  printf("%d tests of the fakes passed\n", run);
  return run > 0 ? 0 : 2;
}
