/*
 * A fake of NCCL on top of the fake of the CUDA runtime. README.md says how it differs
 * from the real one. Places such as "init.cc:422" are files and lines of NCCL 2.30.7 (src/).
 *
 * Ranks meet in a job: memory that all processes of a communicator map, with a place per rank. A
 * rank's operations run on its stream's thread. To run one, a rank writes what it wants into its
 * place and waits until all have; then each does its share, reading and writing the others' buffers
 * where they lie (the runtime's fake keeps them in memory that other processes can map); then all
 * wait for all once more. Waiting is by futex on a word per rank.
 */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "fake_floats.h"
#include "fake_internal.h"

/* Functions and types that are newer are left out, so that an old library can be imitated. */
#ifndef JCCL_FAKE_MAX_VERSION
#define JCCL_FAKE_MAX_VERSION 23007
#endif
#define HAS(version) (JCCL_FAKE_MAX_VERSION >= (version))

enum {
  MOST_RANKS = 64,
  MOST_WINDOWS = 64,
  BLOCK = 1024,
  PERSISTENT = 1 << 20,   /* device memory of a communicator */
  SUSPENDABLE = 3 << 20,  /* and what of it goes when it is suspended */
  WAIT_MS = 50,           /* how often who waits looks for dead ranks */
  /*
   * Of non-blocking communicators: a job is under way until its caller has looked at the state once,
   * if he does so in this time, and the making of a communicator or window takes at least MAKING_MS. With NCCL
   * both take longer than the call that began them: nobody may rely on a job being over by then.
   */
  LOOK_MS = 150,
  MAKING_MS = 30
};

static const uint64_t NOWHERE = UINT64_MAX;

/* ---- what ranks share */

enum function {
  REDUCE,
  BROADCAST,
  ALL_REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  ALL_TO_ALL,
  GATHER,
  SCATTER,
  SEND,
  RECV,
  PUT,
  SIGNAL,
  WAIT_SIGNAL
};

static const char *const NAMES[] = {"Reduce", "Broadcast", "AllReduce", "ReduceScatter",
    "AllGather", "AlltoAll", "Gather", "Scatter", "Send", "Recv", "PutSignal", "Signal",
    "WaitSignal"};

enum { PRE_MUL_SUM = ncclNumOps }; /* as an operation kind; handles count up from it */

/* What a rank wants of a collective. */
struct wish {
  int32_t function, type, op, root;
  uint64_t count;
  uint64_t scalar; /* float64's bits, float32's bits, or an integer */
  uint64_t send, recv; /* places in the rank's arena */
};

/* A message from one rank to another; there is one under way at a time. */
struct channel {
  _Atomic uint64_t posted, taken; /* numbers of messages */
  uint64_t at, bytes;
  _Atomic int wrong;
};

struct id {
  char magic[8];
  uint64_t random;
  uint64_t started;
  int32_t pid, fd;
};
_Static_assert(sizeof(struct id) <= sizeof(ncclUniqueId), "an id has 128 bytes");

/* What waits for all ranks by bootstrapBarrier; each kind is counted by itself. */
enum barrier { WINDOW_MADE, ONE_SIDED, SUSPENDED, RESUMED, BARRIERS };

/* How far a rank is with calls that several ranks make together and no stream runs. */
struct meeting {
  int32_t color, key;
  struct id id; /* of a new communicator, by its first rank */
  _Atomic uint64_t published;
};

struct place {
  _Atomic int state; /* 0: free, 1: being taken, 2: taken, 3: has mapped all, 4: left */
  _Atomic int aborted;
  int32_t device, version;
  struct jcf_process process;
  _Atomic uint32_t bell, waiting;
  _Atomic uint64_t came, went; /* numbers of collectives */
  struct wish wishes[2];
  _Atomic uint64_t met;
  struct meeting meetings[2], grow;
  struct id shrink; /* by the first of the ranks that stay */
  uint64_t shrink_key;
  _Atomic uint64_t shrinks[MOST_RANKS]; /* messages to each of them: bootstrap.cc:931 */
  _Atomic uint64_t barriers[BARRIERS];
};

struct shared_window {
  uint64_t at, size;
};

struct shared {
  char magic[8];
  uint64_t random;
  _Atomic int nranks, failed;
  struct place places[MOST_RANKS];
  struct channel channels[MOST_RANKS][MOST_RANKS]; /* from, to */
  _Atomic uint64_t signals[MOST_RANKS][MOST_RANKS]; /* from, to */
  struct shared_window windows[MOST_WINDOWS][MOST_RANKS];
};

/* ---- this process's part */

struct job {
  uint64_t random;
  struct shared *shared;
  int fd; /* in the process that made it, until all have joined */
  int uses;
  int members, ended;      /* communicators of this process that joined; that were given up */
  struct ncclComm *ending; /* those that were given up and wait for the last */
  struct job *next;
};

struct redop {
  bool taken;
  int type, residence;
  uint64_t scalar;
  const void *device_scalar;
};

struct jcf_window {
  ncclComm_t comm;
  void *ptr;
  size_t size;
  int number, flags;
  struct jcf_window *next;
};

struct registration {
  ncclComm_t comm;
  void *ptr;
  size_t size;
  struct registration *next;
};

struct launch;

