/*
 * Causal attention on tensor cores, of bfloat16 and float16 (compute capability 8.0 and newer);
 * what it computes is said in attention.h. A warp has 16 rows and multiplies by mma.sync.m16n8k16,
 * whose sums are float32; exponentials, and slopes in the backward pass, are rounded to the type
 * before they are multiplied. Exponentials are powers of 2 of the score, times scale and log2 e,
 * minus a base, in one fused operation. Warps skip tiles that their rows do not see. SIZE is the
 * head size that the loops are made for; what is missing to it is zeros. No sum depends on the grid.
 *
 * Fragments are those of "Matrix Fragments for mma.m16n8k16" in the PTX ISA: lane 4 g + t of a warp
 * holds, of the left factor, rows g and g + 8, columns 2 t, 2 t + 1, and these + 8; of the right
 * factor column g, rows 2 t, 2 t + 1, and these + 8; of the product rows g and g + 8, columns 2 t
 * and 2 t + 1.
 */
enum { WARP = 32, STRIP = 16, STRIPS = BLOCK / WARP * STRIP, PAD = 8 };

/* The lane's place in a fragment. */
INLINE int lane_row() { return (int)(threadIdx.x % WARP / 4); }

INLINE int lane_column() { return (int)(threadIdx.x % 4 * 2); }

/* The first of a unit's STRIPS that the warp has. */
INLINE int strip_row() { return (int)(threadIdx.x / WARP * STRIP); }

typedef u32 __attribute__((__may_alias__)) u32_of_any;

/* Two neighbours in memory; the address is a multiple of 4. */
INLINE u32 pair_at(const void *at) { return *(const u32_of_any *)at; }

INLINE void put_pair(void *at, u32 x) { *(u32_of_any *)at = x; }

#ifdef __CUDACC__

template <class T> INLINE void multiply(float *c, const u32 *a, const u32 *b);

#define MULTIPLY(type, name) \
  template <> INLINE void multiply<type>(float *c, const u32 *a, const u32 *b) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 " \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
MULTIPLY(bf16, "bf16")
MULTIPLY(f16, "f16")
#undef MULTIPLY

/* To nearest, ties to even, as by narrow. */
template <class T> INLINE u32 rounded(float low, float high);

template <> INLINE u32 rounded<bf16>(float low, float high) {
  u32 x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

template <> INLINE u32 rounded<f16>(float low, float high) {
  u32 x;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

/* 2 to the x, off by 2 steps of 2^-23 of it at most; what is below 2^-126 becomes 0. */
INLINE float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* 16 bytes of device memory into shared memory, or zeros; they are there after wait_for_copies. */
INLINE void copy(u16 *to, const void *from, bool zeros) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(zeros ? 0 : 16) : "memory");
}

/* For those of this thread. */
INLINE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/*
 * Fragments n and n + 1, rows 16 k on, of a right factor in shared memory; its columns are lines
 * there, or, if BY_ROWS, its rows. Each lane gives the address of 8 elements of one of four matrices
 * of 8 x 8, which the lanes share as fragments.
 */
template <int LINE_LENGTH, bool BY_ROWS> INLINE void right_of(const u16 *at, int n, int k, u32 *b) {
  int lane = (int)(threadIdx.x % WARP);
  int line = BY_ROWS ? lane % 16 : lane / 16 * 8 + lane % 8;
  int element = BY_ROWS ? lane / 16 * 8 : lane / 8 % 2 * 8;
  u32 address = (u32)__cvta_generic_to_shared(at + line * LINE_LENGTH + element);
  address += (BY_ROWS ? k * 16 * LINE_LENGTH + n * 8 : n * 8 * LINE_LENGTH + k * 16) * 2;
  if (BY_ROWS) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(address) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(address) : "memory");
  }
}

/* With so few registers that a multiprocessor holds so many blocks. */
#define KERNEL_OF(blocks, name, ...) \
  extern "C" __global__ void __launch_bounds__(BLOCK, blocks) name(__VA_ARGS__)

#else

