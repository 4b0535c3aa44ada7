/*
 * Asks a libnccl what its calls return at once, what the asynchronous state is then, and what comes
 * later: two ranks as threads, only functions that NCCL itself has. One line an answer:
 * "RULE RANK ANSWER". nccl_rules.txt says what NCCL 2.30.7 answers; run against NCCL on GPUs, this
 * program says whether that is so. On a machine with one GPU the ranks share it, which NCCL allows with
 * NCCL_MULTI_RANK_GPU_ENABLE=1.
 *
 *   nccl_rules 0|1 [CASE...]     0: non-blocking communicators, 1: blocking ones
 */
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"

enum { N = 8, WINDOW = 1 << 22 };

struct rank {
  int me;
  bool blocking;
  ncclUniqueId id, second;
  ncclComm_t comm;
  cudaStream_t stream;
  float *data;
};

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void say(struct rank *r, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct rank *r, const char *rule, const char *format, ...) {
  va_list args;
  va_start(args, format);
  pthread_mutex_lock(&printing);
  printf("%s %d ", rule, r->me);
  vprintf(format, args);
  printf("\n");
  fflush(stdout);
  pthread_mutex_unlock(&printing);
  va_end(args);
}

static int state(ncclComm_t comm) {
  int s = -1, e = ncclCommGetAsyncError(comm, &s);
  return e != ncclSuccess ? 100 + e : s;
}

static int later(ncclComm_t comm) {
  int s = state(comm);
  for (int i = 0; i < 10000 && s == ncclInProgress; i++) {
    usleep(1000);
    s = state(comm);
  }
  return s;
}

static void use_gpu_of(int rank) {
  int count = 0;
  cudaGetDeviceCount(&count);
  cudaSetDevice(count > 0 ? rank % count : 0);
}

static void meet(void) { pthread_barrier_wait(&both); }

static const char *slot(const void *is, const void *was) {
  return is == NULL ? "null" : is == was ? "untouched" : "set";
}