struct ncclComm {
  atomic_int uses; /* 1 for the handle, 1 for each operation and task */
  int rank, nranks, device, version;
  ncclConfig_t config;
  char name[64], net[64];
  const char *name_at; /* where the caller keeps the name, as long as the communicator lives */
  struct job *job;
  struct shared *shared; /* NULL until it has joined */
  char *arenas[MOST_RANKS];
  atomic_int async;   /* ncclResult_t: ncclInProgress while a job runs */
  atomic_int proxy;   /* what went wrong behind the calls; seen where async is ncclSuccess */
  atomic_int looked;  /* somebody saw that the job is in progress */
  struct launch *gjob; /* of a non-blocking call, until its thread is joined; not atomic in NCCL */
  _Atomic(const char *) visitor; /* the call that is inside a non-blocking communicator */
  atomic_int graphs;  /* captured launches whose graph exists */
  atomic_int aborted; /* everything that waits gives up */
  atomic_int stopped; /* what is on streams gives up; not so aborted that splitting is over */
  atomic_int failing; /* an error was reported: what is on streams stays there */
  atomic_int running; /* batches on streams */
  atomic_int tasks;
  bool revoked, finalized, destroyed, joined, broken;
  bool suspended, accounted, checks_pointers;
  bool one_sided;       /* has made its first one-sided call: rmaCeState.initialized */
  atomic_int *managers; /* communicators that share the memory manager; NULL: this one alone */
  uint64_t collectives, barriers[BARRIERS];
  uint64_t sent[MOST_RANKS], received[MOST_RANKS], awaited[MOST_RANKS];
  uint64_t meetings, grows, shrinks[MOST_RANKS];
  bool id_made;
  struct jcf_dep last;
  struct redop *redops;
  int nredops;
  struct ncclComm *next, *next_ending;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* running or tasks of a communicator */
static struct ncclComm *comms;
static struct job *jobs;
static struct jcf_window *windows;
static struct registration *registrations;
static char global_error[512];
static int version = JCCL_FAKE_MAX_VERSION;
static bool several_ranks_a_device;

static void *need(void *p) {
  if (p == NULL) {
    fprintf(stderr, "jccl fake: the machine is out of memory\n");
    abort();
  }
  return p;
}

static bool is_on(const char *name) {
  const char *text = getenv(name);
  return text != NULL && *text != 0 && strcmp(text, "0") != 0;
}

__attribute__((constructor)) static void start(void) {
  int x = 0, y = 0, z = 0;
  const char *text = getenv("JCCL_FAKE_NCCL_VERSION");
  if (text != NULL && sscanf(text, "%d.%d.%d", &x, &y, &z) >= 2) {
    version = x <= 2 && y <= 8 ? x * 1000 + y * 100 + z : x * 10000 + y * 100 + z;
  }
  several_ranks_a_device = is_on("NCCL_MULTI_RANK_GPU_ENABLE") && version >= 23000;
  const char *mismatch = getenv("JCCL_FAKE_MISMATCH"), *death = getenv("JCCL_FAKE_DEATH");
  if (mismatch != NULL && strcmp(mismatch, "hang") == 0) {
    jccl_fake_mismatch_hangs(1);
  }
  if (death != NULL && strcmp(death, "spin") == 0) {
    jccl_fake_death_spins(1);
  }
  if (is_on("JCCL_FAKE_NOOP")) {
    jccl_fake_noop(1);
  }
}

const char *jccl_fake_name(void) { return "jccl fake of libnccl"; }

/* ---- errors */

static ncclResult_t error(ncclComm_t c, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Keeps the text for ncclGetLastError. */
static ncclResult_t error(ncclComm_t c, ncclResult_t result, const char *format, ...) {
  char text[480];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  pthread_mutex_lock(&lock);
  snprintf(global_error, sizeof global_error, "jccl fake: %s", text);
  pthread_mutex_unlock(&lock);
  (void)c; /* one text for the process, and never removed: debug.cc:35, init.cc:3445 */
  return result;
}

/* What NCCL answers with memory errors. */
static void die(int signal_, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void die(int signal_, const char *format, ...) {
  va_list args;
  fprintf(stderr, "jccl fake: ");
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fprintf(stderr, "\n");
  fflush(stderr);
  signal(signal_, SIG_DFL);
  raise(signal_);
  abort();
}

static ncclResult_t cuda_error(ncclComm_t c, cudaError_t e, const char *what) {
  return error(c, ncclUnhandledCudaError, "%s: CUDA failure %d '%s'", what, e,
      cudaGetErrorString(e));
}

/* An error that the communicator reports, and after which its operations do not complete. */
static void fail_later(ncclComm_t c, ncclResult_t result) {
  atomic_store(&c->failing, 1);
  atomic_store(&c->proxy, result); /* init.cc:3453 */
  pthread_mutex_lock(&lock);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static int rank_of(ncclComm_t comm);
static ncclComm_t visit(ncclComm_t comm, const char *what);
static void end_visit(ncclComm_t *visited);

#define ENTER(function, comm) \
  VISIT(comm, #function); \
  ENTER_FREELY(function, comm)

/* What any thread may call at any time. */
#define ENTER_FREELY(function, comm) \
  static struct jcf_fn fn_ = {.name = #function}; \
  struct jcf_hit hit; \
  jcf_enter(&fn_, rank_of(comm), &hit); \
  if (hit.hang) { \
    hang(comm); \
  } \
  if (hit.error != 0) { \
    return error(comm, hit.error, "%s: injected error %d", #function, hit.error); \
  }

/* ---- communicators by handle */

static bool listed(ncclComm_t comm) { /* with the lock */
  for (struct ncclComm *c = comms; c != NULL; c = c->next) {
    if (c == comm) {
      return true;
    }
  }
  return false;
}

static bool find(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  bool is = comm != NULL && listed(comm);
  pthread_mutex_unlock(&lock);
  return is;
}

static int rank_of(ncclComm_t comm) { return find(comm) ? comm->rank : -1; }

static void use_comm(ncclComm_t c) { atomic_fetch_add(&c->uses, 1); }

static void drop_job(struct job *j) { /* with the lock */
  if (--j->uses > 0) {
    return;
  }
  for (struct job **at = &jobs; *at != NULL; at = &(*at)->next) {
    if (*at == j) {
      *at = j->next;
      break;
    }
  }
  munmap(j->shared, sizeof *j->shared);
  free(j);
}

static void drop_comm(ncclComm_t c) {
  if (atomic_fetch_sub(&c->uses, 1) > 1) {
    return;
  }
  if (c->last.stream != NULL) {
    jcf_stream_done(c->last.stream);
  }
  pthread_mutex_lock(&lock);
  if (c->job != NULL) {
    drop_job(c->job);
  }
  pthread_mutex_unlock(&lock);
  if (c->managers != NULL && atomic_fetch_sub(c->managers, 1) == 1) {
    free(c->managers);
  }
  free(c->redops);
  free(c);
}

/* An injected hang: until the communicator is aborted or all are released. */
static void hang(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  bool known = comm != NULL && listed(comm);
  if (known) {
    use_comm(comm);
  }
  pthread_mutex_unlock(&lock);
  jcf_hang(known ? &comm->aborted : NULL);
  if (known) {
    drop_comm(comm);
  }
}

static void complete(struct launch *l);

/*
 * The state of a communicator. That is no mere look: with the first that shows the end of a
 * non-blocking job, its thread is joined and the job freed (init.cc:3477, group.cc:889 and 85).
 */
static int state_of(ncclComm_t c) {
  int state = atomic_load(&c->async);
  if (state == ncclSuccess) {
    state = atomic_load(&c->proxy);
  }
  if (state == ncclSuccess && c->gjob != NULL) {
    struct launch *l = c->gjob;
    c->gjob = NULL;
    complete(l);
  }
  return state;
}

static int look(ncclComm_t c) {
  int state = state_of(c);
  if (state == ncclInProgress) {
    atomic_store(&c->looked, 1);
  }
  return state;
}

/*
 * The communicator is there, and no job of it is under way or has failed: every call looks at the
 * state, and so may join the job (ncclCommEnsureReady, init.cc:422-439).
 */
static ncclResult_t check_ready(ncclComm_t comm, const char *what) {
  if (comm == NULL) {
    return error(NULL, ncclInvalidArgument, "%s: the communicator is NULL", what);
  }
  if (!find(comm)) {
    return error(NULL, ncclInvalidArgument, "%s: %p is no communicator", what, (void *)comm);
  }
  int state = look(comm);
  if (state == ncclInProgress) {
    return error(comm, ncclInvalidArgument,
        "%s: Attempt to use communicator before the previous operation returned ncclSuccess", what);
  }
  if (comm->shared == NULL && state == ncclSuccess) {
    return error(comm, ncclInvalidArgument, "%s: the communicator is not initialized", what);
  }
  return state;
}

/*
 * An error of a call. In a non-blocking communicator it stays for ever (enqueue.cc:3170,
 * init.cc:2820); a blocking one does not keep it.
 */
static ncclResult_t refuse(ncclComm_t c, ncclResult_t result) {
  if (c != NULL && find(c) && c->config.blocking == 0) {
    atomic_store(&c->async, result);
  }
  return result;
}

/*
 * Two threads inside one non-blocking communicator: both may find the job's end, join its thread
 * and free it, in any call (init.cc:3477, enqueue.cc:3167). NCCL then crashes or hangs, now and then.
 * Here it ends the process always. ncclCommAbort is made for another thread.
 */
static ncclComm_t visit(ncclComm_t comm, const char *what) {
  pthread_mutex_lock(&lock);
  bool known = comm != NULL && listed(comm) && comm->config.blocking == 0;
  if (known) {
    use_comm(comm);
  }
  pthread_mutex_unlock(&lock);
  if (!known) {
    return NULL;
  }
  const char *other = NULL;
  if (!atomic_compare_exchange_strong(&comm->visitor, &other, what)) {
    die(SIGABRT,
        "%s while another thread is in %s of the same non-blocking communicator (rank %d): NCCL "
        "joins and frees the job of the last call in both",
        what, other, comm->rank);
  }
  return comm;
}

static void end_visit(ncclComm_t *visited) {
  if (*visited != NULL) {
    atomic_store(&(*visited)->visitor, NULL);
    drop_comm(*visited);
  }
}

#define VISIT(comm, what) \
  ncclComm_t visited_ __attribute__((cleanup(end_visit), unused)) = visit(comm, what)

/* ---- jobs: how ranks find each other */

static struct job *find_job(uint64_t random) { /* with the lock; counts a use */
  for (struct job *j = jobs; j != NULL; j = j->next) {
    if (j->random == random) {
      j->uses++;
      return j;
    }
  }
  return NULL;
}

static struct job *add_job(uint64_t random, struct shared *shared, int fd) { /* with the lock */
  struct job *j = need(calloc(1, sizeof *j));
  j->random = random;
  j->shared = shared;
  j->fd = fd;
  j->uses = 1;
  j->next = jobs;
  jobs = j;
  return j;
}

static ncclResult_t make_job(struct id *id) {
  struct jcf_process self;
  jcf_self(&self);
  memset(id, 0, sizeof *id);
  if (getrandom(&id->random, sizeof id->random, 0) != (ssize_t)sizeof id->random) {
    return error(NULL, ncclSystemError, "no random number for an id");
  }
  int fd = memfd_create("jccl-fake-job", MFD_CLOEXEC);
  void *map = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, sizeof(struct shared)) == 0) {
    map = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (map == MAP_FAILED) {
    if (fd >= 0) {
      close(fd);
    }
    return error(NULL, ncclSystemError, "no memory for a job");
  }
  struct shared *shared = map;
  memcpy(shared->magic, "jcclfak1", 8);
  shared->random = id->random;
  memcpy(id->magic, "jcclfak1", 8);
  id->pid = self.pid;
  id->started = self.started;
  id->fd = fd;
  pthread_mutex_lock(&lock);
  add_job(id->random, shared, fd);
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_JOBS, 1);
  return ncclSuccess;
}

/* The job of an id, which another process may have made. */
static ncclResult_t open_job(const struct id *id, struct job **out) {
  if (memcmp(id->magic, "jcclfak1", 8) != 0) {
    return error(NULL, ncclInvalidArgument, "the unique id was not made by ncclGetUniqueId");
  }
  pthread_mutex_lock(&lock);
  *out = find_job(id->random);
  pthread_mutex_unlock(&lock);
  if (*out != NULL) {
    return ncclSuccess;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", id->pid, id->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void *map = fd < 0
      ? MAP_FAILED
      : mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
  if (fd >= 0) {
    close(fd);
  }
  struct shared *shared = map;
  if (map == MAP_FAILED || size != (off_t)sizeof *shared || shared->random != id->random) {
    if (map != MAP_FAILED) {
      munmap(map, sizeof *shared);
    }
    return error(NULL, ncclSystemError,
        "process %d, which made the unique id, is gone or has all its ranks", id->pid);
  }
  pthread_mutex_lock(&lock);
  *out = find_job(id->random);
  if (*out == NULL) {
    *out = add_job(id->random, shared, -1);
    shared = NULL;
  }
  pthread_mutex_unlock(&lock);
  if (shared != NULL) {
    munmap(shared, sizeof *shared);
  }
  return ncclSuccess;
}

/* All ranks are there: nobody else will ask for the id. */
static void close_job(struct job *j) {
  pthread_mutex_lock(&lock);
  if (j->fd >= 0) {
    close(j->fd);
    j->fd = -1;
    drop_job(j);
    jcf_live(JCF_JOBS, -1);
  }
  pthread_mutex_unlock(&lock);
}

static void ring(struct shared *s, int rank) {
  struct place *p = &s->places[rank];
  atomic_fetch_add(&p->bell, 1);
  if (atomic_load(&p->waiting) > 0) {
    jcf_futex_wake(&p->bell);
  }
}

static void ring_all(struct shared *s, int nranks) {
  for (int r = 0; r < nranks; r++) {
    ring(s, r);
  }
}

static uint32_t bell_of(struct shared *s, int rank) {
  return atomic_load(&s->places[rank].bell);
}

static void wait_bell(struct shared *s, int rank, uint32_t value, int ms) {
  struct place *p = &s->places[rank];
  atomic_fetch_add(&p->waiting, 1);
  if (atomic_load(&p->bell) == value) {
    jcf_futex_wait(&p->bell, value, ms);
  }
  atomic_fetch_sub(&p->waiting, 1);
}

/* Whether another rank was there and is there no more. */
static bool is_lost(ncclComm_t c, struct shared *s, int rank) {
  struct place *p = &s->places[rank];
  int state = atomic_load(&p->state);
  return rank != c->rank && state >= 2
      && (atomic_load(&p->aborted) != 0 || state == 4 || !jcf_alive(&p->process));
}

/* ---- tasks: what a call does off the streams, now, at the end of a group, or on a thread */

struct task {
  ncclResult_t (*run)(struct task *t);
  ncclComm_t comm;   /* whose state it is */
  ncclComm_t parent; /* of one that grows */
  ncclComm_t child;  /* what it makes */
  ncclComm_t *out;
  ncclWindow_t *win_out, window;
  int nranks, rank, color, key, flags, excluded[MOST_RANKS], nexcluded;
  bool has_id, owns_child;
  bool grown; /* the slot was written at once, and is written once more */
  bool makes; /* a communicator or window */
  struct id id;
  void *ptr;
  size_t size;
  struct jcf_hit hit;
  ncclResult_t result;
  struct task *next;
};

/* The name stays where the caller has it: only its address is kept (init.cc:2442). */
static void check_name(ncclComm_t c) {
  if (c->name_at != NULL && strncmp(c->name_at, c->name, sizeof c->name - 1) != 0) {
    die(SIGABRT,
        "the memory of ncclConfig_t.commName \"%s\" (rank %d) holds something else by now; it has to "
        "live as long as the communicator",
        c->name, c->rank);
  }
}

static ncclResult_t given_up(ncclComm_t c, const char *what) {
  return error(c, ncclInternalError, "%s: aborted", what);
}

/* Waits until all ranks are in a state at least; sees what went wrong at others. */
static ncclResult_t wait_state(ncclComm_t c, struct shared *s, int state, atomic_int *parent) {
  int passes = 0;
  for (;;) {
    uint32_t bell = bell_of(s, c->rank);
    int lost = -1; /* asked first: what a rank did before it went counts */
    for (int r = 0; r < c->nranks && passes > 0 && lost < 0; r++) {
      lost = is_lost(c, s, r) ? r : -1;
    }
    passes++;
    int there = 0;
    for (int r = 0; r < c->nranks; r++) {
      there += atomic_load(&s->places[r].state) >= state;
    }
    if (atomic_load(&s->failed) != 0) {
      /*
       * What happened there is told there alone: NCCL sees a connection end. But a misuse, such as
       * two ranks on one device, all ranks see for themselves.
       */
      int told = atomic_load(&s->failed) == ncclInvalidUsage ? ncclInvalidUsage : ncclRemoteError;
      return error(c, told, "initialization failed on another rank");
    }
    if (there == c->nranks) {
      return ncclSuccess;
    }
    if (atomic_load(&c->aborted) != 0 || (parent != NULL && atomic_load(parent) != 0)) {
      return given_up(c, "initialization");
    }
    if (lost >= 0) {
      return error(c, ncclRemoteError, "rank %d was lost during initialization", lost);
    }
    wait_bell(s, c->rank, bell, WAIT_MS);
  }
}

static ncclResult_t fail_job(ncclComm_t c, struct shared *s, ncclResult_t result) {
  int before = 0;
  atomic_compare_exchange_strong(&s->failed, &before, result);
  ring_all(s, c->nranks);
  return result;
}

/* Joins a communicator: c has its rank and device. */
static ncclResult_t join(ncclComm_t c, const struct id *id, atomic_int *parent) {
  struct job *j;
  ncclResult_t result = open_job(id, &j);
  if (result != ncclSuccess) {
    return result;
  }
  struct shared *s = j->shared;
  struct place *p = &s->places[c->rank];
  pthread_mutex_lock(&lock);
  c->job = j;
  pthread_mutex_unlock(&lock);
  int nranks = 0, state = 0;
  if (!atomic_compare_exchange_strong(&s->nranks, &nranks, c->nranks) && nranks != c->nranks) {
    return error(c, fail_job(c, s, ncclInvalidUsage),
        "rank %d says that there are %d ranks, another says %d", c->rank, c->nranks, nranks);
  }
  if (!atomic_compare_exchange_strong(&p->state, &state, 1)) {
    return error(c, fail_job(c, s, ncclInvalidUsage), "rank %d joins twice", c->rank);
  }
  p->device = c->device;
  p->version = c->version;
  jcf_self(&p->process);
  if (!jcf_account(c->device, PERSISTENT + SUSPENDABLE)) {
    atomic_store(&p->state, 2);
    fail_job(c, s, ncclUnhandledCudaError);
    return cuda_error(c, cudaErrorMemoryAllocation, "initialization");
  }
  c->accounted = true;
  atomic_store(&p->state, 2);
  ring_all(s, c->nranks);
  result = wait_state(c, s, 2, parent);
  for (int r = 0; r < c->nranks && result == ncclSuccess; r++) {
    struct place *other = &s->places[r];
    if (other->version != c->version) {
      result = error(c, ncclInvalidUsage,
          "Mismatched NCCL version detected: rank %d has %d, rank %d has %d", c->rank, c->version,
          r, other->version);
    } else if (r != c->rank && other->device == c->device && !several_ranks_a_device) {
      result = error(c, ncclInvalidUsage,
          "Duplicate GPU detected: rank %d and rank %d both on device %d", c->rank, r, c->device);
    } else if ((c->arenas[r] = jcf_map(&other->process)) == NULL) {
      result = error(c, ncclSystemError, "no access to the memory of process %d, rank %d",
          other->process.pid, r);
    }
  }
  if (result == ncclSuccess) {
    pthread_mutex_lock(&lock);
    j->members++; /* before anybody can have it whole, and destroy it */
    c->joined = true;
    pthread_mutex_unlock(&lock);
    atomic_store(&p->state, 3);
    ring_all(s, c->nranks);
    result = wait_state(c, s, 3, parent);
  } else if (result != ncclInternalError) {
    fail_job(c, s, result);
  }
  close_job(j);
  if (result == ncclSuccess) {
    pthread_mutex_lock(&lock);
    c->shared = s;
    pthread_mutex_unlock(&lock);
  }
  return result;
}

static void leave(ncclComm_t c, bool aborted) {
  check_name(c);
  pthread_mutex_lock(&lock);
  struct shared *s = c->job == NULL ? NULL : c->job->shared;
  pthread_mutex_unlock(&lock);
  if (c->accounted) {
    jcf_account(c->device, -(int64_t)(c->suspended ? PERSISTENT : PERSISTENT + SUSPENDABLE));
    c->accounted = false;
  }
  if (s != NULL && c->shared != NULL) {
    atomic_store(&s->places[c->rank].aborted, aborted);
    atomic_store(&s->places[c->rank].state, 4);
    ring_all(s, c->nranks);
  } else if (s != NULL) {
    int before = 0;
    atomic_store(&s->places[c->rank].aborted, 1);
    atomic_compare_exchange_strong(&s->failed, &before, ncclRemoteError);
    ring_all(s, c->nranks);
    close_job(c->job);
  }
}

/* ---- configuration */

static const struct {
  const char *name;
  size_t at;
  int since; /* the field is read from structs and by libraries of this version */
  int least, most;
  int otherwise;
} FIELDS[] = {
#define FIELD(name, since, least, most, otherwise) \
  {#name, offsetof(ncclConfig_t, name), since, least, most, otherwise}
    FIELD(blocking, 21400, 0, 1, 1), FIELD(cgaClusterSize, 21700, 0, 8, 4),
    FIELD(minCTAs, 21700, 1, INT_MAX, 1), FIELD(maxCTAs, 21700, 1, INT_MAX, 64),
    FIELD(splitShare, 21700, 0, 1, 0), FIELD(trafficClass, 22500, 0, INT_MAX, INT_MIN),
    FIELD(collnetEnable, 22700, 0, 1, 0), FIELD(CTAPolicy, 22700, 0, 3, 0),
    FIELD(shrinkShare, 22700, 0, 1, 0), FIELD(nvlsCTAs, 22700, 1, INT_MAX, INT_MIN),
    FIELD(nChannelsPerNetPeer, 22800, 1, INT_MAX, INT_MIN),
    FIELD(nvlinkCentricSched, 22800, 0, 1, 0), FIELD(graphUsageMode, 22900, 0, 2, 2),
    FIELD(numRmaCtx, 22900, 1, INT_MAX, 1), FIELD(maxP2pPeers, 23000, 1, INT_MAX, INT_MIN),
    FIELD(graphStreamOrdering, 23005, 0, INT_MAX, INT_MIN)};
enum { NFIELDS = sizeof FIELDS / sizeof *FIELDS };

static int *field(ncclConfig_t *config, int i) { return (int *)((char *)config + FIELDS[i].at); }

/* How much of the struct this version of the library knows. */
static size_t own_size(void) {
  static const struct {
    int since;
    size_t size;
  } SIZES[] = {{23005, sizeof(ncclConfig_t)},
      {23000, offsetof(ncclConfig_t, graphStreamOrdering)},
      {22900, offsetof(ncclConfig_t, maxP2pPeers)},
      {22800, offsetof(ncclConfig_t, graphUsageMode)},
      {22700, offsetof(ncclConfig_t, nChannelsPerNetPeer)},
      {22500, offsetof(ncclConfig_t, commName)},
      {21800, offsetof(ncclConfig_t, trafficClass)},
      {21700, offsetof(ncclConfig_t, splitShare)},
      {21400, offsetof(ncclConfig_t, cgaClusterSize)}};
  for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
    if (version >= SIZES[i].since) {
      return SIZES[i].size;
    }
  }
  return offsetof(ncclConfig_t, cgaClusterSize);
}

static ncclResult_t set_config(ncclComm_t c, const ncclConfig_t *given, ncclComm_t parent) {
  ncclConfig_t config;
  memset(&config, 0, sizeof config);
  for (int i = 0; i < NFIELDS; i++) {
    *field(&config, i) = parent != NULL ? *field(&parent->config, i) : INT_MIN;
  }
  if (parent != NULL) {
    memcpy(c->name, parent->name, sizeof c->name);
    c->name_at = parent->name_at;
    memcpy(c->net, parent->net, sizeof c->net);
  }
  if (given != NULL) {
    size_t size;
    memcpy(&size, &given->size, sizeof size);
    if (size < offsetof(ncclConfig_t, cgaClusterSize) || size > 4096
        || given->magic != 0xcafebeef) {
      return error(c, ncclInvalidArgument, "ncclConfig_t was not initialized");
    }
    ncclConfig_t read;
    memset(&read, 0, sizeof read);
    memcpy(&read, given, size < own_size() ? size : own_size());
    bool old = given->version < 21700;
    for (int i = 0; i < NFIELDS; i++) {
      bool known = (int)read.version >= FIELDS[i].since && version >= FIELDS[i].since
          && FIELDS[i].at + sizeof(int) <= (size < own_size() ? size : own_size());
      int value = known ? *field(&read, i) : INT_MIN;
      if (known && i == 0 && value == INT_MIN && (old || version < 21700)) {
        return error(c, ncclInvalidArgument, "ncclConfig_t.blocking has to be 0 or 1");
      }
      if (value != INT_MIN && (value < FIELDS[i].least || value > FIELDS[i].most)) {
        return error(c, ncclInvalidArgument, "ncclConfig_t.%s cannot be %d", FIELDS[i].name,
            value);
      }
      *field(&config, i) = value;
    }
    if (config.minCTAs != INT_MIN && config.maxCTAs != INT_MIN
        && config.minCTAs > config.maxCTAs) {
      return error(c, ncclInvalidArgument, "ncclConfig_t: minCTAs %d is above maxCTAs %d",
          config.minCTAs, config.maxCTAs);
    }
    const char *name = read.version >= 22700 && version >= 22700 ? read.commName : NULL;
    const char *net = read.version >= 21700 && version >= 21700 ? read.netName : NULL;
    snprintf(c->name, sizeof c->name, "%s", name == NULL ? "" : name);
    c->name_at = name;
    snprintf(c->net, sizeof c->net, "%s", net == NULL ? "" : net);
  }
  for (int i = 0; i < NFIELDS; i++) {
    if (*field(&config, i) == INT_MIN) {
      *field(&config, i) = FIELDS[i].otherwise;
    }
  }
  c->config = config;
  if (getenv("NCCL_COMM_BLOCKING") != NULL) { /* init.cc:1999, also of children */
    c->config.blocking = is_on("NCCL_COMM_BLOCKING");
  }
  const char *mode = getenv("NCCL_CHECK_MODE"); /* init.cc:2226-2239 */
  c->checks_pointers = is_on("NCCL_CHECK_POINTERS")
      || (mode != NULL && (strcasecmp(mode, "DEBUG_LOCAL") == 0
          || strcasecmp(mode, "DEBUG_GLOBAL") == 0));
  return ncclSuccess;
}

int jccl_fake_config(void *comm, const char *name) {
  int value = INT_MIN;
  pthread_mutex_lock(&lock);
  if (listed(comm)) {
    ncclComm_t c = comm;
    for (int i = 0; i < NFIELDS; i++) {
      if (strcmp(name, FIELDS[i].name) == 0) {
        value = *field(&c->config, i);
      }
    }
    if (strncmp(name, "commName=", 9) == 0) {
      value = strcmp(c->name, name + 9) == 0;
    } else if (strncmp(name, "netName=", 8) == 0) {
      value = strcmp(c->net, name + 8) == 0;
    }
  }
  pthread_mutex_unlock(&lock);
  return value;
}

static ncclComm_t new_comm(int device) {
  ncclComm_t c = need(calloc(1, sizeof *c));
  atomic_store(&c->uses, 1);
  c->device = device;
  c->version = version;
  return c;
}

static void list_comm(ncclComm_t c) {
  pthread_mutex_lock(&lock);
  c->next = comms;
  comms = c;
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_COMMS, 1);
}

/* Takes the handle away from its owner. */
static bool unlist_comm(ncclComm_t c) {
  pthread_mutex_lock(&lock);
  bool was = false;
  for (struct ncclComm **at = &comms; *at != NULL; at = &(*at)->next) {
    if (*at == c) {
      *at = c->next;
      was = true;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  return was;
}

/* ---- numbers */

static const int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* To float8: what is out of range becomes the largest finite value. */
static uint8_t to_eighth(float f, int fraction_bits, int bias, uint32_t most) {
  uint32_t bits = float_to_bits(f);
  uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return (uint8_t)(sign | 0x7f);
  }
  uint32_t code = narrow(magnitude, fraction_bits, bias);
  return (uint8_t)(sign | (code > most ? most : code));
}

static float e4m3[256], e5m2[256];

__attribute__((constructor)) static void make_tables(void) {
  for (int code = 0; code < 256; code++) {
    float sign = code < 128 ? 1 : -1;
    int e = code >> 3 & 15, f = code & 7;
    e4m3[code] = e == 15 && f == 7 ? NAN
        : sign * (e == 0 ? ldexpf((float)f, -9) : ldexpf((float)(8 + f), e - 10));
    e = code >> 2 & 31, f = code & 3;
    e5m2[code] = e == 31 ? (f == 0 ? sign * INFINITY : NAN)
        : sign * (e == 0 ? ldexpf((float)f, -16) : ldexpf((float)(4 + f), e - 17));
  }
}

typedef float block_float __attribute__((may_alias));
typedef uint16_t block_short __attribute__((may_alias));

static void widen(block_float *out, const void *in, int type, size_t n) {
  const block_short *shorts = in;
  const uint8_t *bytes = in;
  for (size_t i = 0; i < n; i++) {
    switch (type) {
      case ncclFloat16: out[i] = from_half(shorts[i]); break;
      case ncclBfloat16: out[i] = bits_to_float((uint32_t)shorts[i] << 16); break;
      case ncclFloat8e4m3: out[i] = e4m3[bytes[i]]; break;
      default: out[i] = e5m2[bytes[i]];
    }
  }
}

static void round_all(void *out, const block_float *in, int type, size_t n) {
  block_short *shorts = out;
  uint8_t *bytes = out;
  for (size_t i = 0; i < n; i++) {
    switch (type) {
      case ncclFloat16: shorts[i] = to_half(in[i]); break;
      case ncclBfloat16: shorts[i] = to_bfloat(in[i]); break;
      case ncclFloat8e4m3: bytes[i] = to_eighth(in[i], 3, 7, 0x7e); break;
      default: bytes[i] = to_eighth(in[i], 2, 15, 0x7b);
    }
  }
}

/*
 * Per element type: combine a block into what was combined so far, scale it, divide it. Integers
 * wrap, so sums and products are those of the unsigned type U. Minimum and maximum are NaN only where
 * both are (fminf, __hmin: reduce_kernel.h:422 ff.), and order -0 below +0. Blocks of all types share
 * memory, hence may_alias.
 */
#define INTEGER(name, T, U) \
  typedef T any_##name __attribute__((may_alias)); \
  static void combine_##name(any_##name *a, const any_##name *b, int op, size_t n) { \
    for (size_t i = 0; i < n; i++) { \
      switch (op) { \
        case ncclProd: a[i] = (T)((U)a[i] * (U)b[i]); break; \
        case ncclMax: a[i] = a[i] > b[i] ? a[i] : b[i]; break; \
        case ncclMin: a[i] = a[i] < b[i] ? a[i] : b[i]; break; \
        default: a[i] = (T)((U)a[i] + (U)b[i]); \
      } \
    } \
  } \
  static void scale_##name(any_##name *a, uint64_t scalar, size_t n) { \
    for (size_t i = 0; i < n; i++) { \
      a[i] = (T)((U)a[i] * (U)scalar); \
    } \
  } \
  static void divide_##name(any_##name *a, int by, size_t n) { \
    for (size_t i = 0; i < n; i++) { \
      a[i] = (T)(a[i] / (T)by); \
    } \
  }

INTEGER(int8, int8_t, uint32_t)
INTEGER(uint8, uint8_t, uint32_t)
INTEGER(int32, int32_t, uint32_t)
INTEGER(uint32, uint32_t, uint32_t)
INTEGER(int64, int64_t, uint64_t)
INTEGER(uint64, uint64_t, uint64_t)

#define FLOATING(name, T) \
  typedef T any_##name __attribute__((may_alias)); \
  static T least_##name(T a, T b) { \
    return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b; \
  } \
  static T most_##name(T a, T b) { \
    return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b; \
  } \
  static void combine_##name(any_##name *a, const any_##name *b, int op, size_t n) { \
    for (size_t i = 0; i < n; i++) { \
      switch (op) { \
        case ncclProd: a[i] *= b[i]; break; \
        case ncclMax: a[i] = most_##name(a[i], b[i]); break; \
        case ncclMin: a[i] = least_##name(a[i], b[i]); break; \
        default: a[i] += b[i]; \
      } \
    } \
  } \
  static void scale_##name(any_##name *a, uint64_t scalar, size_t n) { \
    T factor; \
    memcpy(&factor, &scalar, sizeof factor); \
    for (size_t i = 0; i < n; i++) { \
      a[i] *= factor; \
    } \
  } \
  static void divide_##name(any_##name *a, int by, size_t n) { \
    for (size_t i = 0; i < n; i++) { \
      a[i] /= (T)by; \
    } \
  }