template <class T> INLINE u32 rounded(float low, float high) {
  T x, y;
  narrow(low, &x);
  narrow(high, &y);
  return (u32)x.bits | (u32)y.bits << 16;
}

INLINE float power_of_2(float x) { return exp2f(x); }

INLINE void copy(u16 *to, const void *from, bool zeros) {
  put_pack(to, zeros ? pack<u16, 8>() : pack_at<8>((const u16 *)from));
}

INLINE void wait_for_copies() {}

template <int LINE_LENGTH, bool BY_ROWS> INLINE void right_of(const u16 *at, int n, int k, u32 *b) {
  for (int e = 0; e < 4; e++) {
    int column = (n + e / 2) * 8 + lane_row();
    int row = k * 16 + e % 2 * 8 + lane_column();
    b[e] = BY_ROWS
        ? at[row * LINE_LENGTH + column] | (u32)at[(row + 1) * LINE_LENGTH + column] << 16
        : pair_at(&at[column * LINE_LENGTH + row]);
  }
}

#define KERNEL_OF(blocks, name, ...) KERNEL(name, __VA_ARGS__)

#endif

/* Adds a product of 16 x 16 K by 16 K x 8 N to c; BY_ROWS says how the right factor lies. */
template <class T, int LINE_LENGTH, bool BY_ROWS, int N, int K>
INLINE void product(float (&c)[N][4], const u32 (&a)[K][4], const u16 *at) {
  for (int k = 0; k < K; k++) {
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      right_of<LINE_LENGTH, BY_ROWS>(at, n, k, b);
      multiply<T>(c[n], a[k], b);
      multiply<T>(c[n + 1], a[k], b + 2);
    }
  }
}

/*
 * Makes scores of columns that rows do not see minus infinity: those after column own for this
 * lane's first row, or if BEFORE those before it, and so on with the next rows.
 */
template <bool BEFORE, int N> INLINE void hide(float (&s)[N][4], int own) {
  own -= lane_column();
  for (int n = 0; n < N; n++) {
    for (int e = 0; e < 4; e++) {
      int column = n * 8 + (e & 1) - (e >> 1) * 8;
      s[n][e] = (BEFORE ? column < own : column > own) ? minus_infinity() : s[n][e];
    }
  }
}

/* Over the four lanes that share rows. */
INLINE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

INLINE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Products as the left factor of the next product: columns 16 k on become its k-th fragment. */
template <class T, int N>
INLINE void as_left(const float (&c)[N][4], u32 (&a)[N / 2][4]) {
  for (int k = 0; k < N / 2; k++) {
    a[k][0] = rounded<T>(c[2 * k][0], c[2 * k][1]);
    a[k][1] = rounded<T>(c[2 * k][2], c[2 * k][3]);
    a[k][2] = rounded<T>(c[2 * k + 1][0], c[2 * k + 1][1]);
    a[k][3] = rounded<T>(c[2 * k + 1][2], c[2 * k + 1][3]);
  }
}

/* The left factor in memory: this lane's rows are row and row + 8, zeros from the context on. */
template <class T, int K>
INLINE void left_of(const T *from, long stride, int row, heads h, u32 (&a)[K][4]) {
  for (int half = 0; half < 2; half++) {
    int r = row + half * 8;
    const T *line = from + (r < h.context ? r * stride + lane_column() : 0);
    for (int k = 0; k < 2 * K; k++) {
      a[k / 2][k % 2 * 2 + half] = r < h.context && k * 8 < h.size ? pair_at(&line[k * 8]) : 0;
    }
  }
}

/*
 * Rows of two matrices in shared memory, twice: while the one pair is worked on, the next one is
 * copied. Lines have SIZE + PAD elements, so that the 8 that ldmatrix reads at once meet 32 banks.
 */
template <int SIZE> struct tiles {
  enum { ROWS = SIZE < 128 ? 64 : 32, LINE_LENGTH = SIZE + PAD };
  u16 at[2][2][ROWS * LINE_LENGTH];
} __attribute__((__aligned__(16)));

/* Of what copy_rows copies, this thread's first row and element. */
template <int SIZE> INLINE int copied_row() { return (int)(threadIdx.x / (SIZE / 8)); }

