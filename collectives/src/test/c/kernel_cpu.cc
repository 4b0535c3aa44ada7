/*
 * The kernels of src/main/cuda on the CPU. One thread of the machine runs the blocks one after the
 * other, and the threads of a block one after the other up to a __syncthreads: there it leaves the
 * thread's stack and takes another one for the threads that follow. When all are there, it goes on
 * with each; warps that exchange something go on before those that wait for the block. A kernel
 * with neither never changes stacks.
 */
#include "kernel_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "../../main/cuda/kernels.cu"
#include "../../main/cuda/tensor.cu"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ASAN_START(save, stack, size) __sanitizer_start_switch_fiber(save, stack, size)
#define ASAN_FINISH(save, stack, size) __sanitizer_finish_switch_fiber(save, stack, size)
#include <dlfcn.h>
/* The C library's own: AddressSanitizer's warns, since it does not see what is announced here. */
static int switch_context(ucontext_t *from, const ucontext_t *to) {
  typedef int (*function)(ucontext_t *, const ucontext_t *);
  static void *const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return ((function)dlsym(libc, "swapcontext"))(from, to);
}
#else
#define ASAN_START(save, stack, size)
#define ASAN_FINISH(save, stack, size)
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define TSAN(call) call
#else
#define TSAN(call)
#endif

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OWN_SWITCH
/*
 * swapcontext without the signal mask, which takes most of its time: saves what a function has to
 * keep (System V ABI for AMD64, "Registers") on this stack, and goes on with another.
 */
extern "C" __attribute__((visibility("hidden"))) void jcf_switch(void **from, void *to);
__asm__(".text\n"
        ".globl jcf_switch\n"
        ".hidden jcf_switch\n"
        ".type jcf_switch, @function\n"
        "jcf_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size jcf_switch, .-jcf_switch\n");
#endif

struct jcf_host_kernel *jcf_host_kernels;

__thread jcf_dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

const size_t STACK = 64 << 10;
const unsigned MOST_THREADS = 1024, WARP_THREADS = 32;

/* Where a stack goes on. */
#if defined(OWN_SWITCH)
typedef void *place;
#else
typedef ucontext_t place;
#endif

struct launch;

struct fiber {
  place at_rest;
  launch *of;
  char *stack;
  void *fake_stack, *tsan;
  jcf_dim3 at;   /* the thread that waits on it, */
  bool for_warp; /* only for the others of its warp */
};

struct launch {
  const struct jcf_host_kernel *kernel;
  const char *const *arguments;
  unsigned threads, started, finished;
  bool reversed;
  place scheduler;
  void *scheduler_fake_stack, *scheduler_tsan;
  const void *scheduler_stack;
  size_t scheduler_size;
  fiber *running;
  fiber *fibers[MOST_THREADS];
  unsigned nfibers;
  fiber *waiting[MOST_THREADS];
  fiber *released[MOST_THREADS];
  unsigned nwaiting;
};

__thread launch *current;

void *need(void *p) {
  if (p == nullptr) {
    fprintf(stderr, "jccl fake: the machine is out of memory\n");
    abort();
  }
  return p;
}

/* Leaves one stack for another. */
void change(place *from, place *to) {
#if defined(OWN_SWITCH)
  jcf_switch(from, *to);
#elif defined(__SANITIZE_ADDRESS__)
  switch_context(from, to);
#else
  swapcontext(from, to);
#endif
}

void leave(fiber *f) {
  launch *l = f->of;
  ASAN_START(&f->fake_stack, l->scheduler_stack, l->scheduler_size);
  TSAN(__tsan_switch_to_fiber(l->scheduler_tsan, 0));
  change(&f->at_rest, &l->scheduler);
  ASAN_FINISH(f->fake_stack, nullptr, nullptr);
}

/* What runs on a stack: threads, one after the other, until none is left to start. */
void threads_of_block() {
  ASAN_FINISH(nullptr, &current->scheduler_stack, &current->scheduler_size);
  for (;;) {
    launch *l = current;
    while (l->started < l->threads) {
      unsigned n = l->started++;
      n = l->reversed ? l->threads - 1 - n : n;
      threadIdx = {n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y};
      l->kernel->thread(l->kernel->function_pointer, l->arguments);
      l->finished++;
    }
    leave(l->running);
  }
}

void resume(launch *l, fiber *f) {
  l->running = f;
  ASAN_START(&l->scheduler_fake_stack, f->stack, STACK);
  TSAN(__tsan_switch_to_fiber(f->tsan, 0));
  change(&l->scheduler, &f->at_rest);
  ASAN_FINISH(l->scheduler_fake_stack, nullptr, nullptr);
}

fiber *new_fiber(launch *l) {
  fiber *f = (fiber *)need(calloc(1, sizeof *f));
  f->of = l;
  f->stack = (char *)need(malloc(STACK));
  TSAN(f->tsan = __tsan_create_fiber(0));
#if defined(OWN_SWITCH)
  /* As a call leaves it: 8 bytes of a return address above a multiple of 16. Below it what
     jcf_switch takes off. The tops of all stacks would share few sets of the caches. */
  void **top = (void **)(((uintptr_t)f->stack + STACK - l->nfibers % 64 * 192) & ~(uintptr_t)15);
  memset(top - 8, 0, 8 * sizeof *top);
  top[-2] = (void *)threads_of_block;
  f->at_rest = top - 8;
#else
  getcontext(&f->at_rest);
  f->at_rest.uc_stack.ss_sp = f->stack;
  f->at_rest.uc_stack.ss_size = STACK;
  makecontext(&f->at_rest, threads_of_block, 0);
#endif
  l->fibers[l->nfibers++] = f;
  return f;
}

