/*
 * Asks a libcudart what calls return while a stream is captured, and which calls wait for a stream
 * that is held up. One line an answer: "RULE ANSWER". cuda_rules.txt holds what CUDA 13.0 answers;
 * run against CUDA on a GPU, this program says whether that is so.
 *
 *   cuda_rules [PREFIX]     only rules whose names begin so
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

enum { SMALL = 4096, LARGE = 4 << 20, NON_BLOCKING = 1, NO_TIMING = 2, MANY = 3000 };

static const char *prefix = "";
static cudaStream_t held, other;
static cudaEvent_t event; /* of other, complete */
static cudaEvent_t first; /* with a time */
static void *gpu, *far, *pinned, *pageable;
static atomic_bool open_gate, ran;

/* Calls; other means: not the stream that is captured or held. */
static int malloc_free(void) {
  void *p = NULL;
  int e = cudaMalloc(&p, SMALL);
  return p != NULL && e == 0 ? cudaFree(p) : e;
}
static int only_malloc(void) {
  void *p = NULL; /* is kept: cudaFree has a rule of its own */
  return cudaMalloc(&p, SMALL);
}
static void *to_free;
static int only_free(void) { return cudaFree(to_free); }
static int malloc_async(void) {
  void *p = NULL;
  return cudaMallocAsync(&p, SMALL, other);
}
static int host_alloc(void) {
  void *p = NULL;
  return cudaHostAlloc(&p, SMALL, 0);
}
static void *host_to_free;
static int free_host(void) { return cudaFreeHost(host_to_free); }
static int query_other(void) { return cudaStreamQuery(other); }
static int query_held(void) { return cudaStreamQuery(held); }
static int synchronize_other(void) { return cudaStreamSynchronize(other); }
static int synchronize_held(void) { return cudaStreamSynchronize(held); }
static int event_query(void) { return cudaEventQuery(event); }
static int event_synchronize(void) { return cudaEventSynchronize(event); }
static int event_record_other(void) { return cudaEventRecord(event, other); }
static int event_elapsed(void) {
  float ms;
  return cudaEventElapsedTime(&ms, first, first);
}
static int event_create(void) {
  cudaEvent_t e;
  return cudaEventCreateWithFlags(&e, NO_TIMING);
}
static int wait_other(void) { return cudaStreamWaitEvent(other, event, 0); }
static int memcpy_now(void) { return cudaMemcpy(gpu, pinned, 4, 1); }
static int memset_now(void) { return cudaMemset(gpu, 0, 4); }
static int memcpy_other(void) { return cudaMemcpyAsync(gpu, pinned, 4, 1, other); }
static int memset_other(void) { return cudaMemsetAsync(gpu, 0, 4, other); }
static void nothing(void *data) { (void)data; }
static int host_function_other(void) { return cudaLaunchHostFunc(other, nothing, NULL); }
static int stream_create(void) {
  cudaStream_t s;
  return cudaStreamCreateWithFlags(&s, NON_BLOCKING);
}
static cudaStream_t to_destroy;
static int stream_destroy(void) { return cudaStreamDestroy(to_destroy); }
static int device_synchronize(void) { return cudaDeviceSynchronize(); }
static int memory_info(void) {
  size_t free, total;
  return cudaMemGetInfo(&free, &total);
}
static int set_device(void) { return cudaSetDevice(0); }
static int pointer(void) {
  struct cudaPointerAttributes a;
  return cudaPointerGetAttributes(&a, gpu);
}
static int is_capturing(void) {
  int status;
  return cudaStreamIsCapturing(other, &status);
}
static int launch_empty_graph(void) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int e = cudaGraphCreate(&graph, 0);
  e = e ? e : cudaGraphInstantiateWithFlags(&exec, graph, 0);
  return e ? e : cudaGraphLaunch(exec, other);
}
/* Only where a stream is held up. */
static int pinned_to_device(void) { return cudaMemcpyAsync(gpu, pinned, SMALL, 1, held); }
static int device_to_pinned(void) { return cudaMemcpyAsync(pinned, gpu, SMALL, 2, held); }
static int pageable_to_device_small(void) { return cudaMemcpyAsync(gpu, pageable, SMALL, 1, held); }
static int pageable_to_device_64k(void) { return cudaMemcpyAsync(gpu, pageable, 1 << 16, 1, held); }
static int pageable_to_device_large(void) { return cudaMemcpyAsync(gpu, pageable, LARGE, 1, held); }
static int device_to_pageable(void) { return cudaMemcpyAsync(pageable, gpu, SMALL, 2, held); }
static int pinned_to_pageable(void) { return cudaMemcpyAsync(pageable, pinned, SMALL, 0, held); }
static int device_to_device(void) { return cudaMemcpyAsync(far, gpu, SMALL, 3, held); }
static int memset_held(void) { return cudaMemsetAsync(gpu, 0, SMALL, held); }
static int event_record_held(void) { return cudaEventRecord(event, held); }
static int free_async_held(void) {
  void *p = NULL;
  int e = cudaMallocAsync(&p, SMALL, held);
  return e ? e : cudaFreeAsync(p, held);
}
static void runs(void *data) {
  (void)data;
  atomic_store(&ran, true);
}
static int host_function_runs(void) { /* of another stream */
  atomic_store(&ran, false);
  int e = cudaLaunchHostFunc(other, runs, NULL);
  while (!atomic_load(&ran)) {
    usleep(100);
  }
  return e;
}
static int copy_of_other_ends(void) {
  int e = cudaMemcpyAsync(gpu, pinned, SMALL, 1, other);
  return e ? e : cudaStreamSynchronize(other);
}