FLOATING(float, float)
FLOATING(double, double)

static bool is_narrow(int type) {
  return type == ncclFloat16 || type == ncclBfloat16 || type >= ncclFloat8e4m3;
}

#define OF_TYPE(type, call) \
  switch (type) { \
    case ncclInt8: call(int8); break; \
    case ncclUint8: call(uint8); break; \
    case ncclInt32: call(int32); break; \
    case ncclUint32: call(uint32); break; \
    case ncclInt64: call(int64); break; \
    case ncclUint64: call(uint64); break; \
    case ncclFloat64: call(double); break; \
    default: call(float); \
  }

static bool is_floating(int type) {
  return is_narrow(type) || type == ncclFloat32 || type == ncclFloat64;
}

/* What an average multiplies by: 1 / n in the type (enqueue.cc:2538 ff.). */
static uint64_t share(int type, int n) {
  if (type == ncclFloat64) {
    double x = 1.0 / n;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  block_float x = (float)(1.0 / n);
  if (is_narrow(type)) {
    uint32_t rounded[1];
    round_all(rounded, &x, type, 1);
    widen(&x, rounded, type, 1);
  }
  return float_to_bits(x);
}

/* Partial results of narrow types are rounded to them: reduce_kernel.h:424 ff., 718 ff. */
static void round_to(int type, double *numbers, size_t m) {
  double narrow_ones[BLOCK / 4];
  if (is_narrow(type)) {
    round_all(narrow_ones, (const block_float *)numbers, type, m);
    widen((block_float *)numbers, narrow_ones, type, m);
  }
}

/* Reduces elements from to to of all sources, in their order, into all targets. */
static void reduce(int type, int op, const char *const *sources, const uint64_t *scalars, int n,
    char *const *targets, int ntargets, size_t from, size_t to) {
  double sum[BLOCK], next[BLOCK], narrow_ones[BLOCK / 4];
  size_t size = (size_t)SIZES[type];
  for (size_t at = from; at < to; at += BLOCK) {
    size_t m = to - at < BLOCK ? to - at : BLOCK;
    for (int k = 0; k < n; k++) {
      double *into = k == 0 ? sum : next;
      if (is_narrow(type)) {
        memcpy(narrow_ones, sources[k] + at * size, m * size); /* it may not be aligned */
        widen((block_float *)into, narrow_ones, type, m);
      } else {
        memcpy(into, sources[k] + at * size, m * size);
      }
      if (op == PRE_MUL_SUM || (op == ncclAvg && n > 1 && is_floating(type))) {
        uint64_t factor = op == PRE_MUL_SUM ? scalars[k] : share(type, n);
#define SCALE(name) scale_##name((any_##name *)into, factor, m)
        OF_TYPE(type, SCALE)
        round_to(type, into, m);
      }
      if (k > 0) {
#define COMBINE(name) combine_##name((any_##name *)sum, (const any_##name *)next, op, m)
        OF_TYPE(type, COMBINE)
        round_to(type, sum, m);
      }
    }
    if (op == ncclAvg && n > 1 && !is_floating(type)) {
#define DIVIDE(name) divide_##name((any_##name *)sum, n, m)
      OF_TYPE(type, DIVIDE)
    }
    const void *result = sum;
    if (is_narrow(type)) {
      round_all(narrow_ones, (const block_float *)sum, type, m);
      result = narrow_ones;
    }
    for (int t = 0; t < ntargets; t++) {
      memcpy(targets[t] + at * size, result, m * size);
    }
  }
}

/* ---- operations */

struct operation {
  enum function function;
  ncclComm_t comm;
  struct jcf_stream *stream;
  const void *send;
  void *recv;
  size_t count;
  int type, op, root; /* root: or the peer */
  uint64_t scalar;
  const void *device_scalar;
  int window; /* number of a window */
  uint64_t offset;
  int nwaits;
  ncclWaitSignalDesc_t *waits;
  bool faults; /* a buffer is none */
  struct jcf_hit hit;
  /* set when it is launched */
  uint64_t number; /* of the collective, or of the message */
  /* used when it runs */
  int step;
  void *send_copy, *recv_copy;
};

/* What a group gives to one stream: operations that go on together. */
struct batch {
  atomic_int uses;
  bool captured;
  int n;
  struct operation *ops;
};

static size_t send_bytes(const struct operation *o) {
  size_t bytes = o->count * (size_t)SIZES[o->type];
  size_t n = (size_t)o->comm->nranks;
  bool root = o->comm->rank == o->root;
  switch (o->function) {
    case REDUCE_SCATTER:
    case ALL_TO_ALL: return bytes * n;
    case SCATTER: return root ? bytes * n : 0;
    case BROADCAST: return root ? bytes : 0;
    case RECV:
    case SIGNAL:
    case WAIT_SIGNAL: return 0;
    default: return bytes;
  }
}

static size_t recv_bytes(const struct operation *o) {
  size_t bytes = o->count * (size_t)SIZES[o->type];
  size_t n = (size_t)o->comm->nranks;
  bool root = o->comm->rank == o->root;
  switch (o->function) {
    case ALL_GATHER:
    case ALL_TO_ALL: return bytes * n;
    case GATHER: return root ? bytes * n : 0;
    case REDUCE: return root ? bytes : 0;
    case SEND:
    case PUT:
    case SIGNAL:
    case WAIT_SIGNAL: return 0;
    default: return bytes;
  }
}

/* Where others find memory: itself, or a copy if they cannot reach it. */
static uint64_t reachable(const void *ptr, size_t bytes, void **copy, bool read) {
  if (bytes == 0) {
    return NOWHERE;
  }
  struct jcf_memory m = jcf_memory_of(ptr);
  if (m.mappable) {
    return m.offset;
  }
  *copy = need(jcf_scratch(bytes));
  if (read) {
    memcpy(*copy, ptr, bytes);
  }
  return jcf_memory_of(*copy).offset;
}

static char *at(ncclComm_t c, int rank, uint64_t place) {
  return place == NOWHERE ? NULL : c->arenas[rank] + place;
}

static void publish(struct operation *o) {
  ncclComm_t c = o->comm;
  struct wish *w = &c->shared->places[c->rank].wishes[o->number % 2];
  size_t in = send_bytes(o), out = recv_bytes(o);
  uint64_t scalar = o->scalar;
  if (o->device_scalar != NULL) {
    scalar = 0;
    memcpy(&scalar, jcf_stored(o->device_scalar), (size_t)SIZES[o->type]);
    if (is_narrow(o->type)) {
      float f;
      widen(&f, &scalar, o->type, 1);
      scalar = float_to_bits(f);
    }
  }
  *w = (struct wish){(int32_t)o->function, o->type, o->op, o->root, o->count, scalar,
      reachable(o->send, in, &o->send_copy, true), 0};
  /* In place the two are one, also as a copy. */
  uintptr_t apart = (uintptr_t)o->recv - (uintptr_t)o->send;
  if (o->send_copy != NULL && out > 0 && apart < in && out <= in - apart) {
    w->recv = w->send + apart;
  } else {
    w->recv = reachable(o->recv, out, &o->recv_copy, true);
    uintptr_t back = (uintptr_t)o->send - (uintptr_t)o->recv;
    if (o->recv_copy != NULL && in > 0 && back < out && in <= out - back) {
      w->send = w->recv + back;
    }
  }
}

/* Brings results in copies to where they belong. */
static void finish_copies(struct operation *o) {
  size_t in = send_bytes(o), out = recv_bytes(o);
  uintptr_t apart = (uintptr_t)o->recv - (uintptr_t)o->send;
  if (o->recv_copy != NULL) {
    memcpy(o->recv, o->recv_copy, out);
  } else if (o->send_copy != NULL && out > 0 && apart < in) {
    memcpy(o->recv, (char *)o->send_copy + apart, out);
  }
  jcf_scratch_free(o->send_copy);
  jcf_scratch_free(o->recv_copy);
  o->send_copy = o->recv_copy = NULL;
}

static const struct wish *wish_of(const struct operation *o, int rank) {
  return &o->comm->shared->places[rank].wishes[o->number % 2];
}

/* Whether all ranks want the same; tells who does not. */
static bool agree(struct operation *o) {
  ncclComm_t c = o->comm;
  const struct wish *mine = wish_of(o, c->rank);
  for (int r = 0; r < c->nranks; r++) {
    const struct wish *w = wish_of(o, r);
    if (w->function != mine->function || w->type != mine->type || w->op != mine->op
        || w->root != mine->root || w->count != mine->count) {
      error(c, ncclInvalidUsage,
          "collective %llu: rank %d calls %s of %llu elements of type %d, operation %d, root %d, "
          "but rank %d calls %s of %llu of type %d, operation %d, root %d",
          (unsigned long long)o->number, c->rank, NAMES[mine->function],
          (unsigned long long)mine->count, mine->type, mine->op, mine->root, r,
          NAMES[w->function], (unsigned long long)w->count, w->type, w->op, w->root);
      return false;
    }
  }
  return true;
}

static void copy(void *to, const void *from, size_t bytes) {
  if (to != from && bytes > 0) {
    memmove(to, from, bytes);
  }
}

/* This rank's share of a collective. */
static void do_share(struct operation *o) {
  ncclComm_t c = o->comm;
  size_t bytes = o->count * (size_t)SIZES[o->type];
  int n = c->nranks, me = c->rank;
  char *sends[MOST_RANKS], *recvs[MOST_RANKS];
  uint64_t scalars[MOST_RANKS];
  for (int r = 0; r < n; r++) {
    const struct wish *w = wish_of(o, r);
    sends[r] = at(c, r, w->send);
    recvs[r] = at(c, r, w->recv);
    scalars[r] = w->scalar;
  }
  const char *const *sources = (const char *const *)sends;
  size_t block = (size_t)me * bytes;
  /* Of the elements of a reduction, each rank reduces a part for all who want it. */
  size_t from = o->count / (size_t)n * (size_t)me;
  size_t to = me == n - 1 ? o->count : from + o->count / (size_t)n;
  switch (o->function) {
    case ALL_REDUCE: reduce(o->type, o->op, sources, scalars, n, recvs, n, from, to); break;
    case REDUCE:
      reduce(o->type, o->op, sources, scalars, n, &recvs[o->root], 1, from, to);
      break;
    case REDUCE_SCATTER:
      for (int r = 0; r < n; r++) {
        sends[r] += block;
      }
      reduce(o->type, o->op, sources, scalars, n, &recvs[me], 1, 0, o->count);
      break;
    case BROADCAST: copy(recvs[me], sends[o->root], bytes); break;
    case ALL_GATHER:
      for (int r = 0; r < n; r++) {
        copy(recvs[me] + (size_t)r * bytes, sends[r], bytes);
      }
      break;
    case ALL_TO_ALL:
      for (int r = 0; r < n; r++) {
        copy(recvs[me] + (size_t)r * bytes, sends[r] + block, bytes);
      }
      break;
    case GATHER:
      for (int r = 0; r < n && me == o->root; r++) {
        copy(recvs[me] + (size_t)r * bytes, sends[r], bytes);
      }
      break;
    case SCATTER: copy(recvs[me], sends[o->root] + block, bytes); break;
    default: break;
  }
}

static bool all_came(ncclComm_t c, uint64_t number, bool went) {
  for (int r = 0; r < c->nranks; r++) {
    struct place *p = &c->shared->places[r];
    if (atomic_load(went ? &p->went : &p->came) < number) {
      return false;
    }
  }
  return true;
}

enum progress { STUCK, MOVED, DONE };

static enum progress step_collective(struct operation *o) {
  ncclComm_t c = o->comm;
  struct place *mine = &c->shared->places[c->rank];
  switch (o->step) {
    case 0:
      publish(o);
      atomic_store(&mine->came, o->number);
      if (all_came(c, o->number, false)) {
        ring_all(c->shared, c->nranks);
      }
      if (o->hit.die) {
        kill(getpid(), SIGKILL);
      }
      o->step = 1;
      return MOVED;
    case 1:
      if (!all_came(c, o->number, false)) {
        return STUCK;
      }
      if (!agree(o)) {
        if (atomic_load(&jcf_mismatch_hangs) == 0) {
          fail_later(c, ncclInvalidUsage);
        }
        o->step = 3;
        return STUCK;
      }
      do_share(o);
      atomic_store(&mine->went, o->number);
      if (all_came(c, o->number, true)) {
        ring_all(c->shared, c->nranks);
      }
      o->step = 2;
      return MOVED;
    case 2:
      if (!all_came(c, o->number, true)) {
        return STUCK;
      }
      finish_copies(o);
      return DONE;
    default: return STUCK; /* ranks disagree */
  }
}

static enum progress step_send(struct operation *o) {
  ncclComm_t c = o->comm;
  struct channel *ch = &c->shared->channels[c->rank][o->root];
  if (o->step == 0) {
    if (atomic_load(&ch->taken) < o->number - 1) {
      return STUCK;
    }
    ch->bytes = o->count * (size_t)SIZES[o->type];
    ch->at = reachable(o->send, ch->bytes, &o->send_copy, true);
    atomic_store(&ch->posted, o->number);
    ring(c->shared, o->root);
    if (o->hit.die) {
      kill(getpid(), SIGKILL);
    }
    o->step = 1;
    return MOVED;
  }
  if (atomic_load(&ch->wrong) != 0) {
    if (o->step == 1 && atomic_load(&jcf_mismatch_hangs) == 0) {
      error(c, ncclInvalidUsage, "Send: rank %d does not expect so many bytes", o->root);
      fail_later(c, ncclInvalidUsage);
    }
    o->step = 2;
    return STUCK;
  }
  if (atomic_load(&ch->taken) < o->number) {
    return STUCK;
  }
  jcf_scratch_free(o->send_copy);
  o->send_copy = NULL;
  return DONE;
}

static enum progress step_recv(struct operation *o) {
  ncclComm_t c = o->comm;
  struct channel *ch = &c->shared->channels[o->root][c->rank];
  if (o->step != 0 || atomic_load(&ch->posted) < o->number) {
    return STUCK;
  }
  size_t bytes = o->count * (size_t)SIZES[o->type];
  if (ch->bytes != bytes) {
    error(c, ncclInvalidUsage, "Recv: rank %d sends %llu bytes, expected %llu", o->root,
        (unsigned long long)ch->bytes, (unsigned long long)bytes);
    if (atomic_load(&jcf_mismatch_hangs) == 0) {
      fail_later(c, ncclInvalidUsage);
    }
    atomic_store(&ch->wrong, 1);
    ring(c->shared, o->root);
    o->step = 1;
    return STUCK;
  }
  if (bytes > 0) {
    copy(jcf_stored(o->recv), at(c, o->root, ch->at), bytes);
  }
  atomic_store(&ch->taken, o->number);
  ring(c->shared, o->root);
  return DONE;
}

static enum progress step_signal(struct operation *o) {
  ncclComm_t c = o->comm;
  size_t bytes = o->count * (size_t)SIZES[o->type];
  if (o->function == PUT && bytes > 0) {
    struct shared_window *w = &c->shared->windows[o->window % MOST_WINDOWS][o->root];
    copy(at(c, o->root, w->at + o->offset), jcf_stored(o->send), bytes);
  }
  atomic_fetch_add(&c->shared->signals[c->rank][o->root], 1);
  ring(c->shared, o->root);
  return DONE;
}

static enum progress step_wait_signal(struct operation *o) {
  ncclComm_t c = o->comm;
  for (int i = 0; i < o->nwaits; i++) {
    int peer = o->waits[i].peer;
    if (atomic_load(&c->shared->signals[peer][c->rank])
        < c->awaited[peer] + (uint64_t)o->waits[i].opCnt) {
      return STUCK;
    }
  }
  for (int i = 0; i < o->nwaits; i++) {
    c->awaited[o->waits[i].peer] += (uint64_t)o->waits[i].opCnt;
  }
  return DONE;
}

static enum progress step(struct operation *o) {
  if (o->faults) { /* as a kernel does: nothing of CUDA works any more */
    error(o->comm, ncclUnhandledCudaError, "%s: an illegal memory access", NAMES[o->function]);
    jccl_fake_sticky(cudaErrorIllegalAddress);
    return DONE;
  }
  switch (o->function) {
    case SEND: return step_send(o);
    case RECV: return step_recv(o);
    case PUT:
    case SIGNAL: return step_signal(o);
    case WAIT_SIGNAL: return step_wait_signal(o);
    default: return step_collective(o);
  }
}

static bool over(ncclComm_t c) {
  return atomic_load(&c->aborted) != 0 || atomic_load(&c->stopped) != 0;
}

static bool is_collective(const struct operation *o) { return o->function <= SCATTER; }

/* A rank that an operation needs and that is gone, or -1. */
static int lost_rank(const struct operation *o) {
  ncclComm_t c = o->comm;
  for (int r = 0; r < c->nranks && atomic_load(&jcf_death_spins) == 0; r++) {
    bool needed = is_collective(o) || (o->nwaits == 0 && o->root == r);
    for (int i = 0; i < o->nwaits; i++) {
      needed |= o->waits[i].peer == r;
    }
    if (needed && is_lost(c, c->shared, r)) {
      return r;
    }
  }
  return -1;
}

/* An injected wrong result: the first element that this rank receives, beyond any tolerance. */
static void corrupt(const struct operation *o) {
  bool receives = o->function == RECV || (is_collective(o)
      && ((o->function != REDUCE && o->function != GATHER) || o->root == o->comm->rank));
  if (receives && o->count > 0) {
    unsigned char *element = jcf_stored(o->recv);
    element[SIZES[o->type] - 1] ^= 0x55;
  }
}

/* On a stream's thread: runs a batch until it is complete or its communicators are aborted. */
static void run_batch(void *arg) {
  struct batch *b = arg;
  bool *done = need(calloc((size_t)b->n, sizeof *done));
  int *lost = need(malloc((size_t)b->n * sizeof *lost));
  for (int i = 0; i < b->n; i++) {
    lost[i] = -1;
  }
  unsigned released = jcf_release_count();
  for (;;) {
    ncclComm_t first = NULL; /* of those that wait */
    bool several = false, moved = false;
    uint32_t bell = 0;
    for (int i = 0; i < b->n; i++) {
      struct operation *o = &b->ops[i];
      ncclComm_t c = o->comm;
      if (done[i] || over(c)) {
        continue;
      }
      if (first == NULL) {
        first = c;
        bell = bell_of(c->shared, c->rank);
      }
      several |= first != c;
    }
    if (first == NULL) {
      break;
    }
    for (int i = 0; i < b->n; i++) {
      struct operation *o = &b->ops[i];
      if (done[i] || over(o->comm) || atomic_load(&o->comm->failing) != 0
          || (o->hit.stall && jcf_release_count() == released)) {
        continue;
      }
      /* Collectives of a communicator one after the other; messages among each other. */
      bool turn = true;
      for (int k = 0; k < i && turn && is_collective(o); k++) {
        turn = done[k] || b->ops[k].comm != o->comm || !is_collective(&b->ops[k]);
      }
      enum progress p = turn ? step(o) : STUCK;
      done[i] = p == DONE;
      if (done[i] && o->hit.corrupt) {
        corrupt(o);
      }
      moved |= p != STUCK;
      /* What a rank did before it went counts, so it is missed only now. */
      if (turn && p == STUCK && lost[i] >= 0 && atomic_load(&o->comm->failing) == 0) {
        error(o->comm, ncclRemoteError, "%s: rank %d is gone", NAMES[o->function], lost[i]);
        fail_later(o->comm, ncclRemoteError);
      }
      lost[i] = -1;
    }
    if (!moved) {
      uint32_t before = bell_of(first->shared, first->rank);
      if (before == bell) {
        wait_bell(first->shared, first->rank, bell, several ? 1 : WAIT_MS);
        if (bell_of(first->shared, first->rank) == bell) {
          for (int i = 0; i < b->n; i++) {
            if (!done[i] && !over(b->ops[i].comm)) {
              lost[i] = lost_rank(&b->ops[i]);
            }
          }
        }
      }
    }
  }
  for (int i = 0; i < b->n; i++) {
    jcf_scratch_free(b->ops[i].send_copy);
    jcf_scratch_free(b->ops[i].recv_copy);
    b->ops[i].send_copy = b->ops[i].recv_copy = NULL;
  }
  free(lost);
  free(done);
}

static void free_batch(struct batch *b) {
  for (int i = 0; i < b->n; i++) {
    free(b->ops[i].waits);
    drop_comm(b->ops[i].comm);
  }
  free(b->ops);
  free(b);
}

static void release_batch(void *arg) {
  struct batch *b = arg;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < b->n; i++) {
    atomic_fetch_sub(&b->ops[i].comm->running, 1);
  }
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  free_batch(b);
}

