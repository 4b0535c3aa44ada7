/* The part of the fake of libcudart that knows nothing of CUDA: counting, injection, futexes. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake_internal.h"

static const char *const KINDS[JCF_KINDS] = {"streams", "events", "allocations", "host",
    "registered", "pools", "graphs", "execs", "ipc", "comms", "registrations", "windows", "redops",
    "jobs", "cublas"};

struct rule {
  char function[64];
  int who;         /* -1: any */
  long from, to;   /* which matching calls, counted from 1 */
  long seen;
  struct jcf_hit hit;
  int delay_ms;
  bool kill;
  int sticky;
};

enum { MOST_RULES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jcf_fn *functions; /* guarded by lock */
static struct rule rules[MOST_RULES];
static int nrules;
static atomic_int any_rules;
static _Atomic uint32_t released;
static atomic_long live[JCF_KINDS];

const char *jccl_fake_name(void) { return "jccl fake of libcudart"; }

long jccl_fake_calls(const char *function) {
  long calls = -1;
  pthread_mutex_lock(&lock);
  for (struct jcf_fn *f = functions; f != NULL; f = f->next) {
    if (strcmp(f->name, function) == 0) { /* several times if two libnccl are loaded */
      calls = (calls < 0 ? 0 : calls) + atomic_load(&f->calls);
    }
  }
  pthread_mutex_unlock(&lock);
  return calls;
}

void jcf_live(int kind, int change) { atomic_fetch_add(&live[kind], change); }

long jccl_fake_live(const char *kind) {
  long sum = 0;
  for (int k = 0; k < JCF_KINDS; k++) {
    sum += atomic_load(&live[k]);
    if (strcmp(KINDS[k], kind) == 0) {
      return atomic_load(&live[k]);
    }
  }
  return strcmp(kind, "all") == 0 ? sum : -1;
}

/* ---- rules */

static bool number(const char **at, long *out) {
  char *end;
  errno = 0;
  *out = strtol(*at, &end, 10);
  bool ok = end != *at && errno == 0;
  *at = end;
  return ok;
}

static bool word(const char **at, const char *text) {
  size_t n = strlen(text);
  if (strncmp(*at, text, n) != 0) {
    return false;
  }
  *at += n;
  return true;
}

static bool action(const char **at, struct rule *r) {
  long n = 0;
  if (word(at, "error=") && number(at, &n)) {
    r->hit.error = (int)n;
  } else if (word(at, "async=") && number(at, &n)) {
    r->hit.async = (int)n;
  } else if (word(at, "sticky=") && number(at, &n)) {
    r->sticky = (int)n;
  } else if (word(at, "delay=") && number(at, &n)) {
    r->delay_ms = (int)n;
  } else if (word(at, "late=") && number(at, &n)) {
    r->hit.late_ms = (int)n;
  } else if (word(at, "hang")) {
    r->hit.hang = true;
  } else if (word(at, "stall")) {
    r->hit.stall = true;
  } else if (word(at, "corrupt")) {
    r->hit.corrupt = true;
  } else if (word(at, "kill")) {
    r->kill = true;
  } else if (word(at, "die")) {
    r->hit.die = true;
  } else {
    return false;
  }
  return true;
}

/* function[@who]:which:action[+action...] with which: n, n+ or * */
static bool parse(const char **at, struct rule *r) {
  memset(r, 0, sizeof *r);
  size_t n = strcspn(*at, ":@;");
  if (n == 0 || n >= sizeof r->function) {
    return false;
  }
  memcpy(r->function, *at, n);
  *at += n;
  r->who = -1;
  long who = 0;
  if (word(at, "@")) {
    if (!number(at, &who) || who < 0) {
      return false;
    }
    r->who = (int)who;
  }
  if (!word(at, ":")) {
    return false;
  }
  r->from = 1;
  r->to = 1L << 62;
  if (!word(at, "*")) {
    if (!number(at, &r->from) || r->from < 1) {
      return false;
    }
    if (!word(at, "+")) {
      r->to = r->from;
    }
  }
  if (!word(at, ":")) {
    return false;
  }
  do {
    if (!action(at, r)) {
      return false;
    }
  } while (word(at, "+"));
  return true;
}

int jccl_fake_inject(const char *text) {
  struct rule parsed[MOST_RULES];
  int n = 0;
  while (*text != 0) {
    if (n == MOST_RULES || !parse(&text, &parsed[n])) {
      return -1;
    }
    n++;
    if (!word(&text, ";") && *text != 0) {
      return -1;
    }
  }
  pthread_mutex_lock(&lock);
  bool fits = nrules + n <= MOST_RULES;
  if (fits && n > 0) {
    memcpy(rules + nrules, parsed, (size_t)n * sizeof *rules);
    nrules += n;
    atomic_store(&any_rules, 1);
  }
  pthread_mutex_unlock(&lock);
  return fits ? n : -1;
}

__attribute__((constructor)) static void read_environment(void) {
  const char *text = getenv("JCCL_FAKE_INJECT");
  if (text != NULL && jccl_fake_inject(text) < 0) {
    fprintf(stderr, "jccl fake: JCCL_FAKE_INJECT is not understood: %s\n", text);
    abort();
  }
}

void jccl_fake_clear(void) {
  pthread_mutex_lock(&lock);
  nrules = 0;
  atomic_store(&any_rules, 0);
  pthread_mutex_unlock(&lock);
}

static void match(const char *name, int who, struct jcf_hit *hit) {
  int delay = 0;
  int sticky = 0;
  bool dies = false;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < nrules; i++) {
    struct rule *r = &rules[i];
    if (strcmp(r->function, name) != 0 || (r->who >= 0 && r->who != who)) {
      continue;
    }
    r->seen++;
    if (r->seen < r->from || r->seen > r->to) {
      continue;
    }
    delay += r->delay_ms;
    dies |= r->kill;
    sticky = r->sticky != 0 ? r->sticky : sticky;
    hit->error = r->hit.error != 0 ? r->hit.error : hit->error;
    hit->async = r->hit.async != 0 ? r->hit.async : hit->async;
    hit->late_ms += r->hit.late_ms;
    hit->hang |= r->hit.hang;
    hit->stall |= r->hit.stall;
    hit->corrupt |= r->hit.corrupt;
    hit->die |= r->hit.die;
  }
  pthread_mutex_unlock(&lock);
  if (dies) {
    kill(getpid(), SIGKILL);
  }
  if (delay > 0) {
    jcf_sleep_ms(delay);
  }
  if (sticky != 0) {
    jccl_fake_sticky(sticky);
    hit->error = sticky;
  }
}