struct call {
  const char *name;
  int (*run)(void);
};

static const struct call IN_CAPTURE[] = {
    {"malloc", only_malloc},
    {"free", only_free},
    {"malloc_async.other", malloc_async},
    {"host_alloc", host_alloc},
    {"free_host", free_host},
    {"query.other", query_other},
    {"query.captured", query_held},
    {"synchronize.other", synchronize_other},
    {"synchronize.captured", synchronize_held},
    {"event_query", event_query},
    {"event_synchronize", event_synchronize},
    {"event_record.other", event_record_other},
    {"event_elapsed", event_elapsed},
    {"event_create", event_create},
    {"wait_event.other", wait_other},
    {"memcpy", memcpy_now},
    {"memset", memset_now},
    {"memcpy_async.other", memcpy_other},
    {"memset_async.other", memset_other},
    {"host_function.other", host_function_other},
    {"stream_create", stream_create},
    {"stream_destroy.other", stream_destroy},
    {"device_synchronize", device_synchronize},
    {"memory_info", memory_info},
    {"set_device", set_device},
    {"pointer_attributes", pointer},
    {"is_capturing.other", is_capturing},
    {"graph_launch.other", launch_empty_graph},
};

static const struct call WHILE_HELD[] = {
    {"malloc_free", malloc_free},
    {"malloc_async.other", malloc_async},
    {"free_async.held", free_async_held},
    {"host_alloc", host_alloc},
    {"free_host", free_host},
    {"query.held", query_held},
    {"synchronize.other", synchronize_other},
    {"event_record.held", event_record_held},
    {"event_create", event_create},
    {"memcpy", memcpy_now},
    {"memset", memset_now},
    {"memcpy_async.pinned_to_device", pinned_to_device},
    {"memcpy_async.device_to_pinned", device_to_pinned},
    {"memcpy_async.device_to_device", device_to_device},
    {"memcpy_async.pageable_to_device.4k", pageable_to_device_small},
    {"memcpy_async.pageable_to_device.64k", pageable_to_device_64k},
    {"memcpy_async.pageable_to_device.4m", pageable_to_device_large},
    {"memcpy_async.device_to_pageable", device_to_pageable},
    {"memcpy_async.pinned_to_pageable", pinned_to_pageable},
    {"memset_async.held", memset_held},
    {"copy.other", copy_of_other_ends},
    {"host_function.other", host_function_runs},
    {"stream_create", stream_create},
    {"memory_info", memory_info},
    {"graph_launch.other", launch_empty_graph},
};

static bool asked(const char *rule) { return strncmp(rule, prefix, strlen(prefix)) == 0; }

static void need(int error, const char *what) {
  if (error != 0) {
    printf("%s failed: %d\n", what, error);
    exit(1);
  }
}