template <int SIZE> INLINE int copied_element() { return (int)(threadIdx.x % (SIZE / 8) * 8); }

/*
 * Starts to copy rows of a head, from first on; zeros where the head or the sequence has ended.
 * This thread's first element is at from.
 */
template <int SIZE, class T>
INLINE void copy_rows(const T *from, long stride, int first, heads h, u16 *to) {
  const int AT_ONCE = BLOCK / (SIZE / 8);
  for (int n = 0; n < tiles<SIZE>::ROWS / AT_ONCE; n++) {
    int r = copied_row<SIZE>() + n * AT_ONCE;
    copy(&to[r * tiles<SIZE>::LINE_LENGTH + copied_element<SIZE>()], from + n * AT_ONCE * stride,
        first + r >= h.context || copied_element<SIZE>() >= h.size);
  }
}

/* Writes this lane's part of 16 rows of a head. */
template <class T, int N>
INLINE void store_rows(
    const float (&c)[N][4], float upper, float lower, T *to, long stride, int row, heads h) {
  for (int half = 0; half < 2; half++) {
    int r = row + half * 8;
    float factor = half ? lower : upper;
    T *line = to + r * stride + lane_column();
    for (int n = 0; n < N && r < h.context; n++) {
      if (n * 8 < h.size) {
        put_pair(&line[n * 8], rounded<T>(c[n][2 * half] * factor, c[n][2 * half + 1] * factor));
      }
    }
  }
}

INLINE int strips_of(heads h) { return (h.context + STRIPS - 1) / STRIPS; }

/* What a block works on: STRIPS rows of a head of a sequence, which starts at row. */
struct unit {
  int tile, head, key_head, row;
};

/*
 * The u-th one, where rows have so many heads; all of them and rows times heads are fewer than 2^31.
 * Heads follow each other within a tile: the tiles that take longest come first, of all heads, so
 * that what runs last is short.
 */
INLINE unit unit_of(u32 u, u32 heads_of_row, heads h) {
  u32 in_tile = (u32)h.sequences * heads_of_row;
  u32 sequence = u % in_tile / heads_of_row, head = u % in_tile % heads_of_row;
  u32 group = (u32)h.heads / (u32)h.key_heads;
  return {(int)(u / in_tile), (int)head, (int)(head / group), (int)sequence * h.context};
}

/* The logarithm of e to base 2, and that of 2 to base e. */
#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