static struct batch *copy_batch(const struct batch *from) {
  struct batch *b = need(calloc(1, sizeof *b));
  b->n = from->n;
  b->ops = need(malloc((size_t)b->n * sizeof *b->ops));
  memcpy(b->ops, from->ops, (size_t)b->n * sizeof *b->ops);
  for (int i = 0; i < b->n; i++) {
    struct operation *o = &b->ops[i];
    use_comm(o->comm);
    if (o->waits != NULL) {
      size_t size = (size_t)o->nwaits * sizeof *o->waits;
      o->waits = need(malloc(size));
      memcpy(o->waits, from->ops[i].waits, size);
    }
  }
  return b;
}

/*
 * Numbers the operations and puts them on the stream, after what the communicators did before and
 * after the ends of other streams. Takes over the batch.
 */
static struct jcf_dep enqueue_batch(
    struct batch *b, struct jcf_stream *s, const struct jcf_dep *others, int nothers) {
  struct jcf_dep *deps = need(malloc((size_t)(b->n + nothers) * sizeof *deps));
  ncclComm_t *members = need(malloc((size_t)b->n * sizeof(ncclComm_t)));
  int n = 0, m = 0;
  for (int i = 0; i < nothers; i++) {
    deps[n++] = others[i];
  }
  jcf_await_room(s); /* for a kernel */
  pthread_mutex_lock(&lock); /* so that batches are enqueued in the order of their numbers */
  for (int i = 0; i < b->n; i++) {
    struct operation *o = &b->ops[i];
    ncclComm_t c = o->comm;
    atomic_fetch_add(&c->running, 1);
    if (o->function == SEND) {
      o->number = ++c->sent[o->root];
    } else if (o->function == RECV) {
      o->number = ++c->received[o->root];
    } else if (is_collective(o)) {
      o->number = ++c->collectives;
    }
    bool known = false;
    for (int k = 0; k < m; k++) {
      known |= members[k] == c;
    }
    if (!known) {
      members[m++] = c;
      if (c->last.stream != NULL) {
        deps[n++] = c->last;
      }
    }
  }
  /* The batch may be over and gone when this returns; the caller keeps the communicators. */
  struct jcf_dep end = jcf_enqueue(s, run_batch, release_batch, b, deps, n);
  for (int i = 0; i < m; i++) {
    struct jcf_stream *old = members[i]->last.stream;
    members[i]->last = (struct jcf_dep){jcf_tail(s).stream, end.seq};
    if (old != NULL) {
      jcf_stream_done(old);
    }
  }
  pthread_mutex_unlock(&lock);
  free(members);
  free(deps);
  return end;
}

/* A graph is launched: its operations take part once more. */
static void launch_captured(void *arg, struct jcf_stream *s) {
  struct batch *b = copy_batch(arg);
  struct jcf_dep end = enqueue_batch(b, s, NULL, 0);
  jcf_stream_done(end.stream);
}

static void use_captured(void *arg) { atomic_fetch_add(&((struct batch *)arg)->uses, 1); }

/*
 * What a graph holds of its communicators: they are not finalized while it, or an executable made of
 * it, exists (init.cc:2751, enqueue.cc:1466 and 1731).
 */
static void count_graph(struct batch *b, int change) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < b->n; i++) {
    atomic_fetch_add(&b->ops[i].comm->graphs, change);
  }
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* Called under the runtime's lock, so what may need that lock is left to a thread. */
static void *free_captured(void *arg) {
  count_graph(arg, -1);
  free_batch(arg);
  return NULL;
}

static void done_captured(void *arg) {
  struct batch *b = arg;
  if (atomic_fetch_sub(&b->uses, 1) == 1) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_captured, b) == 0) {
      pthread_detach(thread);
    }
  }
}

/* ---- groups */

static __thread int left_open; /* groups of this thread that nobody ends */

static __thread struct {
  int depth;
  ncclResult_t error;
  struct operation *ops;
  int nops, room;
  struct task *tasks, **end;
} group;

struct launch {
  struct operation *ops;
  int nops;
  struct task *tasks;
  /* of a job of non-blocking communicators */
  ncclComm_t *members; /* whose state it is */
  int nmembers;
  pthread_t thread;
  atomic_int joined, refs;
};

static void done_operation(struct operation *o) {
  jcf_stream_done(o->stream);
  free(o->waits);
  drop_comm(o->comm);
}

/* Puts some operations on streams as one batch. */
static ncclResult_t launch_ops(struct operation **ops, int n) {
  struct jcf_stream **streams = need(malloc((size_t)n * sizeof *streams));
  int nstreams = 0;
  for (int i = 0; i < n; i++) {
    bool known = false;
    for (int k = 0; k < nstreams; k++) {
      known |= streams[k] == ops[i]->stream;
    }
    if (!known) {
      streams[nstreams++] = ops[i]->stream;
    }
  }
  struct batch *b = need(calloc(1, sizeof *b));
  atomic_store(&b->uses, 1);
  b->n = n;
  b->ops = need(malloc((size_t)n * sizeof *b->ops));
  for (int i = 0; i < n; i++) {
    b->ops[i] = *ops[i];
    b->ops[i].stream = NULL;
    use_comm(ops[i]->comm);
    ops[i]->waits = NULL;
  }
  cudaError_t e = cudaSuccess;
  void *capture = jcf_capture_of(streams[0], &e);
  for (int k = 1; k < nstreams && e == cudaSuccess; k++) {
    if (jcf_capture_of(streams[k], &e) != capture) {
      e = cudaErrorStreamCaptureIsolation;
    }
  }
  ncclResult_t result = ncclSuccess;
  if (e != cudaSuccess) {
    result = cuda_error(ops[0]->comm, e, "launch");
    free_batch(b);
  } else if (capture != NULL) {
    count_graph(b, 1);
    jcf_capture_node(streams, nstreams, launch_captured, use_captured, done_captured, b);
  } else {
    struct jcf_dep *tails = need(malloc((size_t)nstreams * sizeof *tails));
    for (int k = 1; k < nstreams; k++) {
      tails[k - 1] = jcf_tail(streams[k]);
    }
    struct jcf_dep end = enqueue_batch(b, streams[0], tails, nstreams - 1);
    for (int k = 1; k < nstreams; k++) {
      jcf_stream_done(tails[k - 1].stream);
      struct jcf_dep after = jcf_enqueue(streams[k], NULL, NULL, NULL, &end, 1);
      jcf_stream_done(after.stream);
    }
    jcf_stream_done(end.stream);
    free(tails);
  }
  free(streams);
  return result;
}

/* Messages of a rank to itself have to be received in the same group, or nobody ever takes them. */
static ncclResult_t check_self(struct operation *ops, int n) {
  for (int i = 0; i < n; i++) {
    ncclComm_t c = ops[i].comm;
    long open = 0;
    for (int k = 0; k < n; k++) {
      bool self = ops[k].comm == c && ops[k].root == c->rank;
      open += self && ops[k].function == SEND;
      open -= self && ops[k].function == RECV;
    }
    if (open != 0 && (ops[i].function == SEND || ops[i].function == RECV)) {
      return error(c, ncclInvalidUsage,
          "rank %d sends to itself and does not receive that in the same group", c->rank);
    }
  }
  return ncclSuccess;
}

/* One batch a communicator; one a capture, since a graph runs its nodes one after the other. */
static ncclResult_t launch_all(struct operation *ops, int n) {
  ncclResult_t result = check_self(ops, n);
  bool *taken = need(calloc((size_t)n + 1, sizeof *taken));
  struct operation **some = need(malloc((size_t)(n + 1) * sizeof *some));
  for (int i = 0; i < n && result == ncclSuccess; i++) {
    if (taken[i]) {
      continue;
    }
    cudaError_t e;
    void *capture = jcf_capture_of(ops[i].stream, &e);
    int m = 0;
    for (int k = i; k < n; k++) {
      bool with = ops[k].comm == ops[i].comm
          || (capture != NULL && jcf_capture_of(ops[k].stream, &e) == capture);
      if (!taken[k] && with) {
        taken[k] = true;
        some[m++] = &ops[k];
      }
    }
    result = launch_ops(some, m);
  }
  for (int i = 0; i < n && result == ncclSuccess; i++) {
    if (ops[i].hit.async != 0) {
      error(ops[i].comm, ops[i].hit.async, "injected asynchronous error %d", ops[i].hit.async);
      fail_later(ops[i].comm, ops[i].hit.async);
      ring(ops[i].comm->shared, ops[i].comm->rank);
    }
  }
  free(taken);
  free(some);
  return result;
}

static void *run_task(void *arg) {
  struct task *t = arg;
  if (t->hit.hang) {
    jcf_hang(t->comm != NULL ? &t->comm->aborted : NULL);
  }
  t->result = t->run(t);
  return NULL;
}

static ncclResult_t run_tasks(struct task *tasks) {
  ncclResult_t result = ncclSuccess;
  if (tasks != NULL && tasks->next == NULL) {
    run_task(tasks);
    return tasks->result;
  }
  int n = 0;
  for (struct task *t = tasks; t != NULL; t = t->next) {
    n++;
  }
  pthread_t *threads = need(malloc((size_t)(n + 1) * sizeof *threads));
  n = 0;
  for (struct task *t = tasks; t != NULL; t = t->next) {
    if (pthread_create(&threads[n++], NULL, run_task, t) != 0) {
      need(NULL);
    }
  }
  n = 0;
  for (struct task *t = tasks; t != NULL; t = t->next) {
    pthread_join(threads[n++], NULL);
    result = result != ncclSuccess ? result : t->result;
  }
  free(threads);
  return result;
}

#if HAS(22900)
static ncclResult_t await_all(struct task *t, enum barrier kind);

/* The signals lie in a window of NCCL's own, which all ranks register together: rma_ce.cc:47. */
static ncclResult_t run_one_sided(struct task *t) {
  ncclResult_t result = await_all(t, ONE_SIDED);
  t->comm->one_sided |= result == ncclSuccess;
  return result;
}

/*
 * The first one-sided call of a communicator, whichever it is, does not get to its stream before all
 * ranks have made one: enqueue.cc:2911, group.cc:283, dev_runtime.cc:912.
 */
static ncclResult_t begin_one_sided(const struct launch *l) {
  struct task *tasks = NULL;
  for (int i = 0; i < l->nops; i++) {
    ncclComm_t c = l->ops[i].comm;
    bool known = l->ops[i].function < PUT || c->one_sided;
    for (struct task *t = tasks; t != NULL && !known; t = t->next) {
      known = t->comm == c;
    }
    if (!known) {
      struct task *t = need(calloc(1, sizeof *t));
      *t = (struct task){.run = run_one_sided, .comm = c, .next = tasks};
      tasks = t;
    }
  }
  ncclResult_t result = run_tasks(tasks);
  for (struct task *next; tasks != NULL; tasks = next) {
    next = tasks->next;
    free(tasks);
  }
  return result;
}
#endif

/* Runs what a group holds. Out-slots are written and states change when all is done. */
static ncclResult_t run_launch(struct launch *l) {
  int late = 0;
  for (struct task *t = l->tasks; t != NULL; t = t->next) {
    late = t->hit.late_ms > late ? t->hit.late_ms : late;
  }
  for (int i = 0; i < l->nops; i++) {
    late = l->ops[i].hit.late_ms > late ? l->ops[i].hit.late_ms : late;
  }
  ncclResult_t result = run_tasks(l->tasks);
#if HAS(22900)
  if (result == ncclSuccess) {
    result = begin_one_sided(l);
  }
#endif
  if (result == ncclSuccess && l->nops > 0) {
    result = launch_all(l->ops, l->nops);
  }
  if (late > 0) {
    jcf_sleep_ms(late);
  }
  return result;
}