/* With the other stream idle, which a query tells from busy. */
static void begin_capture(int mode) {
  need(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  need(cudaStreamBeginCapture(held, mode), "cudaStreamBeginCapture");
}

static void in_capture(void) {
  static const char *const MODES[] = {"global", "thread_local", "relaxed"};
  for (int mode = 0; mode < 3; mode++) {
    for (size_t i = 0; i < sizeof IN_CAPTURE / sizeof *IN_CAPTURE; i++) {
      char rule[99];
      snprintf(rule, sizeof rule, "capture.%s.%s", MODES[mode], IN_CAPTURE[i].name);
      if (!asked(rule)) {
        continue;
      }
      need(cudaMalloc(&to_free, SMALL), "cudaMalloc");
      need(cudaHostAlloc(&host_to_free, SMALL, 0), "cudaHostAlloc");
      need(cudaStreamCreateWithFlags(&to_destroy, NON_BLOCKING), "cudaStreamCreateWithFlags");
      begin_capture(mode);
      int answer = IN_CAPTURE[i].run();
      cudaGraph_t graph = NULL;
      int end = cudaStreamEndCapture(held, &graph);
      cudaGetLastError();
      printf("%s %d,%d\n", rule, answer, end);
      if (graph != NULL) {
        cudaGraphDestroy(graph);
      }
    }
  }
}

static void *of_another_thread(void *result) {
  *(int *)result = query_other();
  return NULL;
}

/* A query of another thread, which captures nothing. */
static void beside_a_capture(void) {
  static const char *const MODES[] = {"global", "thread_local", "relaxed"};
  for (int mode = 0; mode < 3; mode++) {
    char rule[99];
    snprintf(rule, sizeof rule, "capture.%s.query.other_thread", MODES[mode]);
    if (asked(rule)) {
      begin_capture(mode);
      int answer = -1;
      pthread_t t;
      pthread_create(&t, NULL, of_another_thread, &answer);
      pthread_join(t, NULL);
      cudaGraph_t graph = NULL;
      int end = cudaStreamEndCapture(held, &graph);
      cudaGetLastError();
      printf("%s %d,%d\n", rule, answer, end);
    }
  }
}

static void gate(void *data) {
  (void)data;
  while (!atomic_load(&open_gate)) {
    usleep(100);
  }
}

struct asking {
  int (*run)(void);
  atomic_int answer, calls;
};

enum { UNANSWERED = -1 };

static void *ask(void *data) {
  struct asking *a = data;
  a->answer = a->run();
  return NULL;
}

/* Holds the stream up by a host function, and sees whether a call returns meanwhile. */
static void while_held(void) {
  for (size_t i = 0; i < sizeof WHILE_HELD / sizeof *WHILE_HELD; i++) {
    char rule[99];
    snprintf(rule, sizeof rule, "held.%s", WHILE_HELD[i].name);
    if (!asked(rule)) {
      continue;
    }
    need(cudaHostAlloc(&host_to_free, SMALL, 0), "cudaHostAlloc");
    need(WHILE_HELD[i].run == query_held ? 0 : cudaStreamSynchronize(other), "warm-up");
    atomic_store(&open_gate, false);
    need(cudaLaunchHostFunc(held, gate, NULL), "cudaLaunchHostFunc");
    usleep(1000);
    struct asking a = {.run = WHILE_HELD[i].run, .answer = UNANSWERED};
    pthread_t t;
    pthread_create(&t, NULL, ask, &a);
    for (int ms = 0; ms < 200 && a.answer == UNANSWERED; ms++) {
      usleep(1000);
    }
    bool waits = a.answer == UNANSWERED;
    atomic_store(&open_gate, true);
    pthread_join(t, NULL);
    need(cudaStreamSynchronize(held), "cudaStreamSynchronize");
    printf("%s %s%d\n", rule, waits ? "waits," : "", a.answer);
  }
}

static struct asking filling;
static int (*one)(void);

static int host_function_held(void) { return cudaLaunchHostFunc(held, nothing, NULL); }

static int enqueue_many(void) {
  int e = 0;
  for (int i = 0; i < MANY && e == 0; i++) {
    e = one();
    filling.calls = i + 1;
  }
  return e;
}

/* How many calls return behind a stream that is held up. */
static void depth(void) {
  static const struct call CALLS[] = {
      {"depth.host_function", host_function_held},
      {"depth.memcpy_async", pinned_to_device},
      {"depth.memset_async", memset_held},
      {"depth.event_record", event_record_held},
  };
  for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
    if (!asked(CALLS[i].name)) {
      continue;
    }
    atomic_store(&open_gate, false);
    need(cudaLaunchHostFunc(held, gate, NULL), "cudaLaunchHostFunc");
    one = CALLS[i].run;
    filling.run = enqueue_many;
    filling.answer = UNANSWERED;
    filling.calls = 0;
    pthread_t t;
    pthread_create(&t, NULL, ask, &filling);
    for (int before = -1; before != filling.calls && filling.answer == UNANSWERED;) {
      before = filling.calls;
      usleep(200000);
    }
    int returned = filling.calls;
    atomic_store(&open_gate, true);
    pthread_join(t, NULL);
    need(cudaStreamSynchronize(held), "cudaStreamSynchronize");
    printf("%s %d%s\n", CALLS[i].name, returned, returned == MANY ? "+" : "");
  }
}

int main(int argc, char **argv) {
  prefix = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  need(cudaSetDevice(0), "cudaSetDevice");
  need(cudaStreamCreateWithFlags(&held, NON_BLOCKING), "cudaStreamCreateWithFlags");
  need(cudaStreamCreateWithFlags(&other, NON_BLOCKING), "cudaStreamCreateWithFlags");
  need(cudaEventCreateWithFlags(&event, NO_TIMING), "cudaEventCreateWithFlags");
  need(cudaEventCreate(&first), "cudaEventCreate");
  need(cudaMalloc(&gpu, LARGE), "cudaMalloc");
  need(cudaMalloc(&far, LARGE), "cudaMalloc");
  need(cudaHostAlloc(&pinned, LARGE, 0), "cudaHostAlloc");
  pageable = calloc(1, LARGE);
  /* Every call once, so that nothing is loaded while a stream is held up. */
  host_to_free = NULL;
  memset_now(), memcpy_now(), memset_other(), memcpy_other(), host_function_other(), malloc_async();
  memset_held(), pinned_to_device(), device_to_pinned(), device_to_device(), free_async_held();
  device_to_pageable(), pageable_to_device_large(), pinned_to_pageable(), launch_empty_graph();
  need(cudaEventRecord(event, other), "cudaEventRecord");
  need(cudaEventRecord(first, other), "cudaEventRecord");
  need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  in_capture();
  beside_a_capture();
  while_held();
  depth();
  return 0;
}