void jcf_enter(struct jcf_fn *fn, int who, struct jcf_hit *hit) {
  memset(hit, 0, sizeof *hit);
  if (atomic_exchange_explicit(&fn->known, 1, memory_order_relaxed) == 0) {
      pthread_mutex_lock(&lock);
    fn->next = functions;
    functions = fn;
    pthread_mutex_unlock(&lock);
  }
  atomic_fetch_add_explicit(&fn->calls, 1, memory_order_relaxed);
  if (atomic_load_explicit(&any_rules, memory_order_relaxed) != 0) {
    match(fn->name, who, hit);
  }
}

/* ---- waiting */

void jcf_futex_wait(_Atomic uint32_t *word_, uint32_t value, int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  syscall(SYS_futex, (uint32_t *)word_, FUTEX_WAIT, value, &t, NULL, 0);
}

void jcf_futex_wake(_Atomic uint32_t *word_) {
  syscall(SYS_futex, (uint32_t *)word_, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

void jcf_sleep_ms(int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

unsigned jcf_release_count(void) { return atomic_load(&released); }

void jcf_hang(atomic_int *stop) {
  uint32_t before = atomic_load(&released);
  while (atomic_load(&released) == before && (stop == NULL || atomic_load(stop) == 0)) {
    jcf_futex_wait(&released, before, 20);
  }
}

void jccl_fake_release(void) {
  atomic_fetch_add(&released, 1);
  jcf_futex_wake(&released);
}

/* ---- commands in a string, for callers that reach only what CUDA and NCCL have */

bool jcf_command(const char *text, int *result) {
  static const char START[] = "jccl_fake:";
  if (strncmp(text, START, sizeof START - 1) != 0) {
    return false;
  }
  const char *at = text + sizeof START - 1;
  *result = 0;
  if (word(&at, "inject:")) {
    *result = jccl_fake_inject(at);
  } else if (word(&at, "calls:")) {
    *result = (int)jccl_fake_calls(at);
  } else if (word(&at, "live:")) {
    *result = (int)jccl_fake_live(at);
  } else if (word(&at, "sticky:")) {
    jccl_fake_sticky(atoi(at));
  } else if (word(&at, "noop:")) {
    jccl_fake_noop(atoi(at));
  } else if (word(&at, "mismatch_hangs:")) {
    jccl_fake_mismatch_hangs(atoi(at));
  } else if (word(&at, "death_spins:")) {
    jccl_fake_death_spins(atoi(at));
  } else if (word(&at, "capability:")) {
    jccl_fake_capability(atoi(at));
  } else if (word(&at, "threads_reversed:")) {
    jccl_fake_threads_reversed(atoi(at));
  } else if (word(&at, "contexts")) {
    *result = jccl_fake_contexts();
  } else if (word(&at, "clear")) {
    jccl_fake_clear();
  } else if (word(&at, "release")) {
    jccl_fake_release();
  } else {
    *result = -2;
  }
  return true;
}

/* ---- the switches of libnccl: "return at once", and what ranks that disagree meet */

atomic_int jcf_noop;
atomic_int jcf_mismatch_hangs;
atomic_int jcf_death_spins;

void jccl_fake_noop(int on) { atomic_store(&jcf_noop, on); }

void jccl_fake_mismatch_hangs(int on) { atomic_store(&jcf_mismatch_hangs, on); }

void jccl_fake_death_spins(int on) { atomic_store(&jcf_death_spins, on); }