/* How many wait for their warp; all of a warp do or none. */
unsigned waiting_for_warps(launch *l) {
  unsigned of_warp[MOST_THREADS / WARP_THREADS] = {}, all = 0;
  for (unsigned i = 0; i < l->nwaiting; i++) {
    if (l->waiting[i]->for_warp) {
      of_warp[l->waiting[i]->at.x / WARP_THREADS]++;
      all++;
    }
  }
  for (unsigned n : of_warp) {
    if (n % WARP_THREADS != 0) {
      fprintf(stderr, "jccl fake: %u threads of a warp of kernel %s exchange, expected all of %u\n",
          n, l->kernel->name, WARP_THREADS);
      abort();
    }
  }
  return all;
}

void run_block(launch *l) {
  l->started = l->finished = 0;
  unsigned idle = 0; /* fibers below it are taken by threads that wait */
  while (l->finished < l->threads) {
    if (l->started < l->threads) {
      resume(l, idle < l->nfibers ? l->fibers[idle] : new_fiber(l));
      idle = l->nwaiting;
      continue;
    }
    bool warps = waiting_for_warps(l) > 0;
    if (!warps && l->finished > 0) {
      fprintf(stderr, "jccl fake: %u of %u threads of kernel %s ended before a __syncthreads\n",
          l->finished, l->threads, l->kernel->name);
      abort();
    }
    unsigned n = 0, rest = 0;
    for (unsigned i = 0; i < l->nwaiting; i++) {
      fiber *f = l->waiting[i];
      if (f->for_warp == warps) {
        l->released[n++] = f;
      } else {
        l->waiting[rest++] = f;
      }
    }
    l->nwaiting = rest;
    for (unsigned i = 0; i < n; i++) {
      fiber *f = l->released[l->reversed ? n - 1 - i : i];
      threadIdx = f->at;
      resume(l, f);
    }
  }
}

void wait(bool for_warp) {
  launch *l = current;
  fiber *f = l->running;
  f->at = threadIdx;
  f->for_warp = for_warp;
  l->waiting[l->nwaiting++] = f;
  leave(f);
}

}  // namespace

void __syncthreads() { wait(false); }

/*
 * Two turns of memory: whoever brings something again after a wait does not disturb those that
 * still read.
 */
const jcf_lane *jcf_exchange(const jcf_lane &mine) {
  static thread_local jcf_lane brought[2][MOST_THREADS];
  static thread_local unsigned char turns[MOST_THREADS];
  unsigned me = threadIdx.x;
  unsigned turn = turns[me] ^= 1;
  brought[turn][me] = mine;
  wait(true);
  return &brought[turn][me / WARP_THREADS * WARP_THREADS];
}

float __shfl_xor_sync(unsigned lanes, float x, int mask) {
  if (lanes != 0xffffffffu) {
    fprintf(stderr, "jccl fake: a shuffle of lanes %#x, expected all of a warp\n", lanes);
    abort();
  }
  jcf_lane mine = {{x}};
  return jcf_exchange(mine)[(threadIdx.x ^ (unsigned)mask) % 32].values[0];
}

void jcf_multiply(float *c, const uint32_t *a, const uint32_t *b, float (*value)(uint16_t)) {
  jcf_lane mine;
  for (int e = 0; e < 12; e++) {
    uint32_t two = e < 8 ? a[e / 2] : b[e / 2 - 4];
    mine.values[e] = value((uint16_t)(e % 2 == 0 ? two : two >> 16));
  }
  const jcf_lane *warp = jcf_exchange(mine);
  unsigned group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
  for (unsigned e = 0; e < 4; e++) {
    unsigned row = group + e / 2 * 8, column = place * 2 + e % 2;
    double sum = (double)c[e];
    for (unsigned k = 0; k < 16; k++) {
      /* Of a: rows group and group + 8 in turn, each a pair of columns; then columns 8 to 15. */
      float left = warp[row % 8 * 4 + k % 8 / 2].values[k / 8 * 4 + row / 8 * 2 + k % 2];
      float right = warp[column * 4 + k % 8 / 2].values[8 + k / 8 * 2 + k % 2];
      sum += (double)left * (double)right;
    }
    c[e] = (float)sum;
  }
}

void jcf_run_blocks(const struct jcf_host_kernel *kernel, const char *const *arguments,
    const unsigned grid[3], const unsigned block[3], int reversed) {
  launch *l = (launch *)need(calloc(1, sizeof *l));
  l->kernel = kernel;
  l->arguments = arguments;
  l->threads = block[0] * block[1] * block[2];
  l->reversed = reversed != 0;
  TSAN(l->scheduler_tsan = __tsan_get_current_fiber());
  current = l;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  unsigned long blocks = (unsigned long)grid[0] * grid[1] * grid[2];
  for (unsigned long b = 0; b < blocks; b++) {
    unsigned long n = l->reversed ? blocks - 1 - b : b;
    blockIdx = {(unsigned)(n % grid[0]), (unsigned)(n / grid[0] % grid[1]),
        (unsigned)(n / grid[0] / grid[1])};
    run_block(l);
  }
  current = nullptr;
  for (unsigned i = 0; i < l->nfibers; i++) {
    TSAN(__tsan_destroy_fiber(l->fibers[i]->tsan));
    free(l->fibers[i]->stack);
    free(l->fibers[i]);
  }
  free(l);
}
