/*
 * What the doubles of libnccl and libcublas use of that of libcudart, besides the runtime's own
 * functions.
 */
#ifndef JCCL_DOUBLE_INTERNAL_H
#define JCCL_DOUBLE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "double.h"

/* ---- counting and injection */

/* One exported function; static in it. */
struct jcd_fn {
  const char *name;
  atomic_long calls;
  atomic_int known;
  struct jcd_fn *next;
};

/* What the rules that a call met ask for. Delays are over when it is filled. */
struct jcd_hit {
  int error;   /* return it instead of doing anything */
  int async;   /* after the call, the communicator has this asynchronous error */
  int late_ms; /* out-slots and results come that much later */
  bool hang;   /* do not return */
  bool stall;  /* what is enqueued does not complete */
  bool corrupt; /* one element of what is received is wrong */
  bool die;    /* the process is killed while the operation runs */
};

/* Counts a call. who: the current device or the communicator's rank, -1 if there is none. */
JCD_API void jcd_enter(struct jcd_fn *fn, int who, struct jcd_hit *hit);
/* Waits until jccl_double_release, or until *stop is not 0. */
JCD_API void jcd_hang(atomic_int *stop);
JCD_API unsigned jcd_release_count(void);
JCD_API void jcd_sleep_ms(int ms);

enum {
  JCD_STREAMS,
  JCD_EVENTS,
  JCD_ALLOCATIONS,
  JCD_HOST,
  JCD_REGISTERED,
  JCD_POOLS,
  JCD_GRAPHS,
  JCD_EXECS,
  JCD_IPC,
  JCD_COMMS,
  JCD_REGISTRATIONS,
  JCD_WINDOWS,
  JCD_REDOPS,
  JCD_JOBS,
  JCD_CUBLAS,
  JCD_KINDS
};

JCD_API void jcd_live(int kind, int change);

/* Not 0: NCCL's operations return at once. */
JCD_API extern atomic_int jcd_noop, jcd_mismatch_hangs;

/* Runs "jccl_double:COMMAND"; false if the text is something else. */
JCD_API bool jcd_command(const char *text, int *result);

/* The error that every call returns by now, or 0. */
JCD_API int jcd_sticky(void);

/* ---- memory */

/* By what another process knows this one from a later one with its number, and maps its memory. */
struct jcd_process {
  uint64_t started;
  uint64_t arena_size;
  int32_t pid;
  int32_t arena_fd;
};

struct jcd_memory {
  int type; /* cudaMemoryType... */
  int device;
  bool bad;        /* in the doubles' memory, but not in a live allocation */
  bool mappable;   /* other processes can reach it, at offset */
  bool pool;       /* from a memory pool */
  bool nccl;       /* from ncclMemAlloc */
  uint64_t offset; /* of the address, in this process's arena */
  uintptr_t base;  /* of the allocation */
  size_t size;     /* of the allocation */
};

JCD_API void jcd_self(struct jcd_process *out);
JCD_API bool jcd_alive(const struct jcd_process *p);
JCD_API char *jcd_map(const struct jcd_process *p); /* its arena, NULL if it cannot be had */
JCD_API void *jcd_stored(const void *ptr); /* where what is at an address can be touched */
JCD_API struct jcd_memory jcd_memory_of(const void *ptr);
JCD_API bool jcd_peer_enabled(int device, int peer);
JCD_API void *jcd_scratch(size_t size); /* mappable, not counted */
JCD_API void jcd_scratch_free(void *ptr);
/* Takes memory of a device that no pointer stands for; negative gives it back. */
JCD_API bool jcd_account(int device, int64_t bytes);
JCD_API cudaError_t jcd_nccl_alloc(void **ptr, size_t size);
JCD_API cudaError_t jcd_nccl_free(void *ptr);

/* ---- streams */

typedef void (*jcd_call)(void *arg);

/* A point in a stream's work; counts as a user of the stream. */
struct jcd_dep {
  struct jcd_stream *stream;
  uint64_t seq;
};

/* A stream by handle and device of the caller, with a use counted; NULL if there is none. */
JCD_API struct jcd_stream *jcd_stream_use(cudaStream_t handle, int device);
JCD_API void jcd_stream_done(struct jcd_stream *s);
JCD_API int jcd_stream_device(struct jcd_stream *s);
/* Runs run(arg) and then release(arg) on the stream's thread, after deps. */
JCD_API struct jcd_dep jcd_enqueue(struct jcd_stream *s, jcd_call run, jcd_call release, void *arg,
    const struct jcd_dep *deps, int ndeps);
/* The end of what is enqueued now. */
JCD_API struct jcd_dep jcd_tail(struct jcd_stream *s);
JCD_API bool jcd_passed(const struct jcd_dep *dep);
/* What captures the stream, or NULL; *error: of using it now. */
JCD_API void *jcd_capture_of(struct jcd_stream *s, cudaError_t *error);
/*
 * Adds a node to a capture that follows all streams and that all streams follow. A launch of the
 * graph calls launch(arg, stream); the node owns arg by use(arg) and done(arg), which are called
 * under this library's lock and so may not call it.
 */
JCD_API void jcd_capture_node(struct jcd_stream **streams, int n,
    void (*launch)(void *arg, struct jcd_stream *s), jcd_call use, jcd_call done, void *arg);

/* ---- waiting between processes */

JCD_API void jcd_futex_wait(_Atomic uint32_t *word, uint32_t value, int ms);
JCD_API void jcd_futex_wake(_Atomic uint32_t *word);

#endif
