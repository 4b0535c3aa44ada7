/*
 * What the fakes of libnccl and libcublas use of that of libcudart, besides the runtime's own
 * functions.
 */
#ifndef JCCL_FAKE_INTERNAL_H
#define JCCL_FAKE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "fake.h"

enum { JCF_MOST_DEVICES = 64 };

/* ---- counting and injection */

/* One exported function; static in it. */
struct jcf_fn {
  const char *name;
  atomic_long calls;
  atomic_int known;
  struct jcf_fn *next;
};

/* What the rules that a call met ask for. Delays are over when it is filled. */
struct jcf_hit {
  int error;   /* return it instead of doing anything */
  int async;   /* after the call, the communicator has this asynchronous error */
  int late_ms; /* out-slots and results come that much later */
  bool hang;   /* do not return */
  bool stall;  /* what is enqueued does not complete */
  bool corrupt; /* one element of what is received is wrong */
  bool die;    /* the process is killed while the operation runs */
};

/* Counts a call. who: the current device or the communicator's rank, -1 if there is none. */
JCF_API void jcf_enter(struct jcf_fn *fn, int who, struct jcf_hit *hit);
/* Waits until jccl_fake_release, or until *stop is not 0. */
JCF_API void jcf_hang(atomic_int *stop);
JCF_API unsigned jcf_release_count(void);
JCF_API void jcf_sleep_ms(int ms);

enum {
  JCF_STREAMS,
  JCF_EVENTS,
  JCF_ALLOCATIONS,
  JCF_HOST,
  JCF_REGISTERED,
  JCF_POOLS,
  JCF_GRAPHS,
  JCF_EXECS,
  JCF_IPC,
  JCF_COMMS,
  JCF_REGISTRATIONS,
  JCF_WINDOWS,
  JCF_REDOPS,
  JCF_JOBS,
  JCF_CUBLAS,
  JCF_KINDS
};

JCF_API void jcf_live(int kind, int change);

/* Not 0: NCCL's operations return at once. */
JCF_API extern atomic_int jcf_noop, jcf_mismatch_hangs, jcf_death_spins;

/* Runs "jccl_fake:COMMAND"; false if the text is something else. */
JCF_API bool jcf_command(const char *text, int *result);

/* The error that every call returns by now, or 0. */
JCF_API int jcf_sticky(void);

/* Begins a function of the runtime that needs a context; what to return at once, if not success. */
JCF_API cudaError_t jcf_runtime_enter(struct jcf_fn *fn, struct jcf_hit *hit);
/* The same for a function of the driver; who as for jcf_enter. */
JCF_API cudaError_t jcf_driver_enter(struct jcf_fn *fn, int who, struct jcf_hit *hit);
/* The device of the thread's current context, -1 if it has none. */
JCF_API int jcf_current_context(void);
/* The compute capability of the devices, times 10. */
JCF_API int jcf_capability(void);
JCF_API int jcf_driver_version(void);
/* What cudaGetDriverEntryPoint finds, or NULL. */
void *jcf_driver_function(const char *name);
/* Remembers an error as the calling thread's last one, and returns it. */
JCF_API cudaError_t jcf_fail(cudaError_t error);

/* ---- memory */

/* By what another process knows this one from a later one with its number, and maps its memory. */
struct jcf_process {
  uint64_t started;
  uint64_t arena_size;
  int32_t pid;
  int32_t arena_fd;
};

struct jcf_memory {
  int type; /* cudaMemoryType... */
  int device;
  bool bad;        /* in the fakes' memory, but not in a live allocation */
  bool mappable;   /* other processes can reach it, at offset */
  bool pool;       /* from a memory pool */
  bool nccl;       /* from ncclMemAlloc */
  uint64_t offset; /* of the address, in this process's arena */
  uintptr_t base;  /* of the allocation */
  size_t size;     /* of the allocation */
};

JCF_API void jcf_self(struct jcf_process *out);
JCF_API bool jcf_alive(const struct jcf_process *p);
JCF_API char *jcf_map(const struct jcf_process *p); /* its arena, NULL if it cannot be had */
JCF_API void *jcf_stored(const void *ptr); /* where what is at an address can be touched */
JCF_API struct jcf_memory jcf_memory_of(const void *ptr);
JCF_API bool jcf_peer_enabled(int device, int peer);
JCF_API void *jcf_scratch(size_t size); /* mappable, not counted */
JCF_API void jcf_scratch_free(void *ptr);
/* Takes memory of a device that no pointer stands for; negative gives it back. */
JCF_API bool jcf_account(int device, int64_t bytes);
JCF_API cudaError_t jcf_nccl_alloc(void **ptr, size_t size);
JCF_API cudaError_t jcf_nccl_free(void *ptr);

/* ---- streams */

typedef void (*jcf_call)(void *arg);

/* A point in a stream's work; counts as a user of the stream. */
struct jcf_dep {
  struct jcf_stream *stream;
  uint64_t seq;
};

/* A stream by handle and device of the caller, with a use counted; NULL if there is none. */
JCF_API struct jcf_stream *jcf_stream_use(cudaStream_t handle, int device);
JCF_API void jcf_stream_done(struct jcf_stream *s);
JCF_API int jcf_stream_device(struct jcf_stream *s);
/* Waits for all that is enqueued on a device now. */
JCF_API void jcf_sync_device(int device);
/* Waits until the stream takes another kernel. */
JCF_API void jcf_await_room(struct jcf_stream *s);
/* Runs run(arg) and then release(arg) on the stream's thread, after deps. Takes the room of a kernel. */
JCF_API struct jcf_dep jcf_enqueue(struct jcf_stream *s, jcf_call run, jcf_call release, void *arg,
    const struct jcf_dep *deps, int ndeps);
/* The same for a kernel: waits first until the stream has room for one. */
JCF_API void jcf_launch(struct jcf_stream *s, jcf_call run, jcf_call release, void *arg);
/* The end of what is enqueued now. */
JCF_API struct jcf_dep jcf_tail(struct jcf_stream *s);
JCF_API bool jcf_passed(const struct jcf_dep *dep);
/* What captures the stream, or NULL; *error: of using it now. */
JCF_API void *jcf_capture_of(struct jcf_stream *s, cudaError_t *error);
/*
 * Adds a node to a capture that follows all streams and that all streams follow. A launch of the
 * graph calls launch(arg, stream); the node owns arg by use(arg) and done(arg), which are called
 * under this library's lock and so may not call it.
 */
JCF_API void jcf_capture_node(struct jcf_stream **streams, int n,
    void (*launch)(void *arg, struct jcf_stream *s), jcf_call use, jcf_call done, void *arg);

/* ---- waiting between processes */

JCF_API void jcf_futex_wait(_Atomic uint32_t *word, uint32_t value, int ms);
JCF_API void jcf_futex_wake(_Atomic uint32_t *word);

#endif