template <int SIZE, class T>
INLINE void tensor_attention(const T *qkv, heads h, T *out, float *log_sums) {
  typedef tiles<SIZE> shared;
  const int ROWS = shared::ROWS, LENGTH = shared::LINE_LENGTH;
  __shared__ shared memory;
  long stride = row_of_qkv(h);
  int values = h.key_heads * h.size; /* from the keys on */
  int tiles = strips_of(h);
  float to_log2 = h.scale * LOG2_E;
  for (u32 u = blockIdx.x; u < (u32)(h.sequences * h.heads * tiles); u += gridDim.x) {
    unit at = unit_of(u, (u32)h.heads, h);
    int tile = tiles - 1 - at.tile;
    const T *base = qkv + at.row * stride;
    const T *keys = base + (long)(h.heads + at.key_head) * h.size +
        copied_row<SIZE>() * stride + copied_element<SIZE>();
    int warp_row = tile * STRIPS + strip_row();
    int i = warp_row + lane_row();
    u32 q[SIZE / 16][4];
    left_of(base + (long)at.head * h.size, stride, i, h, q);
    float sum[2] = {0, 0}, top[2] = {minus_infinity(), minus_infinity()};
    float result[SIZE / 8][4] = {};
    int last = (tile + 1) * STRIPS < h.context ? (tile + 1) * STRIPS : h.context;
    __syncthreads();
    copy_rows<SIZE>(keys, stride, 0, h, memory.at[0][0]);
    copy_rows<SIZE>(keys + values, stride, 0, h, memory.at[0][1]);
    for (int first = 0, turn = 0; first < last; first += ROWS, turn ^= 1) {
      wait_for_copies();
      __syncthreads();
      if (first + ROWS < last) {
        keys += ROWS * stride;
        copy_rows<SIZE>(keys, stride, first + ROWS, h, memory.at[turn ^ 1][0]);
        copy_rows<SIZE>(keys + values, stride, first + ROWS, h, memory.at[turn ^ 1][1]);
      }
      if (first >= warp_row + STRIP) {
        continue;
      }
      float s[ROWS / 8][4] = {};
      product<T, LENGTH, false>(s, q, memory.at[turn][0]);
      if (first + ROWS > warp_row + 1) {
        hide<false>(s, i - first);
      }
      float most[2] = {top[0], top[1]};
      for (int n = 0; n < ROWS / 8; n++) {
        for (int e = 0; e < 4; e++) {
          most[e >> 1] = fmaxf(most[e >> 1], s[n][e]);
        }
      }
      float from[2], keep[2];
      for (int half = 0; half < 2; half++) {
        float x = quad_max(most[half]);
        from[half] = x == minus_infinity() ? 0 : -(x * to_log2);
        keep[half] = power_of_2(fmaf(top[half], to_log2, from[half]));
        sum[half] *= keep[half];
        top[half] = x;
      }
      for (int n = 0; n < ROWS / 8; n++) {
        for (int e = 0; e < 4; e++) {
          s[n][e] = power_of_2(fmaf(s[n][e], to_log2, from[e >> 1]));
          sum[e >> 1] += s[n][e];
        }
      }
      for (int n = 0; n < SIZE / 8; n++) {
        for (int e = 0; e < 4; e++) {
          result[n][e] *= keep[e >> 1];
        }
      }
      u32 powers[ROWS / 16][4];
      as_left<T>(s, powers);
      product<T, LENGTH, true>(result, powers, memory.at[turn][1]);
    }
    float upper = quad_sum(sum[0]), lower = quad_sum(sum[1]);
    store_rows(result, 1 / upper, 1 / lower, out + (long)(at.row * h.heads + at.head) * h.size,
        (long)h.heads * h.size, i, h);
    for (int half = 0; half < 2 && lane_column() == 0; half++) {
      if (i + half * 8 < h.context) {
        log_sums[(at.row + i + half * 8) * h.heads + at.head] =
            fmaf(top[half] * to_log2, LN_2, logf(half ? lower : upper));
      }
    }
  }
}

/*
 * Powers and slopes of this lane's scores: base is minus the log-sum-exp to base 2, along minus the
 * product of output and gradient, times the scale.
 */
INLINE void slope_of(float &s, float &slope, float base, float along, float to_log2, heads h) {
  s = power_of_2(fmaf(s, to_log2, base));
  slope = s * fmaf(slope, h.scale, along);
}

