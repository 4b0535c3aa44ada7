/*
 * Stands for CUDA's names when the kernels of src/main/cuda are compiled as C++: included before
 * them by the compiler's -include. A kernel is a function that runs for one thread of one block;
 * kernel_cpu.cc runs it for all of them.
 */
#ifndef JCCL_KERNEL_CPU_H
#define JCCL_KERNEL_CPU_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

extern "C" {
#include "fake_floats.h"
}
#include "kernel_fake.h"

#define INLINE static inline
#define __shared__ static __thread

struct jcf_dim3 {
  unsigned x, y, z;
};

extern __thread jcf_dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Lets the other threads of the block run until they are here too. */
void __syncthreads();

/*
 * CUDA C++ Programming Guide 13.0, "Atomic Functions": returns the old value. Blocks and threads run
 * on one thread of the machine.
 */
INLINE unsigned atomicAdd(unsigned *at, unsigned more) {
  unsigned old = *at;
  *at = old + more;
  return old;
}

/* CUDA Math API 13.0, "Integer Intrinsics": the place of the lowest bit that is set, from 1. */
INLINE int __ffs(int x) { return __builtin_ffs(x); }

/*
 * What each lane of the calling thread's warp has brought; a wait of the warp. A kernel in which some
 * lanes of a warp exchange and others wait elsewhere or have ended is aborted.
 */
struct jcf_lane {
  float values[12];
};

const jcf_lane *jcf_exchange(const jcf_lane &mine);

/* CUDA C++ Programming Guide 13.0, "Warp Shuffle Functions": the lane number xor mask. */
float __shfl_xor_sync(unsigned lanes, float x, int mask);

/*
 * mma.sync.aligned.m16n8k16.row.col.f32: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16 with
 * floating point type". Products are exact and their sum is rounded to float32 once; in which
 * precision and order a GPU adds, the PTX ISA leaves open.
 */
void jcf_multiply(float *c, const uint32_t *a, const uint32_t *b, float (*value)(uint16_t));

struct bf16;

INLINE float jcf_from_bf16(uint16_t bits) { return bits_to_float((uint32_t)bits << 16); }

template <class T> struct jcf_element {
  static const bool bfloat = false;
};

template <> struct jcf_element<bf16> {
  static const bool bfloat = true;
};

template <class T> INLINE void multiply(float *c, const uint32_t *a, const uint32_t *b) {
  jcf_multiply(c, a, b, jcf_element<T>::bfloat ? jcf_from_bf16 : from_half);
}

INLINE uint32_t bits_of(float x) { return float_to_bits(x); }

INLINE float float_of(uint32_t bits) { return bits_to_float(bits); }

INLINE uint16_t f16_of(float x) { return to_half(x); }

INLINE float float_of_f16(uint16_t h) { return from_half(h); }

INLINE unsigned long long nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long long)t.tv_sec * 1000000000ULL + (unsigned long long)t.tv_nsec;
}

/* Parameters as a launch passes them: values of the declared types, one after the other. */
template <class P> struct jcf_parameter {
  static const unsigned align = 0;
  static P read(const char *at) {
    P value;
    memcpy(&value, at, sizeof value);
    return value;
  }
};

template <class T> struct jcf_pointee {
  static const unsigned align = alignof(T);
};

template <> struct jcf_pointee<void> {
  static const unsigned align = 1;
};

template <class T> struct jcf_parameter<T *> {
  static const unsigned align = jcf_pointee<T>::align;
  /* kernel_fake.c has put the address there at which this process can touch the memory. */
  static T *read(const char *at) {
    T *value;
    memcpy(&value, at, sizeof value);
    return value;
  }
};

template <int...> struct jcf_indices {};

template <int N, int... I> struct jcf_count : jcf_count<N - 1, N - 1, I...> {};

template <int... I> struct jcf_count<0, I...> {
  typedef jcf_indices<I...> type;
};

/* A kernel that the fake can run; chained when the library is loaded. */
template <class... P> struct jcf_registered : jcf_host_kernel {
  typedef void (*function)(P...);
  const struct jcf_host_parameter all[sizeof...(P)] = {
      {(unsigned)sizeof(P), jcf_parameter<P>::align}...};

  template <int... I>
  static void call(void *f, const char *const *at, jcf_indices<I...>) {
    ((function)f)(jcf_parameter<P>::read(at[I])...);
  }

  static void run_one(void *f, const char *const *at) {
    call(f, at, typename jcf_count<(int)sizeof...(P)>::type());
  }

  jcf_registered(const char *name, function f) {
    this->name = name;
    this->function_pointer = (void *)f;
    this->thread = run_one;
    this->parameters = all;
    this->nparameters = (int)sizeof...(P);
    this->next = jcf_host_kernels;
    jcf_host_kernels = this;
  }
};

template <class... P> jcf_registered(const char *, void (*)(P...)) -> jcf_registered<P...>;

#define KERNEL(name, ...) \
  extern "C" void jcf_kernel_##name(__VA_ARGS__); \
  static jcf_registered jcf_registered_##name(#name, jcf_kernel_##name); \
  extern "C" void jcf_kernel_##name(__VA_ARGS__)

#endif