static ncclConfig_t config(bool blocking) {
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

static int sum(struct rank *r) {
  return ncclAllReduce(r->data, r->data, N, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void open_rank(struct rank *r, bool says) {
  ncclConfig_t c = config(r->blocking);
  use_gpu_of(r->me);
  int e = ncclCommInitRankConfig(&r->comm, 2, r->id, r->me, &c);
  int s = r->comm == NULL ? -1 : state(r->comm);
  if (says) {
    say(r, "init.returns", "%d", e);
    say(r, "init.slot", "%s", slot(r->comm, r));
    say(r, "init.state", "%d", s);
  }
  s = later(r->comm);
  if (says) {
    say(r, "init.state.later", "%d", s);
  }
  cudaMalloc((void **)&r->data, 4096);
  cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking);
}

/* Finalize, an operation after it, destroy: what is said of them under a prefix. */
static void close_rank(struct rank *r, const char *prefix) {
  char rule[80];
  int e = ncclCommFinalize(r->comm), s = state(r->comm);
  snprintf(rule, sizeof rule, "%s.finalize.returns", prefix);
  say(r, rule, "%d", e);
  snprintf(rule, sizeof rule, "%s.finalize.state", prefix);
  say(r, rule, "%d", s);
  s = later(r->comm);
  snprintf(rule, sizeof rule, "%s.finalize.state.later", prefix);
  say(r, rule, "%d", s);
  e = sum(r);
  snprintf(rule, sizeof rule, "%s.after.returns", prefix);
  say(r, rule, "%d", e);
  e = ncclCommDestroy(r->comm);
  snprintf(rule, sizeof rule, "%s.destroy.returns", prefix);
  say(r, rule, "%d", e);
}

static void drop_rank(struct rank *r) {
  later(r->comm);
  meet();
  ncclCommAbort(r->comm);
}

static void case_init(struct rank *r) {
  open_rank(r, true);
  int e = sum(r), s = state(r->comm);
  say(r, "operation.returns", "%d", e);
  say(r, "operation.state", "%d", s);
  s = later(r->comm);
  say(r, "operation.state.later", "%d", s);
  cudaStreamSynchronize(r->stream);
  e = ncclAllReduce(r->data, r->data, 0, ncclFloat32, ncclSum, r->comm, r->stream);
  say(r, "operation.empty.returns", "%d", e);
  close_rank(r, "close");
}

static atomic_int begun; /* the call that does not block has returned */

/*
 * A rank that never comes: another thread ends the wait by the slot. That of a call that does not
 * block goes on after it, so what the call returns is the same however late this thread is.
 */
static void *abort_by_slot(void *arg) {
  struct rank *r = arg;
  ncclComm_t seen = NULL;
  while (seen == NULL || (!r->blocking && !atomic_load(&begun))) {
    usleep(1000);
    seen = *(ncclComm_t volatile *)&r->comm;
  }
  usleep(100000);
  int s = -1;
  ncclCommGetAsyncError(seen, &s);
  say(r, "missing.state", "%d", s);
  say(r, "missing.abort.returns", "%d", ncclCommAbort(seen));
  return NULL;
}

static void case_missing(struct rank *r) {
  if (r->me == 1) {
    return;
  }
  pthread_t other;
  ncclConfig_t c = config(r->blocking);
  cudaSetDevice(0);
  pthread_create(&other, NULL, abort_by_slot, r);
  int e = ncclCommInitRankConfig(&r->comm, 2, r->id, 0, &c);
  atomic_store(&begun, 1);
  say(r, "missing.returns", "%s", e == ncclInProgress ? "7" : e != 0 ? "error" : "0");
  pthread_join(other, NULL);
}

static void case_split(struct rank *r) {
  ncclComm_t child = (ncclComm_t)r;
  open_rank(r, false);
  meet();
  int e = ncclCommSplit(r->comm, r->me == 0 ? 0 : -1, 0, &child, NULL);
  int s = state(r->comm);
  say(r, "split.returns", "%d", e);
  say(r, r->me == 0 ? "split.slot" : "split.none.slot", "%s", slot(child, r));
  say(r, "split.state", "%d", s);
  s = later(r->comm);
  say(r, "split.state.later", "%d", s);
  say(r, r->me == 0 ? "split.slot.later" : "split.none.slot.later", "%s", slot(child, r));
  if (child != NULL) {
    say(r, "split.child.state", "%d", later(child));
    say(r, "split.child.destroy.returns", "%d", ncclCommDestroy(child));
  }
  meet();
  close_rank(r, "split.close");
}

/* An operation on the parent before the split is over. */
static void case_busy(struct rank *r) {
  ncclComm_t child = (ncclComm_t)r;
  open_rank(r, false);
  meet();
  ncclCommSplit(r->comm, 0, r->me, &child, NULL);
  int e = sum(r), s = state(r->comm);
  say(r, "busy.returns", "%d", e);
  say(r, "busy.state", "%d", s);
}

static void case_shrink(struct rank *r) {
  ncclComm_t child = (ncclComm_t)r;
  open_rank(r, false);
  meet();
  if (r->me == 0) {
    int e = ncclCommShrink(r->comm, (int[]){1}, 1, &child, NULL, 0), s = state(r->comm);
    say(r, "shrink.returns", "%d", e);
    say(r, "shrink.slot", "%s", slot(child, r));
    say(r, "shrink.state", "%d", s);
    s = later(r->comm);
    say(r, "shrink.state.later", "%d", s);
    say(r, "shrink.slot.later", "%s", slot(child, r));
    say(r, "shrink.child.state", "%d", state(child));
    ncclCommDestroy(child);
  }
  drop_rank(r);
}

/* One rank grows to two. The slot is set at once, and it is the new one's state that tells. */
static ncclUniqueId growth;

static void case_grow(struct rank *r) {
  ncclConfig_t c = config(r->blocking);
  ncclComm_t grown = (ncclComm_t)r;
  use_gpu_of(r->me);
  if (r->me == 0) {
    ncclCommInitRankConfig(&r->comm, 1, r->id, 0, &c);
    later(r->comm);
    ncclCommGetUniqueId(r->comm, &growth);
  }
  meet();
  int e = r->me == 0 ? ncclCommGrow(r->comm, 2, &growth, -1, &grown, NULL)
                     : ncclCommGrow(NULL, 2, &growth, 1, &grown, &c);
  int s = state(grown);
  say(r, "grow.returns", "%d", e);
  say(r, "grow.slot", "%s", slot(grown, r));
  say(r, "grow.state", "%d", s);
  if (r->me == 0) {
    say(r, "grow.parent.state", "%d", state(r->comm));
  }
  say(r, "grow.state.later", "%d", later(grown));
  meet();
  ncclCommAbort(grown);
}

static void window(struct rank *r, const char *prefix, bool puts) {
  char rule[80];
  void *memory = NULL;
  ncclWindow_t win = (ncclWindow_t)r;
  open_rank(r, false);
  meet();
  ncclMemAlloc(&memory, WINDOW);
  int e = ncclCommWindowRegister(r->comm, memory, WINDOW, &win, 1), s = state(r->comm);
  snprintf(rule, sizeof rule, "%s.returns", prefix);
  say(r, rule, "%d", e);
  snprintf(rule, sizeof rule, "%s.slot", prefix);
  say(r, rule, "%s", slot(win, r));
  snprintf(rule, sizeof rule, "%s.state", prefix);
  say(r, rule, "%d", s);
  s = later(r->comm);
  snprintf(rule, sizeof rule, "%s.state.later", prefix);
  say(r, rule, "%d", s);
  snprintf(rule, sizeof rule, "%s.slot.later", prefix);
  say(r, rule, "%s", slot(win, r));
  if (puts && win != NULL) {
    meet();
    e = ncclPutSignal(memory, 16, ncclFloat32, 1 - r->me, win, 4096, 0, 0, 0, r->comm, r->stream);
    say(r, "put.returns", "%d", e);
    say(r, "put.state.later", "%d", later(r->comm));
    meet();
    cudaStreamSynchronize(r->stream);
    meet();
    say(r, "window.deregister.returns", "%d", ncclCommWindowDeregister(r->comm, win));
  }
  say(r, "window.deregister.null.returns", "%d", ncclCommWindowDeregister(r->comm, NULL));
  drop_rank(r);
}

static void case_window(struct rank *r) { window(r, "window", true); }

static void case_no_symmetric_memory(struct rank *r) { window(r, "nosym", false); }

/* Memory of cudaMalloc is refused on its rank; the others would wait. */
static void case_plain_window(struct rank *r) {
  void *memory = NULL;
  ncclWindow_t win = (ncclWindow_t)r;
  open_rank(r, false);
  if (r->me == 0) {
    cudaMalloc(&memory, WINDOW);
    say(r, "plain.returns", "%d", ncclCommWindowRegister(r->comm, memory, WINDOW, &win, 1));
    say(r, "plain.state.later", "%d", later(r->comm));
    say(r, "plain.slot.later", "%s", slot(win, r));
  }
  drop_rank(r);
}

/* The window is symmetric, the one with the source is not. */
static void case_source(struct rank *r) {
  char *memory = NULL;
  ncclWindow_t wins[2] = {NULL, NULL};
  open_rank(r, false);
  ncclMemAlloc((void **)&memory, 2 * WINDOW);
  for (int i = 0; i < 2; i++) {
    meet();
    ncclCommWindowRegister(r->comm, memory + i * WINDOW, WINDOW, &wins[i], i);
    later(r->comm);
  }
  say(r, "source.returns", "%d", ncclPutSignal(memory, 0, ncclFloat32, 1 - r->me, wins[1], 0, 0, 0,
      0, r->comm, r->stream));
  say(r, "source.state", "%d", state(r->comm));
  drop_rank(r);
}

static atomic_int called; /* rank 1 makes the call for which rank 0 may wait */

/* What rank 0 said is over: had rank 1 made its call by then? Without waiting it would not have. */
static void waited(struct rank *r, const char *rule) {
  say(r, rule, "%s", atomic_load(&called) ? "all" : "none");
}

static void call_late(struct rank *r) {
  if (r->me == 1) {
    usleep(50000);
    atomic_store(&called, 1);
  }
}

/* The first one-sided call waits for all ranks, later ones for none. */
static void case_signal(struct rank *r) {
  open_rank(r, false);
  meet();
  call_late(r);
  if (r->me == 0) {
    say(r, "signal.returns", "%d", ncclSignal(1, 0, 0, 0, r->comm, r->stream));
    say(r, "signal.state.later", "%d", later(r->comm));
    waited(r, "signal.waits");
    ncclSignal(1, 0, 0, 0, r->comm, r->stream);
    say(r, "signal.again.state.later", "%d", later(r->comm));
    meet();
  } else {
    ncclWaitSignal(1, &(ncclWaitSignalDesc_t){.opCnt = 1, .peer = 0}, r->comm, r->stream);
    later(r->comm);
    meet();
  }
  cudaStreamSynchronize(r->stream);
  drop_rank(r);
}

static void case_no_signal(struct rank *r) {
  open_rank(r, false);
  say(r, "nosym.signal.returns", "%d", ncclSignal(1 - r->me, 0, 0, 0, r->comm, r->stream));
  drop_rank(r);
}

static void case_suspend(struct rank *r) {
  open_rank(r, false);
  sum(r);
  later(r->comm);
  cudaStreamSynchronize(r->stream);
  say(r, "suspend.nothing.returns", "%d", ncclCommSuspend(r->comm, 0));
  meet();
  call_late(r);
  int e = ncclCommSuspend(r->comm, 1), s = later(r->comm);
  if (r->me == 0) {
    say(r, "suspend.returns", "%d", e);
    say(r, "suspend.state.later", "%d", s);
    waited(r, "suspend.waits");
  }
  meet();
  atomic_store(&called, 0);
  meet();
  call_late(r);
  e = ncclCommResume(r->comm);
  s = later(r->comm);
  if (r->me == 0) {
    say(r, "resume.returns", "%d", e);
    say(r, "resume.state.later", "%d", s);
    waited(r, "resume.waits");
  }
  say(r, "resume.operation.returns", "%d", sum(r));
  later(r->comm);
  cudaStreamSynchronize(r->stream);
  say(r, "resume.again.returns", "%d", ncclCommResume(r->comm));
  say(r, "resume.again.state.later", "%d", later(r->comm));
  drop_rank(r);
}

/* Nothing looks whether it is suspended. */
static void case_suspended(struct rank *r) {
  open_rank(r, false);
  sum(r);
  later(r->comm);
  cudaStreamSynchronize(r->stream);
  ncclCommSuspend(r->comm, 1);
  later(r->comm);
  if (r->me == 0) {
    say(r, "suspended.operation.returns", "%d", sum(r));
    say(r, "suspended.state.later", "%d", later(r->comm));
    say(r, "suspended.stream", "%d", cudaStreamSynchronize(r->stream));
  }
}

/* Parent and child have one memory manager, and cannot be suspended. */
static void case_shared(struct rank *r) {
  ncclComm_t child = NULL;
  ncclConfig_t c = config(r->blocking);
  c.splitShare = 1;
  use_gpu_of(r->me);
  ncclCommInitRankConfig(&r->comm, 2, r->id, r->me, &c);
  later(r->comm);
  meet();
  ncclCommSplit(r->comm, 0, r->me, &child, NULL);
  later(r->comm);
  say(r, "shared.suspend.returns", "%d", ncclCommSuspend(r->comm, 1));
  say(r, "shared.suspend.state", "%d", state(r->comm));
  say(r, "shared.child.suspend.returns", "%d", ncclCommSuspend(child, 1));
  say(r, "shared.resume.returns", "%d", ncclCommResume(r->comm));
  meet();
  ncclCommAbort(child);
  ncclCommAbort(r->comm);
}

static void case_registration(struct rank *r) {
  void *handle = r;
  open_rank(r, false);
  say(r, "register.returns", "%d", ncclCommRegister(r->comm, r->data, 4096, &handle));
  say(r, "register.handle", "%s", slot(handle, r));
  say(r, "deregister.returns", "%d", ncclCommDeregister(r->comm, handle));
  drop_rank(r);
}

static void case_redop(struct rank *r) {
  int op = -1;
  float factor = 2;
  open_rank(r, false);
  say(r, "redop.returns", "%d", ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32,
      ncclScalarHostImmediate, r->comm));
  say(r, "redop.destroy.returns", "%d", ncclRedOpDestroy(op, r->comm));
  say(r, "redop.destroy.again.returns", "%d", ncclRedOpDestroy(op, r->comm));
  say(r, "redop.state", "%d", state(r->comm));
  drop_rank(r);
}

/* What is refused, and what that does to the next operation. */
static void refused(struct rank *r, const char *prefix, int root, int type, bool grouped) {
  char rule[80];
  open_rank(r, false);
  if (grouped) {
    ncclGroupStart();
  }
  int e = ncclBroadcast(r->data, r->data, N, type, root, r->comm, r->stream);
  snprintf(rule, sizeof rule, "%s.returns", prefix);
  say(r, rule, "%d", e);
  if (grouped) {
    snprintf(rule, sizeof rule, "%s.end.returns", prefix);
    say(r, rule, "%d", ncclGroupEnd());
  }
  snprintf(rule, sizeof rule, "%s.state", prefix);
  say(r, rule, "%d", state(r->comm));
  usleep(20000);
  snprintf(rule, sizeof rule, "%s.state.later", prefix);
  say(r, rule, "%d", state(r->comm));
  snprintf(rule, sizeof rule, "%s.next.returns", prefix);
  say(r, rule, "%d", sum(r));
  snprintf(rule, sizeof rule, "%s.next.state", prefix);
  say(r, rule, "%d", later(r->comm));
  cudaStreamSynchronize(r->stream);
  close_rank(r, prefix);
}

static void case_bad_root(struct rank *r) { refused(r, "badroot", 7, ncclFloat32, false); }

static void case_bad_type(struct rank *r) { refused(r, "badtype", 0, 99, false); }

static void case_bad_in_group(struct rank *r) { refused(r, "badgroup", 7, ncclFloat32, true); }

static void case_revoke(struct rank *r) {
  open_rank(r, false);
  sum(r);
  later(r->comm);
  cudaStreamSynchronize(r->stream);
  meet();
  int e = ncclCommRevoke(r->comm, 0), s = state(r->comm);
  say(r, "revoke.returns", "%d", e);
  say(r, "revoke.state", "%d", s);
  say(r, "revoke.state.later", "%d", later(r->comm));
  say(r, "revoke.operation.returns", "%d", sum(r));
  say(r, "revoke.operation.state", "%d", state(r->comm));
  say(r, "revoke.again.returns", "%d", ncclCommRevoke(r->comm, 0));
  close_rank(r, "revoke");
}

/* Finalizing waits for the graph, which another thread destroys. */
static void *destroy_graph(void *arg) {
  usleep(500000);
  cudaGraphExecDestroy(arg);
  return NULL;
}

static void case_graph(struct rank *r) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  pthread_t other;
  open_rank(r, false);
  cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal);
  int e = sum(r), s = state(r->comm);
  later(r->comm);
  say(r, "graph.returns", "%d", e);
  say(r, "graph.state", "%d", s);
  say(r, "graph.capture.ends", "%d", cudaStreamEndCapture(r->stream, &graph));
  cudaGraphInstantiateWithFlags(&exec, graph, 0);
  cudaGraphLaunch(exec, r->stream);
  cudaStreamSynchronize(r->stream);
  cudaGraphDestroy(graph);
  meet();
  pthread_create(&other, NULL, destroy_graph, exec);
  e = ncclCommFinalize(r->comm);
  say(r, "graph.finalize.returns", "%d", e);
  usleep(50000);
  say(r, "graph.finalize.state", "%d", state(r->comm));
  pthread_join(other, NULL);
  say(r, "graph.finalize.state.later", "%d", later(r->comm));
  close_rank(r, "graph.again");
}