/*
 * A slot of the caller, written when he may have returned long ago: a race with NCCL, and it has to
 * be one. Memory that was freed by then is found by AddressSanitizer, or by what is in it.
 */
__attribute__((no_sanitize("thread"))) static void write_late(
    void *out, const void *before, void *handle) {
  void *there = *(void *volatile *)out;
  if (there != before) {
    die(SIGABRT,
        "the slot %p for a communicator or window held %p and holds %p now that it is written: it has "
        "to live, untouched, until the job is over (init.cc:1961, dev_runtime.cc:786)",
        out, before, there);
  }
  *(void *volatile *)out = handle;
}

static void settle(ncclComm_t c, ncclResult_t result, bool nonblocking) { /* with the lock */
  if (nonblocking) { /* whatever it was in between: group.cc:730, 749, 453 and 461 */
    atomic_store(&c->async, result);
  }
  pthread_cond_broadcast(&changed);
}

/* Out-slots are written, also that of a split with colour -1 and of what failed: init.cc:1961. */
static void end_task(struct task *t, bool began) {
  if (t->child != NULL && t->result != ncclSuccess) {
    t->child->broken = true;
    leave(t->child, true);
  }
  if (t->child != NULL && t->owns_child && began) {
    list_comm(t->child);
  } else if (t->child != NULL && t->owns_child) {
    drop_comm(t->child);
  }
  if (t->window != NULL && began) {
    write_late(t->win_out, NULL, t->window);
  }
  if (t->out != NULL && began) {
    write_late(t->out, t->grown ? t->child : NULL, t->child);
  }
}

static void end_launch(struct launch *l, ncclResult_t result, bool began, bool nonblocking) {
  struct task *tasks = l->tasks;
  struct operation *ops = l->ops;
  int nops = l->nops;
  for (struct task *t = tasks; t != NULL; t = t->next) {
    end_task(t, began);
  }
  pthread_mutex_lock(&lock);
  for (struct task *t = tasks; t != NULL; t = t->next) {
    atomic_fetch_sub(&t->comm->tasks, 1);
    settle(t->comm, result, nonblocking);
  }
  for (int i = 0; i < nops; i++) {
    atomic_fetch_sub(&ops[i].comm->tasks, 1);
  }
  for (int i = 0; i < nops; i++) {
    settle(ops[i].comm, result, nonblocking);
  }
  pthread_mutex_unlock(&lock);
  for (struct task *t = tasks, *next; t != NULL; t = next) {
    next = t->next;
    drop_comm(t->comm);
    free(t);
  }
  for (int i = 0; i < nops; i++) {
    done_operation(&ops[i]);
  }
  free(ops);
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Until all have seen that the job is in progress. */
static void wait_looks(struct launch *l, double began) {
  bool makes = false;
  for (struct task *t = l->tasks; t != NULL; t = t->next) {
    makes |= t->makes;
  }
  for (;;) {
    double passed = now_ms() - began;
    bool all = true;
    for (int i = 0; i < l->nmembers; i++) {
      ncclComm_t c = l->members[i];
      if (atomic_load(&c->aborted) != 0) {
        return;
      }
      all &= atomic_load(&c->looked) != 0;
    }
    if (passed >= (makes ? MAKING_MS : 0) && (all || passed >= LOOK_MS)) {
      return;
    }
    usleep(30);
  }
}

static void *run_later(void *arg) {
  struct launch *l = arg;
  double began = now_ms();
  if (l->nmembers > 0) {
    cudaSetDevice(l->members[0]->device); /* group.cc:573, init.cc:1869 */
  }
  ncclResult_t result = run_launch(l);
  wait_looks(l, began);
  end_launch(l, result, true, true);
  return NULL;
}

/* Joins and frees a job, as the first call that sees its end does: group.cc:889. */
static void complete(struct launch *l) {
  if (atomic_exchange(&l->joined, 1) == 0) {
    pthread_join(l->thread, NULL);
  }
  if (atomic_fetch_sub(&l->refs, 1) == 1) {
    free(l->members);
    free(l);
  }
}

/* A non-blocking call: a thread of its own runs it, each time (group.cc:855). */
static ncclResult_t begin_job(struct launch *l) {
  int n = l->nops;
  for (struct task *t = l->tasks; t != NULL; t = t->next) {
    n++;
  }
  l->members = need(calloc((size_t)n, sizeof *l->members));
  for (int i = 0; i < n; i++) {
    struct task *t = l->tasks;
    for (int k = l->nops; k < i && t != NULL; k++) {
      t = t->next;
    }
    ncclComm_t c = i < l->nops ? l->ops[i].comm : t->comm;
    bool known = false;
    for (int k = 0; k < l->nmembers; k++) {
      known |= l->members[k] == c;
    }
    if (known) {
      continue;
    }
    l->members[l->nmembers++] = c;
    atomic_store(&c->looked, 0);
    atomic_store(&c->async, ncclInProgress);
    c->gjob = l;
    atomic_fetch_add(&l->refs, 1);
  }
  if (pthread_create(&l->thread, NULL, run_later, l) != 0) {
    need(NULL);
  }
  return ncclInProgress;
}

static ncclResult_t end_group(void) {
  ncclResult_t result = group.error;
  if (group.nops == 0 && group.tasks == NULL) {
    free(group.ops);
    memset(&group, 0, sizeof group);
    return result;
  }
  struct launch *l = need(calloc(1, sizeof *l));
  l->ops = group.ops;
  l->nops = group.nops;
  l->tasks = group.tasks;
  memset(&group, 0, sizeof group);
  if (result == ncclSuccess && l->nops > 0 && l->tasks != NULL) {
    result = error(NULL, ncclInvalidUsage,
        "a group cannot hold both communication and the making of communicators");
  }
  int blocking = 0, nonblocking = 0, device = -1;
  for (struct task *t = l->tasks; t != NULL; t = t->next) {
    *(t->comm->config.blocking == 0 ? &nonblocking : &blocking) += 1;
    atomic_fetch_add(&t->comm->tasks, 1);
    device = t->comm->device;
  }
  for (int i = 0; i < l->nops; i++) {
    *(l->ops[i].comm->config.blocking == 0 ? &nonblocking : &blocking) += 1;
    atomic_fetch_add(&l->ops[i].comm->tasks, 1);
    device = l->ops[i].comm->device;
  }
  if (result == ncclSuccess && blocking > 0 && nonblocking > 0) {
    result = error(NULL, ncclInvalidArgument, /* group.cc:61 */
        "Blocking and nonblocking communicators are not allowed in the same group");
  }
  if (result == ncclSuccess && nonblocking > 0) {
    return begin_job(l);
  }
  bool begins = result == ncclSuccess;
  if (begins) { /* on the caller's device, and back: group.cc:860-863 */
    int saved = device;
    cudaGetDevice(&saved);
    cudaSetDevice(device);
    result = run_launch(l);
    cudaSetDevice(saved);
  } else {
    for (struct task *t = l->tasks; t != NULL; t = t->next) {
      t->result = result;
    }
  }
  end_launch(l, result, begins, nonblocking > 0);
  free(l);
  return result;
}

static ncclResult_t in_group(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && group.depth > 0
      && group.error == ncclSuccess) {
    group.error = result;
  }
  return result;
}

/* A thread whose group never ends only collects calls. */
static void warn_left_open(const char *what) {
  if (left_open > 0) {
    fprintf(stderr, "jccl fake: %s waits for the end of a group that a refused ncclCommDestroy left "
        "open on this thread (init.cc:2890-2901)\n", what);
  }
}

/* Adds a task; it runs at once unless a group is open. */
static ncclResult_t add_task(struct task *task) {
  warn_left_open("a call");
  struct task *t = need(malloc(sizeof *t));
  *t = *task;
  t->next = NULL;
  t->result = ncclInternalError;
  use_comm(t->comm);
  if (group.tasks == NULL) {
    group.end = &group.tasks;
  }
  *group.end = t;
  group.end = &t->next;
  return group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclGroupStart(void) {
  ENTER(ncclGroupStart, NULL);
  group.depth++;
  return ncclSuccess;
}

/* An injected error ends the group nevertheless, and nothing of it runs. */
ncclResult_t ncclGroupEnd(void) {
  static struct jcf_fn fn_ = {.name = "ncclGroupEnd"};
  struct jcf_hit hit;
  jcf_enter(&fn_, -1, &hit);
  if (hit.hang) {
    hang(NULL);
  }
  if (hit.error != 0 && group.depth > 0) {
    group.error = error(NULL, hit.error, "ncclGroupEnd: injected error %d", hit.error);
  }
  if (group.depth == 0) {
    return error(NULL, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  return --group.depth > 0 ? ncclSuccess : end_group();
}

#if HAS(22200)
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  ENTER(ncclGroupSimulateEnd, NULL);
  if (group.depth == 0) {
    return error(NULL, ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  }
  if (info != NULL && (info->magic != 0x74685283 || info->size < sizeof *info)) {
    return error(NULL, ncclInvalidArgument, "ncclSimInfo_t was not initialized");
  }
  if (--group.depth > 0) {
    return ncclSuccess;
  }
  size_t bytes = 0;
  for (int i = 0; i < group.nops; i++) {
    bytes += send_bytes(&group.ops[i]) + recv_bytes(&group.ops[i]);
  }
  if (info != NULL) {
    info->estimatedTime = group.nops == 0 ? 0 : 5.0f + (float)bytes / 1e5f; /* microseconds */
  }
  ncclResult_t result = group.error;
  for (int i = 0; i < group.nops; i++) {
    done_operation(&group.ops[i]);
  }
  free(group.ops);
  for (struct task *t = group.tasks, *next; t != NULL; t = next) {
    next = t->next;
    if (t->child != NULL && (t->owns_child || unlist_comm(t->child))) {
      drop_comm(t->child);
    }
    drop_comm(t->comm);
    free(t);
  }
  memset(&group, 0, sizeof group);
  return result;
}
#endif

/* ---- communication */

static ncclResult_t check_buffer(
    ncclComm_t c, const void *ptr, size_t bytes, const char *what, const char *name) {
  if (bytes == 0) {
    return ncclSuccess;
  }
  if (ptr == NULL) {
    return error(c, ncclInvalidArgument, "%s: %s is NULL", what, name);
  }
  struct jcf_memory m = jcf_memory_of(ptr);
  if (m.bad) {
    return error(c, ncclInvalidArgument, "%s: %s %p is no allocated memory; was it freed?", what,
        name, ptr);
  }
  if (m.type == cudaMemoryTypeUnregistered) {
    return error(c, ncclInvalidArgument,
        "%s: %s %p is host memory that CUDA does not know, not device memory", what, name, ptr);
  }
  if (m.type == cudaMemoryTypeDevice && m.device != c->device
      && (m.pool || !jcf_peer_enabled(c->device, m.device))) {
    return error(c, ncclInvalidArgument,
        "%s: %s %p is memory of device %d, the communicator is on device %d", what, name, ptr,
        m.device, c->device);
  }
  if ((uintptr_t)ptr - m.base + bytes > m.size) {
    return error(c, ncclInvalidArgument,
        "%s: %s %p with %zu bytes goes past the end of its allocation of %zu bytes", what, name,
        ptr, bytes, m.size);
  }
  return ncclSuccess;
}

/* Looks up an operation that a caller made; an empty collective is not compared with its type. */
static ncclResult_t check_redop(ncclComm_t c, struct operation *o, const char *what) {
  if (o->op < 0 || (o->op == ncclAvg && version < 21003)) {
    return error(c, ncclInvalidArgument, "%s: operation %d is unknown", what, o->op);
  }
  if (o->op < ncclNumOps) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&lock);
  int i = o->op - ncclNumOps;
  bool known = i < c->nredops && c->redops[i].taken;
  struct redop r = {0};
  if (known) {
    r = c->redops[i];
  }
  pthread_mutex_unlock(&lock);
  if (!known) {
    return error(c, ncclInvalidArgument, "%s: operation %d is unknown", what, o->op);
  }
  if (r.type != o->type && o->count > 0) {
    return error(c, ncclInvalidArgument, "%s: operation %d is for type %d, not %d", what, o->op,
        r.type, o->type);
  }
  o->op = PRE_MUL_SUM;
  o->scalar = r.scalar;
  o->device_scalar = r.device_scalar;
  return ncclSuccess;
}

static int compute_capability(int device) {
  struct cudaDeviceProp prop;
  return cudaGetDeviceProperties(&prop, device) == cudaSuccess ? 10 * prop.major + prop.minor : 0;
}

/* Checks an operation, and runs it unless a group is open. */
static ncclResult_t add(struct operation o, const char *what, bool reduces, bool rooted,
    ncclComm_t comm, cudaStream_t stream) {
  if (find(comm) && comm->revoked) { /* enqueue.cc:3128: and nothing else happens */
    return in_group(error(comm, ncclInvalidUsage, "%s: communicator was revoked", what));
  }
  ncclResult_t result = check_ready(comm, what);
  if (result != ncclSuccess) {
    return in_group(refuse(comm, result));
  }
  if (jcf_sticky() != 0) {
    return in_group(refuse(comm, cuda_error(comm, jcf_sticky(), what)));
  }
  check_name(comm);
  o.comm = comm;
  if (rooted && (o.root < 0 || o.root >= comm->nranks)) {
    return in_group(refuse(comm, error(comm, ncclInvalidArgument,
        "%s: rank %d is not from 0 to %d", what, o.root, comm->nranks - 1)));
  }
  if (o.type < 0 || o.type >= ncclNumTypes || (o.type >= ncclFloat8e4m3 && version < 22400)
      || (o.type == ncclBfloat16 && version < 21003)) {
    return in_group(refuse(comm, error(comm, ncclInvalidArgument, "%s: type %d is unknown", what,
        o.type)));
  }
  if (o.count > ((size_t)1 << 60) / (size_t)comm->nranks) {
    return in_group(refuse(comm, error(comm, ncclInvalidArgument, "%s: %zu elements", what,
        o.count)));
  }
  if (reduces && o.count > 0 && o.type >= ncclFloat8e4m3 && compute_capability(comm->device) < 90) {
    return in_group(refuse(comm, error(comm, ncclInvalidArgument, /* enqueue.cc:3024, 3029 */
        "%s: FP8 reduction support begins with sm90 capable devices", what)));
  }
  result = reduces ? check_redop(comm, &o, what) : ncclSuccess;
  /* Pointers are checked on request only: argcheck.cc:227. Elsewhere a bad one faults when it runs. */
  ncclResult_t buffers = check_buffer(comm, o.send, send_bytes(&o), what, "sendbuff");
  if (buffers == ncclSuccess) {
    buffers = check_buffer(comm, o.recv, recv_bytes(&o), what, "recvbuff");
  }
  if (result == ncclSuccess && comm->checks_pointers) {
    result = buffers;
  }
  /*
   * Nor does anything ask whether the communicator is suspended, whose buffers and channels then are
   * no memory (mem_manager.cc:493, channel.cc:45-60). One-sided calls use other memory.
   */
  bool unmapped = comm->suspended && comm->nranks > 1 && o.function < PUT;
  o.faults = buffers != ncclSuccess || unmapped;
  if (result == ncclSuccess && o.function == ALL_TO_ALL && o.send == o.recv && o.count > 0
      && comm->nranks > 1) {
    result = error(comm, ncclInvalidArgument, "%s: cannot be done in place", what);
  }
  if (result != ncclSuccess) {
    return in_group(refuse(comm, result));
  }
  if (o.count == 0 && is_collective(&o)) {
    return ncclSuccess; /* as NCCL does: nothing to do, nothing enqueued */
  }
  o.stream = jcf_stream_use(stream, comm->device);
  if (o.stream == NULL || jcf_stream_device(o.stream) != comm->device) {
    if (o.stream != NULL) {
      jcf_stream_done(o.stream);
    }
    return in_group(refuse(comm, cuda_error(comm, cudaErrorInvalidResourceHandle, what)));
  }
  if (o.waits != NULL) {
    size_t size = (size_t)o.nwaits * sizeof *o.waits;
    ncclWaitSignalDesc_t *own = need(malloc(size));
    memcpy(own, o.waits, size);
    o.waits = own;
  }
  use_comm(comm);
  if (comm->nranks == 1 && is_collective(&o)) { /* no job, and no group: enqueue.cc:3039 */
    bool multiplies = reduces && (o.op == PRE_MUL_SUM || o.op == ncclAvg); /* enqueue.cc:2540 */
    if (multiplies && version < 22907 && o.count > 0) { /* v2.29.3: onerank.cu:25 loses a rest */
      size_t size = (size_t)SIZES[o.type], pack = 16 / size;
      size_t blocks = (o.count * size + (16 << 10) - 1) / (16 << 10);
      blocks = blocks < 32 ? blocks : 32;
      size_t most = (o.count / blocks + pack - 1) / pack * pack * blocks;
      o.count = o.count < most ? o.count : most;
    }
    result = multiplies && o.type >= ncclFloat8e4m3 /* onerank.cu:79 asks host code for a device */
        ? error(comm, ncclInvalidArgument, "%s: no kernel of one rank for type %d", what, o.type)
        : launch_all(&o, 1);
    done_operation(&o);
    return result == ncclSuccess ? result : in_group(refuse(comm, result));
  }
  warn_left_open(what);
  if (group.nops == group.room) {
    group.room = group.room == 0 ? 8 : 2 * group.room;
    group.ops = need(realloc(group.ops, (size_t)group.room * sizeof *group.ops));
  }
  group.ops[group.nops++] = o;
  result = group.depth > 0 ? ncclSuccess : end_group();
  if ((result == ncclSuccess || result == ncclInProgress) && comm->config.blocking == 0) {
    result = state_of(comm); /* each operation asks, and may join: enqueue.cc:3167 */
  }
  return result;
}

#define OPERATION(function, comm) \
  VISIT(comm, #function); \
  if (atomic_load_explicit(&jcf_noop, memory_order_relaxed) != 0) { \
    return ncclSuccess; \
  } \
  static struct jcf_fn fn_ = {.name = #function}; \
  struct jcf_hit hit; \
  jcf_enter(&fn_, rank_of(comm), &hit); \
  if (hit.hang) { \
    hang(comm); \
  } \
  if (hit.error != 0) { \
    return in_group(refuse(comm, error(comm, hit.error, "%s: injected error %d", #function, \
        hit.error))); \
  } \
  hit.stall |= hit.async != 0;

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclReduce, comm);
  return add((struct operation){.function = REDUCE, .send = send, .recv = recv, .count = count,
                 .type = type, .op = op, .root = root, .hit = hit},
      "ncclReduce", true, true, comm, stream);
}

ncclResult_t ncclBcast(
    void *buff, size_t count, int type, int root, ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclBcast, comm);
  return add((struct operation){.function = BROADCAST, .send = buff, .recv = buff,
                 .count = count, .type = type, .root = root, .hit = hit},
      "ncclBcast", false, true, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclBroadcast, comm);
  return add((struct operation){.function = BROADCAST, .send = send, .recv = recv,
                 .count = count, .type = type, .root = root, .hit = hit},
      "ncclBroadcast", false, true, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclAllReduce, comm);
  return add((struct operation){.function = ALL_REDUCE, .send = send, .recv = recv,
                 .count = count, .type = type, .op = op, .hit = hit},
      "ncclAllReduce", true, false, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, int type, int op,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclReduceScatter, comm);
  return add((struct operation){.function = REDUCE_SCATTER, .send = send, .recv = recv,
                 .count = recvcount, .type = type, .op = op, .hit = hit},
      "ncclReduceScatter", true, false, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, int type,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclAllGather, comm);
  return add((struct operation){.function = ALL_GATHER, .send = send, .recv = recv,
                 .count = sendcount, .type = type, .hit = hit},
      "ncclAllGather", false, false, comm, stream);
}

#if HAS(22800)
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, int type, ncclComm_t comm,
    cudaStream_t stream) {
  OPERATION(ncclAlltoAll, comm);
  return add((struct operation){.function = ALL_TO_ALL, .send = send, .recv = recv,
                 .count = count, .type = type, .hit = hit},
      "ncclAlltoAll", false, false, comm, stream);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, int type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclGather, comm);
  return add((struct operation){.function = GATHER, .send = send, .recv = recv, .count = count,
                 .type = type, .root = root, .hit = hit},
      "ncclGather", false, true, comm, stream);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, int type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclScatter, comm);
  return add((struct operation){.function = SCATTER, .send = send, .recv = recv, .count = count,
                 .type = type, .root = root, .hit = hit},
      "ncclScatter", false, true, comm, stream);
}
#endif