template <int SIZE, class T>
INLINE void tensor_queries(const T *qkv, const T *dout, const float *log_sums, const float *dots,
    heads h, T *dqkv) {
  typedef tiles<SIZE> shared;
  const int ROWS = shared::ROWS, LENGTH = shared::LINE_LENGTH, STEP = 32;
  __shared__ shared memory;
  long stride = row_of_qkv(h);
  long out_stride = (long)h.heads * h.size;
  int values = h.key_heads * h.size; /* from the keys on */
  int tiles = strips_of(h);
  float to_log2 = h.scale * LOG2_E;
  for (u32 u = blockIdx.x; u < (u32)(h.sequences * h.heads * tiles); u += gridDim.x) {
    unit at = unit_of(u, (u32)h.heads, h);
    int tile = tiles - 1 - at.tile;
    const T *base = qkv + at.row * stride;
    const T *keys = base + (long)(h.heads + at.key_head) * h.size +
        copied_row<SIZE>() * stride + copied_element<SIZE>();
    int warp_row = tile * STRIPS + strip_row();
    int i = warp_row + lane_row();
    u32 q[SIZE / 16][4], g[SIZE / 16][4];
    left_of(base + (long)at.head * h.size, stride, i, h, q);
    left_of(dout + at.row * out_stride + (long)at.head * h.size, out_stride, i, h, g);
    float from[2] = {0, 0}, along[2] = {0, 0};
    for (int half = 0; half < 2; half++) {
      if (i + half * 8 < h.context) {
        from[half] = -log_sums[(at.row + i + half * 8) * h.heads + at.head] * LOG2_E;
        along[half] = -dots[(at.row + i + half * 8) * h.heads + at.head] * h.scale;
      }
    }
    float result[SIZE / 8][4] = {};
    int last = (tile + 1) * STRIPS < h.context ? (tile + 1) * STRIPS : h.context;
    __syncthreads();
    copy_rows<SIZE>(keys, stride, 0, h, memory.at[0][0]);
    copy_rows<SIZE>(keys + values, stride, 0, h, memory.at[0][1]);
    for (int first = 0, turn = 0; first < last; first += ROWS, turn ^= 1) {
      wait_for_copies();
      __syncthreads();
      if (first + ROWS < last) {
        keys += ROWS * stride;
        copy_rows<SIZE>(keys, stride, first + ROWS, h, memory.at[turn ^ 1][0]);
        copy_rows<SIZE>(keys + values, stride, first + ROWS, h, memory.at[turn ^ 1][1]);
      }
      for (int part = 0; part < ROWS && first + part < warp_row + STRIP; part += STEP) {
        const u16 *k = memory.at[turn][0] + part * LENGTH, *v = memory.at[turn][1] + part * LENGTH;
        float s[STEP / 8][4] = {}, slope[STEP / 8][4] = {};
        product<T, LENGTH, false>(s, q, k);
        product<T, LENGTH, false>(slope, g, v);
        if (first + part + STEP > warp_row + 1) {
          hide<false>(s, i - first - part);
        }
        for (int n = 0; n < STEP / 8; n++) {
          for (int e = 0; e < 4; e++) {
            slope_of(s[n][e], slope[n][e], from[e >> 1], along[e >> 1], to_log2, h);
          }
        }
        u32 slopes[STEP / 16][4];
        as_left<T>(slope, slopes);
        product<T, LENGTH, true>(result, slopes, k);
      }
    }
    store_rows(result, 1, 1, dqkv + at.row * stride + (long)at.head * h.size, stride, i, h);
  }
}

