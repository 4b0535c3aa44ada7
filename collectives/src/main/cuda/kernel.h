/*
 * What all kernels use. Compiled by nvcc, and as C++ for the fake CUDA of the tests, where
 * kernel_cpu.h (collectives/src/test/c) stands for CUDA's own names.
 *
 * Every kernel runs with blocks of BLOCK threads in one dimension and any number of blocks: loops
 * go over the whole grid. Nothing is fused (-fmad=false), so that results equal the CPU's.
 */
#ifndef JCCL_KERNEL_H
#define JCCL_KERNEL_H

#define BLOCK 256

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct bf16 {
  u16 bits;
};

struct f16 {
  u16 bits;
};

#ifdef __CUDACC__

#define KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(BLOCK) name(__VA_ARGS__)
#define INLINE __device__ __forceinline__

INLINE u32 bits_of(float x) { return __float_as_uint(x); }

INLINE float float_of(u32 bits) { return __uint_as_float(bits); }

INLINE u16 f16_of(float x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}

INLINE float float_of_f16(u16 h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}

INLINE u64 nanoseconds() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

#endif

/* The type in which elements of a type are computed with. */
template <class T> struct wide_of {
  typedef float type;
};

template <> struct wide_of<double> {
  typedef double type;
};

INLINE float widen(float x) { return x; }

INLINE double widen(double x) { return x; }

INLINE float widen(bf16 x) { return float_of((u32)x.bits << 16); }

INLINE float widen(f16 x) { return float_of_f16(x.bits); }

/*
 * Nearest float32, but odd in the last bit where inexact, so that rounding once more to a narrow
 * type gives what rounding once would.
 */
INLINE float round_to_odd(double x) {
  float nearest = (float)x;
  double back = (double)nearest;
  if (back == x || x != x) {
    return nearest;
  }
  bool larger = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  return float_of((bits_of(nearest) - (larger ? 1u : 0u)) | 1u);
}

INLINE void narrow(float x, float *to) { *to = x; }

INLINE void narrow(float x, double *to) { *to = (double)x; }

INLINE void narrow(float x, bf16 *to) {
  u32 bits = bits_of(x);
  /* A NaN must not be rounded into infinity: its quiet bit is set instead. */
  to->bits = (u16)((bits & 0x7fffffffu) > 0x7f800000u
          ? bits >> 16 | 0x40u
          : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

INLINE void narrow(float x, f16 *to) { to->bits = f16_of(x); }

INLINE void narrow(double x, float *to) { *to = (float)x; }

INLINE void narrow(double x, double *to) { *to = x; }

INLINE void narrow(double x, bf16 *to) { narrow(round_to_odd(x), to); }

INLINE void narrow(double x, f16 *to) { narrow(round_to_odd(x), to); }

INLINE float minus_infinity() { return float_of(0xff800000u); }

INLINE long first_index() { return (long)blockIdx.x * BLOCK + threadIdx.x; }

INLINE long index_step() { return (long)gridDim.x * BLOCK; }

#define EACH(i, n) for (long i = first_index(), step_ = index_step(); i < (n); i += step_)

/* Neighbours in memory, moved by as few instructions as may be. */
template <class T, int N> struct pack {
  T at[N];
} __attribute__((__may_alias__, __aligned__(sizeof(T) * N > 16 ? 16 : sizeof(T) * N)));

template <int N, class T> INLINE pack<T, N> pack_at(const T *from) {
  return *(const pack<T, N> *)from;
}

template <int N, class T> INLINE void put_pack(T *to, const pack<T, N> &x) {
  *(pack<T, N> *)to = x;
}

template <class... T> INLINE bool aligned(const T *...at) { return ((((u64)at | ...)) & 15) == 0; }

/*
 * What a thread has of a row when a block takes N BLOCK elements at once, so that loads do not wait
 * for each other; missing from n on.
 */
template <int N, class T>
INLINE pack<float, N> elements_of(const T *row, int first, int n, float missing) {
  pack<float, N> x;
  for (int k = 0; k < N; k++) {
    int i = first + k * BLOCK;
    float v = widen(row[i < n ? i : n - 1]);
    x.at[k] = i < n ? v : missing;
  }
  return x;
}

template <int N> struct lanes {
  enum { count = N };
};

/* body(lanes<M>, i) for the elements i to i + M - 1: M is N if that is possible, else 1. */
template <int N, class F> INLINE void each_pack(long n, bool possible, F body) {
  long packs = possible ? n / N : 0;
  EACH(p, packs) { body(lanes<N>(), p * N); }
  EACH(rest, n - packs * N) { body(lanes<1>(), packs * N + rest); }
}

/* As large as the largest of these types. */
template <class... T> struct alignas(T...) largest_of {};

template <int N, class F, class TO, class... FROM>
INLINE void map_pack(F f, TO *to, const pack<FROM, N> &...from) {
  pack<TO, N> y;
  for (int k = 0; k < N; k++) {
    narrow(f(widen(from.at[k])...), &y.at[k]);
  }
  put_pack(to, y);
}

/* to[i] = f(from[i]...); to may be one of those. */
template <class F, class TO, class... FROM>
INLINE void map(long n, F f, TO *to, const FROM *...from) {
  const int N = 16 / sizeof(largest_of<TO, FROM...>);
  each_pack<N>(n, aligned(to, from...), [=](auto lanes, long i) {
    const int M = decltype(lanes)::count;
    map_pack<M>(f, to + i, pack_at<M>(from + i)...);
  });
}

/* Divisions by 64 bits take several times as long. */
INLINE long quotient(long i, long by) {
  return ((u64)i | (u64)by) >> 32 == 0 ? (long)((u32)i / (u32)by) : i / by;
}

INLINE long remainder_of(long i, long by) { return i - quotient(i, by) * by; }

/*
 * Sum over the threads of a block, the same tree at every call; the result is valid in all threads.
 * scratch holds BLOCK values.
 */
template <class T> INLINE T block_sum(T x, T *scratch) {
  scratch[threadIdx.x] = x;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if ((int)threadIdx.x < half) {
      scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
    __syncthreads();
  }
  T sum = scratch[0];
  __syncthreads();
  return sum;
}

#endif