#if HAS(2703)
ncclResult_t ncclSend(
    const void *send, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclSend, comm);
  return add((struct operation){.function = SEND, .send = send, .count = count, .type = type,
                 .root = peer, .hit = hit},
      "ncclSend", false, true, comm, stream);
}

ncclResult_t ncclRecv(
    void *recv, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclRecv, comm);
  return add((struct operation){.function = RECV, .recv = recv, .count = count, .type = type,
                 .root = peer, .hit = hit},
      "ncclRecv", false, true, comm, stream);
}
#endif

#if HAS(22700)
static struct jcf_window *find_window(ncclComm_t comm, ncclWindow_t win) { /* with the lock */
  for (struct jcf_window *w = windows; w != NULL; w = w->next) {
    if (w == win) {
      return w->comm == comm ? w : NULL;
    }
  }
  return NULL;
}
#endif

#if HAS(22900)
static bool has_symmetric_memory(void);

static ncclResult_t check_signal(
    ncclComm_t comm, int sigIdx, int ctx, unsigned flags, const char *what) {
  ncclResult_t result = check_ready(comm, what);
  if (result == ncclSuccess && !has_symmetric_memory()) { /* enqueue.cc:2812, init.cc:1676 */
    result = error(comm, ncclInvalidArgument,
        "%s: host RMA is not supported in this communicator", what);
  }
  if (result == ncclSuccess && (sigIdx != 0 || ctx != 0 || flags != 0)) {
    result = error(comm, ncclInvalidArgument,
        "%s: signal index %d, context %d and flags %u all have to be 0", what, sigIdx, ctx,
        flags);
  }
  return result;
}

ncclResult_t ncclPutSignal(const void *local, size_t count, int type, int peer, ncclWindow_t win,
    size_t offset, int sigIdx, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclPutSignal, comm);
  ncclResult_t result = check_signal(comm, sigIdx, ctx, flags, "ncclPutSignal");
  if (result != ncclSuccess) {
    return in_group(refuse(comm, result));
  }
  if (type < 0 || type >= ncclNumTypes || peer < 0 || peer >= comm->nranks) {
    return in_group(refuse(comm,
        error(comm, ncclInvalidArgument, "ncclPutSignal: type %d or peer %d", type, peer)));
  }
  size_t bytes = count * (size_t)SIZES[type];
  pthread_mutex_lock(&lock);
  struct jcf_window *w = find_window(comm, win);
  int number = w == NULL ? 0 : w->number;
  /* The window that begins last of those that begin at or before it: dev_runtime.cc:1401. */
  struct jcf_window *source = NULL;
  for (struct jcf_window *own = windows; own != NULL; own = own->next) {
    bool before = own->comm == comm && (uintptr_t)own->ptr <= (uintptr_t)local;
    source = before && (source == NULL || own->ptr > source->ptr) ? own : source;
  }
  bool symmetric = source != NULL && (uintptr_t)local - (uintptr_t)source->ptr < source->size
      && (source->flags & 1) != 0;
  uint64_t size = w == NULL ? 0 : comm->shared->windows[number % MOST_WINDOWS][peer].size;
  pthread_mutex_unlock(&lock);
  if (w == NULL) {
    return in_group(refuse(comm, error(comm, ncclInvalidArgument, "ncclPutSignal: %p is no window of this "
        "communicator", (void *)win)));
  }
  if (offset > size || bytes > size - offset) {
    return in_group(refuse(comm, error(comm, ncclInvalidArgument,
        "ncclPutSignal: %zu bytes at %zu do not fit the peer's window of %llu", bytes, offset,
        (unsigned long long)size)));
  }
  if (!symmetric) { /* enqueue.cc:2865, also for no elements */
    return in_group(refuse(comm, error(comm, ncclInvalidArgument,
        "ncclPutSignal: %p is not in a valid symmetric window", local)));
  }
  return add((struct operation){.function = PUT, .send = local, .count = count, .type = type,
                 .root = peer, .window = number, .offset = offset, .hit = hit},
      "ncclPutSignal", false, true, comm, stream);
}

ncclResult_t ncclSignal(
    int peer, int sigIdx, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclSignal, comm);
  ncclResult_t result = check_signal(comm, sigIdx, ctx, flags, "ncclSignal");
  return result != ncclSuccess
      ? in_group(refuse(comm, result))
      : add((struct operation){.function = SIGNAL, .root = peer, .hit = hit}, "ncclSignal",
            false, true, comm, stream);
}

ncclResult_t ncclWaitSignal(
    int nDesc, ncclWaitSignalDesc_t *descs, ncclComm_t comm, cudaStream_t stream) {
  OPERATION(ncclWaitSignal, comm);
  ncclResult_t result = check_signal(comm, 0, 0, 0, "ncclWaitSignal");
  if (result == ncclSuccess && (nDesc <= 0 || descs == NULL)) {
    result = error(comm, ncclInvalidArgument, "ncclWaitSignal: %d descriptors", nDesc);
  }
  for (int i = 0; i < nDesc && result == ncclSuccess; i++) {
    if (descs[i].opCnt <= 0 || descs[i].sigIdx != 0 || descs[i].ctx != 0 || descs[i].peer < 0
        || descs[i].peer >= comm->nranks) {
      result = error(comm, ncclInvalidArgument,
          "ncclWaitSignal: descriptor %d has count %d, peer %d, index %d, context %d", i,
          descs[i].opCnt, descs[i].peer, descs[i].sigIdx, descs[i].ctx);
    }
  }
  return result != ncclSuccess
      ? in_group(refuse(comm, result))
      : add((struct operation){.function = WAIT_SIGNAL, .nwaits = nDesc, .waits = descs,
                .hit = hit},
            "ncclWaitSignal", false, false, comm, stream);
}
#endif

/* ---- making communicators */

ncclResult_t ncclGetVersion(int *out) {
  ENTER(ncclGetVersion, NULL);
  if (out == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclGetVersion: NULL");
  }
  *out = version;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
#define SUFFIX " (jccl fake)"
  static const char *const ALL[] = {"no error" SUFFIX, "CUDA call failed" SUFFIX,
      "system call failed" SUFFIX, "internal error" SUFFIX, "invalid argument" SUFFIX,
      "invalid usage" SUFFIX, "remote process or network error" SUFFIX,
      "operation in progress" SUFFIX, "timeout" SUFFIX};
  return result >= 0 && result <= ncclTimeout ? ALL[result] : "unknown result code" SUFFIX;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  ENTER(ncclGetUniqueId, NULL);
  if (out == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclGetUniqueId: NULL");
  }
  struct id id;
  ncclResult_t result = make_job(&id);
  memset(out, 0, sizeof *out);
  memcpy(out, &id, sizeof id);
  return result;
}

static ncclResult_t run_init(struct task *t) {
  ncclResult_t result = join(t->comm, &t->id, NULL);
  if (result != ncclSuccess && t->child == NULL) {
    t->comm->broken = true;
    leave(t->comm, true);
  }
  return result;
}

static ncclResult_t init(ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank,
    const ncclConfig_t *config, int device, struct jcf_hit hit, const char *what, bool grows) {
  if (out == NULL || id == NULL) {
    return in_group(error(NULL, ncclInvalidArgument, "%s: NULL", what));
  }
  *out = NULL;
  if (nranks < 1 || nranks > MOST_RANKS || rank < 0 || rank >= nranks) {
    return in_group(error(NULL, ncclInvalidArgument, "%s: rank %d of %d; the fake has up to %d",
        what, rank, nranks, MOST_RANKS));
  }
  ncclComm_t c = new_comm(device);
  c->nranks = nranks;
  c->rank = rank;
  ncclResult_t result = set_config(c, config, NULL);
  if (result != ncclSuccess) {
    drop_comm(c);
    return in_group(result);
  }
  list_comm(c);
  /*
   * The slot is written now, in blocking mode too, so that another thread can abort it, and keeps
   * what failed (init.cc:2515). A blocking communicator's state is ncclSuccess all the time.
   */
  __atomic_store_n(out, c, __ATOMIC_RELEASE);
  struct task t = {.run = run_init, .comm = c, .hit = hit, .makes = true};
  memcpy(&t.id, id, sizeof t.id);
  if (grows) { /* a slot that is written twice */
    t.child = c;
    t.out = out;
    t.grown = true;
  }
  use_comm(c); /* aborted and gone by the end, perhaps */
  result = add_task(&t);
  if (result == ncclInProgress) {
    result = grows ? ncclSuccess : (ncclResult_t)state_of(c); /* init.cc:2682 and 3366 */
  }
  drop_comm(c);
  return result;
}

static ncclResult_t current_device(int *device) {
  cudaError_t e = cudaGetDevice(device);
  return e == cudaSuccess ? ncclSuccess : cuda_error(NULL, e, "initialization");
}

/* A hang is the task's: a non-blocking call returns nevertheless. */
#define ENTER_INIT(function, comm_) \
  static struct jcf_fn fn_ = {.name = #function}; \
  struct jcf_hit hit; \
  int who_ = comm_; \
  jcf_enter(&fn_, who_, &hit); \
  if (hit.error != 0) { \
    return in_group(error(NULL, hit.error, "%s: injected error %d", #function, hit.error)); \
  }

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  ENTER_INIT(ncclCommInitRank, rank);
  int device;
  ncclResult_t result = current_device(&device);
  return result != ncclSuccess
      ? in_group(result)
      : init(comm, nranks, &id, rank, NULL, device, hit, "ncclCommInitRank", false);
}

#if HAS(21400)
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  ENTER_INIT(ncclCommInitRankConfig, rank);
  int device;
  ncclResult_t result = current_device(&device);
  return result != ncclSuccess
      ? in_group(result)
      : init(comm, nranks, &id, rank, config, device, hit, "ncclCommInitRankConfig", false);
}
#endif

#if HAS(22300)
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nId,
    ncclUniqueId *ids, ncclConfig_t *config) {
  ENTER_INIT(ncclCommInitRankScalable, rank);
  if (nId < 1 || nId > nranks) {
    return in_group(
        error(NULL, ncclInvalidArgument, "ncclCommInitRankScalable: %d ids", nId));
  }
  int device;
  ncclResult_t result = current_device(&device);
  return result != ncclSuccess
      ? in_group(result)
      : init(comm, nranks, ids, rank, config, device, hit, "ncclCommInitRankScalable", false);
}
#endif

ncclResult_t ncclCommInitAll(ncclComm_t *comms_, int ndev, const int *devices) {
  ENTER_INIT(ncclCommInitAll, -1);
  if (hit.hang) {
    jcf_hang(NULL);
    hit.hang = false;
  }
  int count = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess) {
    return in_group(cuda_error(NULL, e, "ncclCommInitAll"));
  }
  if (comms_ == NULL || ndev < 1 || ndev > MOST_RANKS) {
    return in_group(error(NULL, ncclInvalidArgument, "ncclCommInitAll: %d devices", ndev));
  }
  for (int i = 0; i < ndev; i++) {
    int d = devices == NULL ? i : devices[i];
    if (d < 0 || d >= count) {
      return in_group(error(NULL, ncclInvalidArgument,
          "ncclCommInitAll: device %d is not from 0 to %d", d, count - 1));
    }
    for (int k = 0; k < i && devices != NULL && !several_ranks_a_device; k++) {
      if (devices[k] == d) {
        return in_group(error(NULL, ncclInvalidUsage,
            "Duplicate GPU detected: device %d is listed twice", d));
      }
    }
  }
  struct id id;
  ncclUniqueId whole;
  ncclResult_t result = make_job(&id);
  memset(&whole, 0, sizeof whole);
  memcpy(&whole, &id, sizeof id);
  group.depth++;
  for (int i = 0; i < ndev && result == ncclSuccess; i++) {
    result = init(&comms_[i], ndev, &whole, i, NULL, devices == NULL ? i : devices[i], hit,
        "ncclCommInitAll", false);
  }
  ncclResult_t end = --group.depth > 0 ? ncclSuccess : end_group();
  result = result != ncclSuccess ? result : end;
  if (result != ncclSuccess) {
    pthread_mutex_lock(&lock);
    struct job *j = find_job(id.random);
    pthread_mutex_unlock(&lock);
    if (j != NULL) {
      close_job(j);
      pthread_mutex_lock(&lock);
      drop_job(j);
      pthread_mutex_unlock(&lock);
    }
  }
  return result;
}

/* ---- calls that ranks of a communicator make together */

#if HAS(21800)
/* While the job runs, these return ncclSuccess (init.cc:3195, 3403, dev_runtime.cc:1368). */
static ncclResult_t begun(ncclResult_t result) {
  return result == ncclInProgress ? ncclSuccess : result;
}

static bool excluded(const struct task *t, int rank) {
  for (int i = 0; i < t->nexcluded; i++) {
    if (t->excluded[i] == rank) {
      return true;
    }
  }
  return false;
}

static ncclResult_t wait_meeting(struct task *t, const _Atomic uint64_t *word, uint64_t value) {
  ncclComm_t c = t->comm;
  int passes = 0;
  for (;;) {
    uint32_t bell = bell_of(c->shared, c->rank);
    int lost = -1;
    for (int r = 0; r < c->nranks && passes > 0 && lost < 0; r++) {
      lost = !excluded(t, r) && is_lost(c, c->shared, r) ? r : -1;
    }
    passes++;
    if (atomic_load(word) >= value) {
      return ncclSuccess;
    }
    if (atomic_load(&c->aborted) != 0) {
      return given_up(c, "a call of all ranks");
    }
    if (lost >= 0) {
      return error(c, ncclRemoteError, "rank %d is gone", lost);
    }
    wait_bell(c->shared, c->rank, bell, WAIT_MS);
  }
}

#if HAS(22700)
static ncclResult_t await_all(struct task *t, enum barrier kind) {
  ncclComm_t c = t->comm;
  uint64_t number = ++c->barriers[kind];
  atomic_store(&c->shared->places[c->rank].barriers[kind], number);
  ring_all(c->shared, c->nranks);
  ncclResult_t result = ncclSuccess;
  for (int r = 0; r < c->nranks && result == ncclSuccess; r++) {
    result = wait_meeting(t, &c->shared->places[r].barriers[kind], number);
  }
  return result;
}
#endif

static ncclResult_t run_split(struct task *t) {
  ncclComm_t c = t->comm;
  struct shared *s = c->shared;
  struct place *p = &s->places[c->rank];
  uint64_t number = ++c->meetings;
  struct meeting *m = &p->meetings[number % 2];
  m->color = t->color;
  m->key = t->key;
  atomic_store(&p->met, number);
  ring_all(s, c->nranks);
  for (int r = 0; r < c->nranks; r++) {
    ncclResult_t result = wait_meeting(t, &s->places[r].met, number);
    if (result != ncclSuccess) {
      return result;
    }
  }
  if (t->color == -1) {
    return ncclSuccess;
  }
  int size = 0, rank = 0, first = -1;
  for (int r = 0; r < c->nranks; r++) {
    struct meeting *other = &s->places[r].meetings[number % 2];
    if (other->color != t->color) {
      continue;
    }
    size++;
    rank += other->key < t->key || (other->key == t->key && r < c->rank);
    struct meeting *best = first < 0 ? NULL : &s->places[first].meetings[number % 2];
    first = best == NULL || other->key < best->key ? r : first;
  }
  t->child->nranks = size;
  t->child->rank = rank;
  struct meeting *leader = &s->places[first].meetings[number % 2];
  if (rank == 0) {
    ncclResult_t result = make_job(&leader->id);
    if (result != ncclSuccess) {
      return result;
    }
    atomic_store(&leader->published, number);
    ring_all(s, c->nranks);
  }
  ncclResult_t result = wait_meeting(t, &leader->published, number);
  return result != ncclSuccess ? result : join(t->child, &leader->id, &c->aborted);
}