/* Here a row is a key's and a column a query's; the heads that share the keys follow each other. */
template <int SIZE, class T>
INLINE void tensor_keys(const T *qkv, const T *dout, const float *log_sums, const float *dots,
    heads h, T *dqkv) {
  typedef tiles<SIZE> shared;
  const int ROWS = shared::ROWS, LENGTH = shared::LINE_LENGTH, STEP = SIZE == 64 ? 32 : 16;
  __shared__ shared memory;
  /* What slope_of takes of a column, of two columns in each element. */
  __shared__ pack<float, 4> columns[2][ROWS / 2];
  long stride = row_of_qkv(h);
  long out_stride = (long)h.heads * h.size;
  int tiles = strips_of(h);
  int group = h.heads / h.key_heads;
  float to_log2 = h.scale * LOG2_E;
  for (u32 u = blockIdx.x; u < (u32)(h.sequences * h.key_heads * tiles); u += gridDim.x) {
    unit at = unit_of(u, (u32)h.key_heads, h);
    const T *base = qkv + at.row * stride;
    long key_at = (long)(h.heads + at.head) * h.size;
    long value_at = key_at + (long)h.key_heads * h.size;
    int warp_row = at.tile * STRIPS + strip_row();
    int j = warp_row + lane_row();
    u32 k[SIZE / 16][4], v[SIZE / 16][4];
    left_of(base + key_at, stride, j, h, k);
    left_of(base + value_at, stride, j, h, v);
    float dk[SIZE / 8][4] = {}, dv[SIZE / 8][4] = {};
    int begin = at.tile * STRIPS;
    int head = at.head * group, last_head = head + group;
    float from = 0, along = 0;
    auto start = [&](int head, int first, int turn) {
      long row = first + copied_row<SIZE>();
      int d = head * h.size + copied_element<SIZE>();
      copy_rows<SIZE>(base + row * stride + d, stride, first, h, memory.at[turn][0]);
      copy_rows<SIZE>(
          dout + (at.row + row) * out_stride + d, out_stride, first, h, memory.at[turn][1]);
      int i = first + (int)threadIdx.x;
      bool there = threadIdx.x < ROWS && i < h.context;
      from = there ? log_sums[(at.row + i) * h.heads + head] : -minus_infinity();
      along = there ? dots[(at.row + i) * h.heads + head] : 0;
    };
    auto finish = [&](int turn) {
      if (threadIdx.x < ROWS) {
        columns[turn][threadIdx.x / 2].at[threadIdx.x % 2 * 2] = -from * LOG2_E;
        columns[turn][threadIdx.x / 2].at[threadIdx.x % 2 * 2 + 1] = -along * h.scale;
      }
    };
    __syncthreads();
    start(head, begin, 0);
    finish(0);
    for (int first = begin, turn = 0; head < last_head; turn ^= 1) {
      int next = first + ROWS < h.context ? first + ROWS : begin;
      head += next > first ? 0 : 1;
      wait_for_copies();
      __syncthreads();
      if (head < last_head) {
        start(head, next, turn ^ 1);
      }
      for (int part = 0; part < ROWS; part += STEP) {
        if (first + part + STEP <= warp_row) {
          continue;
        }
        const u16 *q = memory.at[turn][0] + part * LENGTH, *g = memory.at[turn][1] + part * LENGTH;
        float s[STEP / 8][4] = {}, slope[STEP / 8][4] = {};
        product<T, LENGTH, false>(s, k, q);
        product<T, LENGTH, false>(slope, v, g);
        if (first + part < warp_row + STRIP - 1) {
          hide<true>(s, j - first - part);
        }
        for (int n = 0; n < STEP / 8; n++) {
          pack<float, 4> two = columns[turn][(part + n * 8 + lane_column()) / 2];
          for (int e = 0; e < 4; e++) {
            slope_of(s[n][e], slope[n][e], two.at[(e & 1) * 2], two.at[(e & 1) * 2 + 1], to_log2, h);
          }
        }
        u32 powers[STEP / 16][4], slopes[STEP / 16][4];
        as_left<T>(s, powers);
        as_left<T>(slope, slopes);
        product<T, LENGTH, true>(dv, powers, g);
        product<T, LENGTH, true>(dk, slopes, q);
      }
      finish(turn ^ 1);
      first = next;
    }
    store_rows(dk, 1, 1, dqkv + at.row * stride + key_at, stride, j, h);
    store_rows(dv, 1, 1, dqkv + at.row * stride + value_at, stride, j, h);
  }
}

#define TENSOR(type, size_) \
  KERNEL_OF(size_ < 128 ? 2 : 1, attention_tensor_##type##_##size_, const type *qkv, \
      long sequences, int context, int heads_, int key_heads, int size, float scale, type *out, \
      float *log_sums) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    tensor_attention<size_>(qkv, h, out, log_sums); \
  } \
  KERNEL_OF(size_ < 128 ? 2 : 1, attention_tensor_queries_##type##_##size_, const type *qkv, \
      long sequences, int context, int heads_, int key_heads, int size, float scale, \
      const type *dout, const float *log_sums, const float *dots, type *dqkv) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    tensor_queries<size_>(qkv, dout, log_sums, dots, h, dqkv); \
  } \
  KERNEL_OF(size_ < 64 ? 2 : 1, attention_tensor_keys_##type##_##size_, const type *qkv, \
      long sequences, int context, int heads_, int key_heads, int size, float scale, \
      const type *dout, const float *log_sums, const float *dots, type *dqkv) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    tensor_keys<size_>(qkv, dout, log_sums, dots, h, dqkv); \
  }
TENSOR(bf16, 32)
TENSOR(bf16, 64)
TENSOR(bf16, 128)
TENSOR(f16, 32)
TENSOR(f16, 64)
TENSOR(f16, 128)
#undef TENSOR