static void case_abort(struct rank *r) {
  open_rank(r, false);
  sum(r);
  later(r->comm);
  say(r, "abort.returns", "%d", ncclCommAbort(r->comm));
}

/* One rank: collectives are copies, and begin no job. */
static void case_alone(struct rank *r) {
  if (r->me == 1) {
    return;
  }
  ncclConfig_t c = config(r->blocking);
  cudaSetDevice(0);
  ncclCommInitRankConfig(&r->comm, 1, r->id, 0, &c);
  later(r->comm);
  cudaMalloc((void **)&r->data, 4096);
  cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking);
  say(r, "alone.returns", "%d", sum(r));
  say(r, "alone.state", "%d", state(r->comm));
  cudaStreamSynchronize(r->stream);
  say(r, "alone.destroy.returns", "%d", ncclCommDestroy(r->comm));
}

/* Both kinds in one group. */
static void case_mixed(struct rank *r) {
  if (r->me == 1) {
    return;
  }
  ncclComm_t other = NULL;
  ncclConfig_t one = config(r->blocking), two = config(!r->blocking);
  cudaSetDevice(0);
  ncclGroupStart();
  ncclCommInitRankConfig(&r->comm, 1, r->id, 0, &one);
  int e = ncclCommInitRankConfig(&other, 1, r->second, 0, &two);
  (void)e;
  say(r, "mixed.end.returns", "%d", ncclGroupEnd());
}