static ncclResult_t add_child(
    struct task *t, ncclComm_t parent, const ncclConfig_t *config, ncclComm_t *out) {
  *out = NULL;
  t->comm = parent;
  t->out = out;
  t->makes = true;
  t->child = new_comm(parent->device);
  t->owns_child = true;
  ncclResult_t result = set_config(t->child, config, parent);
  if (result != ncclSuccess) {
    drop_comm(t->child);
    return in_group(result);
  }
  bool shares = !parent->revoked /* init.cc:3109, 497 */
      && (t->nexcluded > 0 ? t->flags != 1 && parent->config.shrinkShare == 1
                           : parent->config.splitShare == 1);
  if (shares) {
    if (parent->managers == NULL) {
      parent->managers = need(calloc(1, sizeof *parent->managers));
      atomic_store(parent->managers, 1);
    }
    atomic_fetch_add(parent->managers, 1);
    t->child->managers = parent->managers;
  }
  return begun(add_task(t));
}

ncclResult_t ncclCommSplit(
    ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  VISIT(comm, "ncclCommSplit");
  ENTER_INIT(ncclCommSplit, rank_of(comm));
  ncclResult_t result = check_ready(comm, "ncclCommSplit");
  if (result == ncclSuccess && (newcomm == NULL || color < -1)) {
    result = error(comm, ncclInvalidArgument, "ncclCommSplit: color %d", color);
  }
  if (result != ncclSuccess) {
    return in_group(result);
  }
  struct task t = {.run = run_split, .color = color, .key = key, .hit = hit};
  if (color == -1) { /* takes part, and gets none; the slot is written at the end nevertheless */
    *newcomm = NULL;
    t.comm = comm;
    t.out = newcomm;
    t.makes = true;
    return begun(add_task(&t));
  }
  return add_child(&t, comm, config, newcomm);
}
#endif

static void stop_operations(ncclComm_t c) {
  atomic_store(&c->stopped, 1);
  if (c->shared != NULL) {
    ring(c->shared, c->rank);
  }
  pthread_mutex_lock(&lock);
  while (atomic_load(&c->running) > 0) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
}

#if HAS(22700)
static int by_number(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

static ncclResult_t run_shrink(struct task *t) {
  ncclComm_t c = t->comm;
  struct shared *s = c->shared;
  uint64_t key = 0;
  int first = -1, rank = 0, skipped = 0;
  for (int r = 0; r < c->nranks; r++) {
    bool out = skipped < t->nexcluded && t->excluded[skipped] == r;
    skipped += out;
    key = key << 1 | key >> 63;
    key ^= out ? 0x9e3779b97f4a7c15ULL * (uint64_t)(r + 1) : 0;
    first = !out && first < 0 ? r : first;
    rank += !out && r < c->rank;
  }
  int size = c->nranks - t->nexcluded; /* one that is named twice counts twice: init.cc:1815-1828 */
  if (rank >= size) {
    return error(c, ncclInternalError, "ncclCommShrink: rank %d of %d", rank, size);
  }
  t->child->nranks = size;
  t->child->rank = rank;
  struct place *p = &s->places[first];
  uint64_t number = ++c->shrinks[first];
  if (rank == 0) {
    p->shrink_key = key;
    ncclResult_t result = make_job(&p->shrink);
    if (result != ncclSuccess) {
      c->shrinks[first]--; /* the others still wait for this one */
      return result;
    }
    for (int r = 0; r < c->nranks; r++) {
      if (!excluded(t, r)) {
        atomic_fetch_add(&p->shrinks[r], 1);
      }
    }
    ring_all(s, c->nranks);
  }
  ncclResult_t result = wait_meeting(t, &p->shrinks[c->rank], number);
  if (result == ncclSuccess && p->shrink_key != key) {
    result = error(c, ncclInvalidArgument, "ranks exclude different ranks");
  }
  return result != ncclSuccess ? result : join(t->child, &p->shrink, &c->aborted);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int excludeCount, ncclComm_t *newcomm,
    ncclConfig_t *config, int flags) {
  VISIT(comm, "ncclCommShrink");
  ENTER_INIT(ncclCommShrink, rank_of(comm));
  if (find(comm) && flags == 1) { /* ends what is on streams, then goes on as ever: init.cc:3184 */
    stop_operations(comm);
    atomic_store(&comm->stopped, 0);
  }
  /* what the proxy met is returned even so: init.cc:3095, 435 */
  ncclResult_t result = check_ready(comm, "ncclCommShrink");
  struct task t = {.run = run_shrink, .flags = flags, .nexcluded = excludeCount, .hit = hit};
  if (result == ncclSuccess
      && (newcomm == NULL || exclude == NULL || excludeCount < 1 || excludeCount >= comm->nranks
          || flags < 0 || flags > 1)) {
    result = error(comm, ncclInvalidArgument, "ncclCommShrink: %d ranks excluded, flags %d",
        excludeCount, flags);
  }
  for (int i = 0; i < excludeCount && result == ncclSuccess; i++) {
    t.excluded[i] = exclude[i];
    if (exclude[i] < 0 || exclude[i] >= comm->nranks || exclude[i] == comm->rank) {
      result = error(comm, ncclInvalidArgument, "ncclCommShrink: rank %d cannot exclude rank %d",
          comm->rank, exclude[i]);
    }
  }
  if (result == ncclSuccess) {
    qsort(t.excluded, (size_t)excludeCount, sizeof(int), by_number); /* init.cc:3088 */
  }
  return result != ncclSuccess ? in_group(result) : add_child(&t, comm, config, newcomm);
}
#endif

#if HAS(22900)
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *out) {
  ENTER(ncclCommGetUniqueId, comm);
  ncclResult_t result = check_ready(comm, "ncclCommGetUniqueId");
  if (result == ncclSuccess && out == NULL) {
    result = error(comm, ncclInvalidArgument, "ncclCommGetUniqueId: NULL");
  }
  if (result == ncclSuccess && comm->id_made) {
    result = error(comm, ncclInvalidUsage, "ncclCommGetUniqueId: an id is not used up yet");
  }
  if (result == ncclSuccess) {
    struct id id;
    result = make_job(&id);
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    comm->id_made = result == ncclSuccess;
  }
  return result;
}

static void publish_growth(ncclComm_t c, const struct id *id, int nranks) {
  struct place *p = &c->shared->places[c->rank];
  p->grow.id = *id;
  p->grow.key = nranks;
  atomic_store(&p->grow.published, c->grows + 1);
  ring_all(c->shared, c->nranks);
  c->id_made = false;
}

static ncclResult_t run_grow(struct task *t) {
  ncclComm_t parent = t->parent;
  struct shared *s = parent->shared;
  uint64_t number = ++parent->grows;
  struct place *root = NULL;
  while (root == NULL) {
    uint32_t bell = bell_of(s, parent->rank);
    for (int r = 0; r < parent->nranks && root == NULL; r++) {
      root = atomic_load(&s->places[r].grow.published) >= number ? &s->places[r] : NULL;
    }
    if (root == NULL
        && (atomic_load(&parent->aborted) != 0 || atomic_load(&t->comm->aborted) != 0)) {
      return given_up(parent, "ncclCommGrow");
    }
    if (root == NULL) {
      wait_bell(s, parent->rank, bell, WAIT_MS);
    }
  }
  return join(t->comm, &root->grow.id, &parent->aborted);
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
    ncclComm_t *newcomm, ncclConfig_t *config) {
  VISIT(comm, "ncclCommGrow");
  ENTER_INIT(ncclCommGrow, comm == NULL ? rank : rank_of(comm));
  if (comm == NULL) { /* a rank that comes new */
    int device;
    ncclResult_t result = current_device(&device);
    if (result == ncclSuccess && (id == NULL || rank < 0)) {
      result = error(NULL, ncclInvalidArgument, "ncclCommGrow: a new rank needs id and rank");
    }
    return result != ncclSuccess
        ? in_group(result)
        : init(newcomm, nranks, id, rank, config, device, hit, "ncclCommGrow", true);
  }
  ncclResult_t result = check_ready(comm, "ncclCommGrow");
  if (result == ncclSuccess
      && (newcomm == NULL || rank != -1 || nranks <= comm->nranks || nranks > MOST_RANKS)) {
    result = error(comm, ncclInvalidArgument, "ncclCommGrow: from %d to %d ranks, rank %d",
        comm->nranks, nranks, rank);
  }
  if (result == ncclSuccess && id != NULL && !comm->id_made) {
    result = error(comm, ncclInvalidUsage, "ncclCommGrow: the id is not of this communicator");
  }
  if (result != ncclSuccess) {
    return in_group(result);
  }
  struct task t = {.run = run_grow, .parent = comm, .has_id = id != NULL, .hit = hit};
  if (id != NULL) {
    memcpy(&t.id, id, sizeof t.id);
  }
  *newcomm = NULL;
  ncclComm_t c = new_comm(comm->device);
  c->nranks = nranks;
  c->rank = comm->rank;
  result = set_config(c, config, comm);
  if (result != ncclSuccess) {
    drop_comm(c);
    return in_group(result);
  }
  if (id != NULL) { /* before the others need it: they wait in the call (init.cc:3263) */
    publish_growth(comm, &t.id, nranks);
  }
  /* The state to watch is the new one's; its slot is written now and once more: init.cc:3323, 1961 */
  list_comm(c);
  *newcomm = c;
  t.comm = c;
  t.child = c;
  t.out = newcomm;
  t.grown = true;
  t.makes = true;
  return begun(add_task(&t));
}
#endif

/* ---- ending communicators */

static void wait_tasks(ncclComm_t c) {
  pthread_mutex_lock(&lock);
  while (atomic_load(&c->tasks) > 0) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
}

static void drop_belongings(ncclComm_t c) {
  pthread_mutex_lock(&lock);
  for (struct jcf_window **w = &windows; *w != NULL;) {
    struct jcf_window *x = *w;
    if (x->comm == c) {
      *w = x->next;
      free(x);
      jcf_live(JCF_WINDOWS, -1);
    } else {
      w = &x->next;
    }
  }
  for (struct registration **r = &registrations; *r != NULL;) {
    struct registration *x = *r;
    if (x->comm == c) {
      *r = x->next;
      free(x);
      jcf_live(JCF_REGISTRATIONS, -1);
    } else {
      r = &x->next;
    }
  }
  for (int i = 0; i < c->nredops; i++) {
    if (c->redops[i].taken) {
      c->redops[i].taken = false;
      jcf_live(JCF_REDOPS, -1);
    }
  }
  pthread_mutex_unlock(&lock);
}

/* Until operations are over, and all graphs that hold some are gone: init.cc:2751 */
static ncclResult_t run_finalize(struct task *t) {
  ncclComm_t c = t->comm;
  pthread_mutex_lock(&lock);
  while (atomic_load(&c->running) > 0 || atomic_load(&c->graphs) > 0) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

#if HAS(21400)
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  VISIT(comm, "ncclCommFinalize");
  ENTER_INIT(ncclCommFinalize, rank_of(comm));
  ncclResult_t result = check_ready(comm, "ncclCommFinalize");
  if (result == ncclSuccess && comm->finalized) { /* init.cc:2796; a revoked one is: 2990 */
    result = error(comm, ncclInvalidArgument, "ncclCommFinalize: the communicator is %s",
        comm->revoked ? "revoked" : "finalized");
  }
  if (result != ncclSuccess) {
    return in_group(refuse(comm, result));
  }
  comm->finalized = true;
  struct task t = {.run = run_finalize, .comm = comm, .hit = hit};
  result = add_task(&t);
  return result == ncclInProgress ? (ncclResult_t)state_of(comm) : result;
}
#endif

/*
 * The communicators of one job in one process are given back together, when the last of them is
 * destroyed or aborted; until then the others' peers see nothing of it (init.cc:2824-2873).
 */
static void reclaim(ncclComm_t comm) {
  ncclComm_t all = comm;
  if (comm->joined) {
    pthread_mutex_lock(&lock);
    struct job *j = comm->job;
    comm->next_ending = j->ending;
    j->ending = comm;
    all = ++j->ended == j->members ? comm : NULL;
    if (all != NULL) {
      j->ending = NULL;
    }
    pthread_mutex_unlock(&lock);
  }
  for (ncclComm_t c = all; c != NULL; c = c->next_ending) {
    struct task t = {.comm = c};
    if (c->broken) {
      stop_operations(c);
    }
    if (c->joined && !c->finalized) {
      run_finalize(&t);
    }
  }
  for (ncclComm_t c = all, next; c != NULL; c = next) {
    next = c->next_ending;
    pthread_mutex_lock(&lock); /* operations that were accepted after the end */
    while (atomic_load(&c->running) > 0) {
      pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    drop_belongings(c);
    leave(c, c->broken);
    jcf_live(JCF_COMMS, -1);
    drop_comm(c);
  }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ENTER(ncclCommDestroy, comm);
  if (comm == NULL) {
    return ncclSuccess;
  }
  if (!find(comm)) {
    return error(NULL, ncclInvalidArgument, "ncclCommDestroy: %p is no communicator", (void *)comm);
  }
  comm->destroyed = true;
  int state = look(comm);
  if (state != ncclSuccess) {
    group.depth++; /* and nobody ends it: init.cc:2890-2901 */
    left_open++;
    return state == ncclInProgress
        ? error(comm, ncclInvalidArgument, "ncclCommDestroy: Attempt to use communicator before the "
              "previous operation returned ncclSuccess")
        : (ncclResult_t)state;
  }
  unlist_comm(comm);
  reclaim(comm);
  return ncclSuccess;
}

#if HAS(2402)
/* From any thread, also while another is in a blocking call of it: init.cc:3025-3060, 426. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ENTER_FREELY(ncclCommAbort, comm);
  if (comm == NULL) {
    return ncclSuccess;
  }
  if (!unlist_comm(comm)) {
    return error(NULL, ncclInvalidArgument, "ncclCommAbort: %p is no communicator", (void *)comm);
  }
  comm->broken = true;
  comm->destroyed = true;
  atomic_store(&comm->aborted, 1);
  atomic_store(&comm->stopped, 1);
  pthread_mutex_lock(&lock);
  struct shared *s = comm->job == NULL ? NULL : comm->job->shared;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  if (s != NULL) {
    ring(s, comm->rank);
  }
  wait_tasks(comm);
  struct launch *l = comm->gjob;
  comm->gjob = NULL;
  if (l != NULL) {
    complete(l);
  }
  reclaim(comm);
  return ncclSuccess;
}
#endif

#if HAS(22807)
static ncclResult_t run_revoke(struct task *t) {
  stop_operations(t->comm);
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  VISIT(comm, "ncclCommRevoke");
  ENTER_INIT(ncclCommRevoke, rank_of(comm));
  if (!find(comm) || flags != 0 || comm->destroyed || comm->finalized || comm->revoked) {
    return in_group(error(NULL, ncclInvalidArgument,
        "ncclCommRevoke: flags %d, or the communicator was finalized or revoked", flags));
  }
  if (comm->gjob != NULL) {
    state_of(comm);
  }
  if (comm->gjob != NULL) {
    die(SIGABRT, "ncclCommRevoke of a non-blocking communicator whose last call nobody saw end: NCCL "
        "frees the job and keeps its address (init.cc:2989, 426; group.cc:902)");
  }
  comm->revoked = true;
  comm->finalized = true;
  atomic_store(&comm->failing, 0); /* its operations end, and with them what they reported */
  atomic_store(&comm->proxy, ncclSuccess);
  struct task t = {.run = run_revoke, .comm = comm, .hit = hit};
  ncclResult_t result = add_task(&t);
  return result == ncclInProgress ? (ncclResult_t)state_of(comm) : result;
}
#endif

/* ---- about communicators */

#if HAS(21304)
const char *ncclGetLastError(ncclComm_t comm) {
  static __thread char text[512];
  static struct jcf_fn fn = {.name = "ncclGetLastError"};
  struct jcf_hit hit;
  jcf_enter(&fn, -1, &hit);
  pthread_mutex_lock(&lock);
  (void)comm;
  memcpy(text, global_error, sizeof text);
  pthread_mutex_unlock(&lock);
  return text;
}
#endif

#if HAS(2402)
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
  ENTER(ncclCommGetAsyncError, comm);
  if (out == NULL || !find(comm)) {
    return error(NULL, ncclInvalidArgument, "ncclCommGetAsyncError: %p is no communicator",
        (void *)comm);
  }
  *out = look(comm);
  return ncclSuccess;
}
#endif

static ncclResult_t ask(ncclComm_t comm, const void *out, const char *what) {
  ncclResult_t result = check_ready(comm, what);
  return result == ncclSuccess && out == NULL ? error(comm, ncclInvalidArgument, "%s: NULL", what)
                                              : result;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *out) {
  ENTER(ncclCommCount, comm);
  ncclResult_t result = ask(comm, out, "ncclCommCount");
  if (result == ncclSuccess) {
    *out = comm->nranks;
  }
  return result;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *out) {
  ENTER(ncclCommCuDevice, comm);
  ncclResult_t result = ask(comm, out, "ncclCommCuDevice");
  if (result == ncclSuccess) {
    *out = comm->device;
  }
  return result;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *out) {
  ENTER(ncclCommUserRank, comm);
  ncclResult_t result = ask(comm, out, "ncclCommUserRank");
  if (result == ncclSuccess) {
    *out = comm->rank;
  }
  return result;
}