static const struct {
  const char *name;
  void (*run)(struct rank *r);
  const char *variable, *value;
} CASES[] = {{"init", case_init, NULL, NULL}, {"missing", case_missing, NULL, NULL},
    {"split", case_split, NULL, NULL}, {"busy", case_busy, NULL, NULL},
    {"shrink", case_shrink, NULL, NULL}, {"grow", case_grow, NULL, NULL}, {"window", case_window, NULL, NULL},
    {"nosym", case_no_symmetric_memory, "NCCL_CUMEM_ENABLE", "0"},
    {"nosignal", case_no_signal, "NCCL_CUMEM_ENABLE", "0"},
    {"plain", case_plain_window, NULL, NULL}, {"source", case_source, NULL, NULL},
    {"signal", case_signal, NULL, NULL}, {"suspend", case_suspend, NULL, NULL},
    {"suspended", case_suspended, NULL, NULL}, {"shared", case_shared, NULL, NULL},
    {"registration", case_registration, "NCCL_LOCAL_REGISTER", "0"},
    {"redop", case_redop, NULL, NULL}, {"badroot", case_bad_root, NULL, NULL},
    {"badtype", case_bad_type, NULL, NULL}, {"badgroup", case_bad_in_group, NULL, NULL},
    {"revoke", case_revoke, NULL, NULL}, {"graph", case_graph, NULL, NULL},
    {"abort", case_abort, NULL, NULL}, {"alone", case_alone, NULL, NULL},
    {"mixed", case_mixed, NULL, NULL}};

static void *rank_main(void *arg) {
  struct rank *r = ((void **)arg)[0];
  void (*run)(struct rank *) = *(void (**)(struct rank *))((void **)arg)[1];
  run(r);
  return NULL;
}

/* A process for each case: what a case leaves behind, or waits for, ends with it. */
static int run_case(size_t i, bool blocking) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (CASES[i].variable != NULL) {
      setenv(CASES[i].variable, CASES[i].value, 1);
    }
    struct rank ranks[2];
    pthread_t threads[2];
    void *args[2][2];
    memset(ranks, 0, sizeof ranks);
    pthread_barrier_init(&both, NULL, 2);
    ncclGetUniqueId(&ranks[0].id);
    ncclGetUniqueId(&ranks[0].second);
    for (int me = 0; me < 2; me++) {
      ranks[me] = ranks[0];
      ranks[me].me = me;
      ranks[me].blocking = blocking;
    }
    for (int me = 0; me < 2; me++) {
      args[me][0] = &ranks[me];
      args[me][1] = (void *)(uintptr_t)&CASES[i].run;
      pthread_create(&threads[me], NULL, rank_main, args[me]);
    }
    for (int me = 0; me < 2; me++) {
      pthread_join(threads[me], NULL);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (status != 0) {
    printf("%s.ends 0 %s %d\n", CASES[i].name, WIFSIGNALED(status) ? "signal" : "status",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  return status != 0;
}

int main(int argc, char **argv) {
  if (argc < 2 || (strcmp(argv[1], "0") != 0 && strcmp(argv[1], "1") != 0)) {
    fprintf(stderr, "usage: nccl_rules 0|1 [CASE...]\n");
    return 2;
  }
  int failed = 0;
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    bool wanted = argc == 2;
    for (int k = 2; k < argc; k++) {
      wanted |= strcmp(argv[k], CASES[i].name) == 0;
    }
    if (wanted) {
      failed |= run_case(i, argv[1][0] == '1');
    }
  }
  return failed;
}