#if HAS(22907)
static ncclResult_t run_suspend(struct task *t) {
  ncclComm_t c = t->comm;
  if (c->suspended) { /* mem_manager.cc:404: the others wait for this rank */
    return error(c, ncclInvalidUsage, "ncclCommSuspend: already suspended");
  }
  cudaSetDevice(c->device);
  cudaError_t e = cudaDeviceSynchronize(); /* mem_manager.cc:417 */
  if (e != cudaSuccess) {
    return cuda_error(c, e, "ncclCommSuspend");
  }
  ncclResult_t result = await_all(t, SUSPENDED); /* mem_manager.cc:418 */
  if (result == ncclSuccess) {
    c->suspended = true;
    jcf_account(c->device, -(int64_t)SUSPENDABLE);
  }
  return result;
}

static ncclResult_t run_resume(struct task *t) {
  ncclComm_t c = t->comm;
  if (!c->suspended) { /* mem_manager.cc:536 */
    return error(c, ncclInvalidUsage, "ncclCommResume: not in suspended state");
  }
  if (!jcf_account(c->device, SUSPENDABLE)) { /* mem_manager.cc:576: the others wait for this rank */
    return cuda_error(c, cudaErrorMemoryAllocation, "ncclCommResume");
  }
  c->suspended = false;
  ncclResult_t result = await_all(t, RESUMED); /* mem_manager.cc:651 */
  return result == ncclSuccess ? await_all(t, RESUMED) : result; /* mem_manager.cc:896 */
}

/* mem_manager.cc:945 and 987; the group returns that and nothing else happens */
static ncclResult_t check_manager(ncclComm_t comm, const char *what) {
  return comm->managers != NULL && atomic_load(comm->managers) > 1
      ? in_group(error(comm, ncclInvalidUsage, "%s: not supported with split_share communicators",
            what))
      : ncclSuccess;
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  ENTER(ncclCommSuspend, comm);
  ncclResult_t result = check_ready(comm, "ncclCommSuspend");
  if (result != ncclSuccess || (flags & 1) == 0) {
    return result;
  }
  result = check_manager(comm, "ncclCommSuspend");
  struct task t = {.run = run_suspend, .comm = comm};
  return result != ncclSuccess ? result : add_task(&t);
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  ENTER(ncclCommResume, comm);
  ncclResult_t result = check_ready(comm, "ncclCommResume");
  if (result == ncclSuccess) {
    result = check_manager(comm, "ncclCommResume");
  }
  struct task t = {.run = run_resume, .comm = comm};
  return result != ncclSuccess ? result : add_task(&t);
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, int stat, uint64_t *out) {
  ENTER(ncclCommMemStats, comm);
  ncclResult_t result = ask(comm, out, "ncclCommMemStats");
  if (result == ncclSuccess && (stat < 0 || stat > 3)) {
    result = error(comm, ncclInvalidArgument, "ncclCommMemStats: %d", stat);
  }
  if (result == ncclSuccess) {
    const uint64_t values[] = {SUSPENDABLE, comm->suspended, PERSISTENT,
        comm->suspended ? PERSISTENT : PERSISTENT + SUSPENDABLE};
    *out = values[stat];
  }
  return result;
}
#endif

/* ---- memory */

#if HAS(21901)
ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
  ENTER(ncclMemAlloc, NULL);
  if (ptr == NULL || size == 0) {
    return error(NULL, ncclInvalidArgument, "ncclMemAlloc: %zu bytes", size);
  }
  cudaError_t e = jcf_nccl_alloc(ptr, size);
  return e == cudaSuccess ? ncclSuccess : cuda_error(NULL, e, "ncclMemAlloc");
}

ncclResult_t ncclMemFree(void *ptr) {
  ENTER(ncclMemFree, NULL);
  cudaError_t e = jcf_nccl_free(ptr);
  return e == cudaSuccess ? ncclSuccess : cuda_error(NULL, e, "ncclMemFree");
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle) {
  ENTER(ncclCommRegister, comm);
  ncclResult_t result = ask(comm, handle, "ncclCommRegister");
  if (result == ncclSuccess && size == 0) {
    result = error(comm, ncclInvalidArgument, "ncclCommRegister: 0 bytes");
  }
  if (result == ncclSuccess) {
    result = check_buffer(comm, buff, size, "ncclCommRegister", "buff");
  }
  const char *local = getenv("NCCL_LOCAL_REGISTER");
  if (result == ncclSuccess && local != NULL && strcmp(local, "0") == 0) {
    *handle = NULL; /* register.cc:156 */
    return ncclSuccess;
  }
  if (result == ncclSuccess) {
    struct registration *r = need(malloc(sizeof *r));
    pthread_mutex_lock(&lock);
    *r = (struct registration){comm, buff, size, registrations};
    registrations = r;
    pthread_mutex_unlock(&lock);
    jcf_live(JCF_REGISTRATIONS, 1);
    *handle = r;
  }
  return result;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
  ENTER(ncclCommDeregister, comm);
  if (!find(comm)) {
    return check_ready(comm, "ncclCommDeregister");
  }
  if (handle == NULL) { /* register.cc:182 */
    return ncclSuccess;
  }
  bool found = false;
  pthread_mutex_lock(&lock);
  for (struct registration **r = &registrations; *r != NULL; r = &(*r)->next) {
    if (*r == handle && (*r)->comm == comm) {
      struct registration *x = *r;
      *r = x->next;
      free(x);
      found = true;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  if (!found) {
    return error(comm, ncclInvalidUsage, "ncclCommDeregister: %p is no registration", handle);
  }
  jcf_live(JCF_REGISTRATIONS, -1);
  return ncclSuccess;
}
#endif

#if HAS(22700)
/* init.cc:1674 */
static bool has_symmetric_memory(void) {
  const char *mem = getenv("NCCL_CUMEM_ENABLE"), *win = getenv("NCCL_WIN_ENABLE");
  return (mem == NULL || strcmp(mem, "0") != 0) && (win == NULL || strcmp(win, "0") != 0);
}

static ncclResult_t run_window(struct task *t) {
  ncclComm_t c = t->comm;
  struct shared *s = c->shared;
  ncclResult_t checked = check_buffer(c, t->ptr, t->size, "ncclCommWindowRegister", "buff");
  if (checked != ncclSuccess) {
    return checked;
  }
  struct jcf_memory m = jcf_memory_of(t->ptr);
  if (!m.nccl) { /* alloc.h:383, on this rank alone: the others wait for it */
    return cuda_error(c, cudaErrorInvalidValue, "ncclCommWindowRegister");
  }
  if ((((uintptr_t)t->ptr - m.base) & 4095) != 0) { /* dev_runtime.cc:880 */
    return error(c, ncclInvalidArgument, "ncclCommWindowRegister: %p is not aligned to 4096",
        t->ptr);
  }
  uint64_t number = c->barriers[WINDOW_MADE] + 1;
  s->windows[number % MOST_WINDOWS][c->rank] = (struct shared_window){m.offset, t->size};
  ncclResult_t result = await_all(t, WINDOW_MADE);
  if (result != ncclSuccess) {
    return result;
  }
  if (t->hit.late_ms > 0) {
    jcf_sleep_ms(t->hit.late_ms);
  }
  struct jcf_window *w = need(malloc(sizeof *w));
  pthread_mutex_lock(&lock);
  *w = (struct jcf_window){c, t->ptr, t->size, (int)number, t->flags, windows};
  windows = w;
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_WINDOWS, 1);
  t->window = w;
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(
    ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags) {
  VISIT(comm, "ncclCommWindowRegister");
  ENTER_INIT(ncclCommWindowRegister, rank_of(comm));
  if (!find(comm) || win == NULL) {
    return in_group(error(NULL, ncclInvalidArgument, "ncclCommWindowRegister: %p, %p",
        (void *)comm, (void *)win));
  }
  *win = NULL;
  if (buff == NULL || size == 0) { /* dev_runtime.cc:1337 */
    return error(comm, ncclInvalidArgument, "ncclCommWindowRegister: %p, %zu bytes", buff, size);
  }
  if (!has_symmetric_memory()) { /* success, and no window, for good: dev_runtime.cc:1342 */
    return ncclSuccess;
  }
  ncclResult_t result = check_ready(comm, "ncclCommWindowRegister");
  if (result != ncclSuccess) {
    return in_group(result);
  }
  struct task t = {.run = run_window, .comm = comm, .ptr = buff, .size = size, .win_out = win,
      .flags = flags, .hit = hit, .makes = true};
  t.hit.late_ms = 0;
  return begun(add_task(&t));
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  ENTER(ncclCommWindowDeregister, comm);
  if (!find(comm)) {
    return check_ready(comm, "ncclCommWindowDeregister");
  }
  if (win == NULL) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&lock);
  struct jcf_window *w = find_window(comm, win);
  for (struct jcf_window **x = &windows; w != NULL && *x != NULL; x = &(*x)->next) {
    if (*x == w) {
      *x = w->next;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  if (w == NULL) { /* not checked: dev_runtime.cc:1376-1399 */
    die(SIGSEGV, "ncclCommWindowDeregister: %p is no window of this communicator", (void *)win);
  }
  free(w);
  jcf_live(JCF_WINDOWS, -1);
  return ncclSuccess;
}
#endif

#if HAS(22900)
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **ptr) {
  ENTER(ncclWinGetUserPtr, comm);
  ncclResult_t result = ask(comm, ptr, "ncclWinGetUserPtr");
  if (result == ncclSuccess) {
    pthread_mutex_lock(&lock);
    struct jcf_window *w = find_window(comm, win);
    *ptr = w == NULL ? NULL : w->ptr;
    pthread_mutex_unlock(&lock);
    if (w == NULL) {
      result = error(comm, ncclInvalidArgument, "ncclWinGetUserPtr: %p is no window of this "
          "communicator", (void *)win);
    }
  }
  return result;
}
#endif

/* ---- operations with a factor */

#if HAS(21104)
ncclResult_t ncclRedOpCreatePreMulSum(
    int *op, void *scalar, int type, int residence, ncclComm_t comm) {
  ENTER(ncclRedOpCreatePreMulSum, comm);
  ncclResult_t result = ask(comm, op, "ncclRedOpCreatePreMulSum");
  if (result != ncclSuccess) {
    return result;
  }
  if (scalar == NULL || type < 0 || type >= ncclNumTypes || (residence != 0 && residence != 1)
      || (type >= ncclFloat8e4m3 && version < 22400)) {
    return error(comm, ncclInvalidArgument,
        "ncclRedOpCreatePreMulSum: scalar %p, type %d, residence %d", scalar, type, residence);
  }
  struct redop r = {.taken = true, .type = type, .residence = residence};
  if (residence == ncclScalarHostImmediate) {
    memcpy(&r.scalar, scalar, (size_t)SIZES[type]);
    if (is_narrow(type)) {
      float f;
      uint64_t bits = r.scalar;
      widen(&f, &bits, type, 1);
      r.scalar = float_to_bits(f);
    }
  } else {
    result = check_buffer(comm, scalar, (size_t)SIZES[type], "ncclRedOpCreatePreMulSum", "scalar");
    if (result != ncclSuccess) {
      return result;
    }
    r.device_scalar = scalar;
  }
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < comm->nredops && comm->redops[i].taken) {
    i++;
  }
  if (i == comm->nredops) {
    comm->nredops++;
    comm->redops =
        need(realloc(comm->redops, (size_t)comm->nredops * sizeof *comm->redops));
  }
  comm->redops[i] = r;
  *op = ncclNumOps + i;
  pthread_mutex_unlock(&lock);
  jcf_live(JCF_REDOPS, 1);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(int op, ncclComm_t comm) {
  ENTER(ncclRedOpDestroy, comm);
  if (!find(comm)) {
    return check_ready(comm, "ncclRedOpDestroy");
  }
  pthread_mutex_lock(&lock);
  int i = op - ncclNumOps;
  bool known = i >= 0 && i < comm->nredops && comm->redops[i].taken;
  if (known) {
    comm->redops[i].taken = false;
  }
  pthread_mutex_unlock(&lock);
  if (!known) {
    return error(comm, ncclInvalidArgument, "ncclRedOpDestroy: operation %d", op);
  }
  jcf_live(JCF_REDOPS, -1);
  return ncclSuccess;
}
#endif

/* ---- parameters: some that NCCL documents, read from the environment */

#if HAS(23004)
struct jcf_param {
  const char *key, *otherwise;
};

static const struct jcf_param PARAMS[] = {{"NCCL_DEBUG", "NONE"}, {"NCCL_ALGO", ""},
    {"NCCL_PROTO", ""}, {"NCCL_MIN_CTAS", "-2"}, {"NCCL_MAX_CTAS", "-2"},
    {"NCCL_BUFFSIZE", "4194304"}, {"NCCL_P2P_DISABLE", "0"}, {"NCCL_SHM_DISABLE", "0"},
    {"NCCL_IB_DISABLE", "0"}, {"NCCL_NET_GDR_LEVEL", ""}, {"NCCL_SOCKET_IFNAME", ""},
    {"NCCL_MULTI_RANK_GPU_ENABLE", "0"}};
enum { NPARAMS = sizeof PARAMS / sizeof *PARAMS };

static const struct jcf_param *find_param(const char *key) {
  for (int i = 0; i < NPARAMS && key != NULL; i++) {
    if (strcmp(PARAMS[i].key, key) == 0) {
      return &PARAMS[i];
    }
  }
  return NULL;
}

static const char *param_text(const struct jcf_param *p) {
  const char *text = getenv(p->key);
  return text == NULL ? p->otherwise : text;
}

static bool is_param(ncclParamHandle_t h) {
  return (const struct jcf_param *)h >= PARAMS && (const struct jcf_param *)h < PARAMS + NPARAMS;
}

static ncclResult_t param_number(
    ncclParamHandle_t h, const void *out, long long least, long long most, long long *value) {
  if (!is_param(h) || out == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclParamGet: no parameter");
  }
  const char *text = param_text(h);
  char *end;
  *value = strtoll(text, &end, 0);
  if (end == text || *end != 0 || *value < least || *value > most) {
    return error(NULL, ncclInvalidArgument, "ncclParamGet: %s is '%s'", h->key, text);
  }
  return ncclSuccess;
}

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key) {
  ENTER(ncclParamBind, NULL);
  const struct jcf_param *p = find_param(key);
  if (out == NULL || p == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclParamBind: %s", key == NULL ? "NULL" : key);
  }
  *out = (ncclParamHandle_t)(uintptr_t)p;
  return ncclSuccess;
}

#define PARAM_GETTER(name, T, least, most) \
  ncclResult_t ncclParamGet##name(ncclParamHandle_t h, T *out) { \
    ENTER(ncclParamGet##name, NULL); \
    long long value; \
    ncclResult_t result = param_number(h, out, least, most, &value); \
    if (result == ncclSuccess) { \
      *out = (T)value; \
    } \
    return result; \
  }

PARAM_GETTER(I8, int8_t, INT8_MIN, INT8_MAX)
PARAM_GETTER(I16, int16_t, INT16_MIN, INT16_MAX)
PARAM_GETTER(I32, int32_t, INT32_MIN, INT32_MAX)
PARAM_GETTER(I64, int64_t, INT64_MIN, INT64_MAX)
PARAM_GETTER(U8, uint8_t, 0, UINT8_MAX)
PARAM_GETTER(U16, uint16_t, 0, UINT16_MAX)
PARAM_GETTER(U32, uint32_t, 0, UINT32_MAX)
PARAM_GETTER(U64, uint64_t, 0, INT64_MAX)

ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out) {
  ENTER(ncclParamGetStr, NULL);
  static __thread char text[256];
  if (!is_param(h) || out == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclParamGetStr: no parameter");
  }
  snprintf(text, sizeof text, "%s", param_text(h));
  *out = text;
  return ncclSuccess;
}

ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
  ENTER(ncclParamGet, NULL);
  if (!is_param(h) || out == NULL || len == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclParamGet: no parameter");
  }
  const char *text = param_text(h);
  int n = (int)strlen(text) + 1;
  if (maxLen < n) {
    return error(NULL, ncclInvalidArgument, "ncclParamGet: %d bytes for %d", maxLen, n);
  }
  memcpy(out, text, (size_t)n);
  *len = n;
  return ncclSuccess;
}

ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *len) {
  ENTER(ncclParamGetParameter, NULL);
  static __thread char text[256];
  const struct jcf_param *p = find_param(key);
  if (p == NULL || value == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclParamGetParameter: %s",
        key == NULL ? "NULL" : key);
  }
  snprintf(text, sizeof text, "%s", param_text(p));
  *value = text;
  if (len != NULL) {
    *len = (int)strlen(text);
  }
  return ncclSuccess;
}

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *len) {
  ENTER(ncclParamGetAllParameterKeys, NULL);
  static __thread const char *keys[NPARAMS];
  if (table == NULL || len == NULL) {
    return error(NULL, ncclInvalidArgument, "ncclParamGetAllParameterKeys: NULL");
  }
  for (int i = 0; i < NPARAMS; i++) {
    keys[i] = PARAMS[i].key;
  }
  *table = keys;
  *len = NPARAMS;
  return ncclSuccess;
}

void ncclParamDumpAll(void) {
  static struct jcf_fn fn = {.name = "ncclParamDumpAll"};
  struct jcf_hit hit;
  jcf_enter(&fn, -1, &hit);
  for (int i = 0; i < NPARAMS; i++) {
    printf("%s=%s\n", PARAMS[i].key, param_text(&PARAMS[i]));
  }
  fflush(stdout);
}
#endif
