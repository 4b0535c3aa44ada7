/*
 * Causal attention on tensor cores, of bfloat16 and float16 (compute capability 8.0 and newer);
 * what it computes is said in attention.h. A warp has 16 rows and multiplies by mma.sync.m16n8k16, whose
 * sums are float32; exponentials, and slopes in the backward pass, are rounded to the type before
 * they are multiplied. SIZE is the head size that the loops are made for; what is missing to it is
 * zeros. No sum depends on the grid.
 *
 * Fragments are those of "Matrix Fragments for mma.m16n8k16" in the PTX ISA: lane 4 g + t of a warp
 * holds, of the left factor, rows g and g + 8, columns 2 t, 2 t + 1, and these + 8; of the right
 * factor column g, rows 2 t, 2 t + 1, and these + 8; of the product rows g and g + 8, columns 2 t
 * and 2 t + 1.
 */
enum { WARP = 32, STRIP = 16, STRIPS = BLOCK / WARP * STRIP, FORWARD = 64, BACKWARD = 32, PAD = 8 };

/* The lane's place in a fragment. */
INLINE int lane_row() { return (int)threadIdx.x % WARP / 4; }

INLINE int lane_column() { return (int)threadIdx.x % 4 * 2; }

/* The first of the two rows of a unit's STRIPS that this lane has; the other one is 8 further. */
INLINE int strip_row() { return (int)threadIdx.x / WARP * STRIP + lane_row(); }

typedef u32 __attribute__((__may_alias__)) u32_of_any;

/* Two neighbours in memory; the address is a multiple of 4. */
INLINE u32 pair_at(const void *at) { return *(const u32_of_any *)at; }

INLINE void put_pair(void *at, u32 x) { *(u32_of_any *)at = x; }

/* A fragment of a right factor whose columns are lines in memory. */
template <int LINE_LENGTH> INLINE void right_of(const u16 *at, int n, int k, u32 *b) {
  const u16 *line = at + (n * 8 + lane_row()) * LINE_LENGTH + k * 16 + lane_column();
  b[0] = pair_at(line);
  b[1] = pair_at(line + 8);
}

#ifdef __CUDACC__

template <class T> INLINE void multiply(float *c, const u32 *a, const u32 *b);

#define MULTIPLY(type, name) \
  template <> INLINE void multiply<type>(float *c, const u32 *a, const u32 *b) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 " \
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

#else

template <class T> INLINE u32 rounded(float low, float high) {
  T x, y;
  narrow(low, &x);
  narrow(high, &y);
  return (u32)x.bits | (u32)y.bits << 16;
}

#endif

/*
 * Adds a product of 16 x 16 K by 16 K x 8 N to c; the right factor's columns are lines in shared
 * memory.
 */
template <class T, int LINE_LENGTH, int N, int K>
INLINE void product(float (&c)[N][4], const u32 (&a)[K][4], const u16 *at) {
  for (int k = 0; k < K; k++) {
    for (int n = 0; n < N; n++) {
      u32 b[2];
      right_of<LINE_LENGTH>(at, n, k, b);
      multiply<T>(c[n], a[k], b);
    }
  }
}

/* Over the four lanes that share rows. */
INLINE float quad_max(float x) {
  float y = __shfl_xor_sync(0xffffffffu, x, 1);
  x = y > x ? y : x;
  y = __shfl_xor_sync(0xffffffffu, x, 2);
  return y > x ? y : x;
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
  for (int k = 0; k < K; k++) {
    for (int e = 0; e < 4; e++) {
      int r = row + (e & 1) * 8;
      int d = k * 16 + lane_column() + (e >> 1) * 8;
      a[k][e] = r < h.context && d < h.size ? pair_at(&from[r * stride + d]) : 0;
    }
  }
}

struct eight {
  u16 bits[8];
} __attribute__((__may_alias__, __aligned__(16)));

/*
 * ROWS rows of a head, from first on, into shared memory, eight elements at a time; zeros where the
 * head or the sequence has ended. Rows in order have SIZE + PAD elements, columns in order
 * ROWS + PAD, so that the 32 lanes that read a fragment meet 32 banks.
 */
template <int ROWS, int SIZE, class T>
INLINE void load_rows(const T *from, long stride, int first, heads h, u16 *rows, u16 *columns) {
  for (int e = (int)threadIdx.x; e < ROWS * SIZE / 8; e += BLOCK) {
    /* A warp reads whole rows, but where it writes columns: there its lanes would meet one bank. */
    int r = columns ? e % ROWS : e / (SIZE / 8);
    int d = (columns ? e / ROWS : e % (SIZE / 8)) * 8;
    eight x = {};
    if (first + r < h.context && d < h.size) {
      x = *(const eight *)&from[(first + r) * stride + d];
    }
    if (rows) {
      *(eight *)&rows[r * (SIZE + PAD) + d] = x;
    }
    for (int i = 0; columns && i < 8; i++) {
      columns[(d + i) * (ROWS + PAD) + r] = x.bits[i];
    }
  }
}

/* Writes this lane's part of 16 rows of a head. */
template <class T, int N>
INLINE void store_rows(
    const float (&c)[N][4], float upper, float lower, T *to, long stride, int row, heads h) {
  for (int n = 0; n < N; n++) {
    int d = n * 8 + lane_column();
    for (int half = 0; half < 2; half++) {
      int r = row + half * 8;
      float factor = half ? lower : upper;
      if (r < h.context && d < h.size) {
        put_pair(&to[r * stride + d],
            rounded<T>(c[n][2 * half] * factor, c[n][2 * half + 1] * factor));
      }
    }
  }
}

INLINE int strips_of(heads h) { return (h.context + STRIPS - 1) / STRIPS; }

template <int SIZE, class T>
INLINE void tensor_attention(const T *qkv, heads h, T *out, float *log_sums) {
  __shared__ eight k_memory[FORWARD * (SIZE + PAD) / 8];
  u16 *k = k_memory->bits;
  __shared__ eight v_memory[SIZE * (FORWARD + PAD) / 8];
  u16 *v = v_memory->bits;
  long stride = row_of_qkv(h);
  int tiles = strips_of(h);
  for (long u = blockIdx.x; u < h.sequences * h.heads * tiles; u += gridDim.x) {
    int tile = tiles - 1 - (int)(u % tiles); /* the longest first */
    int head = (int)(u / tiles % h.heads);
    long row = u / tiles / h.heads * h.context;
    const T *base = qkv + row * stride;
    const T *keys = base + (long)(h.heads + head / (h.heads / h.key_heads)) * h.size;
    const T *values = keys + (long)h.key_heads * h.size;
    int i = tile * STRIPS + strip_row();
    u32 q[SIZE / 16][4];
    left_of(base + (long)head * h.size, stride, i, h, q);
    float sum[2] = {0, 0}, top[2] = {minus_infinity(), minus_infinity()};
    float result[SIZE / 8][4] = {};
    int last = (tile + 1) * STRIPS < h.context ? (tile + 1) * STRIPS : h.context;
    for (int first = 0; first < last; first += FORWARD) {
      __syncthreads();
      load_rows<FORWARD, SIZE>(keys, stride, first, h, k, (u16 *)0);
      load_rows<FORWARD, SIZE>(values, stride, first, h, (u16 *)0, v);
      __syncthreads();
      float s[FORWARD / 8][4] = {};
      product<T, SIZE + PAD>(s, q, k);
      float most[2] = {minus_infinity(), minus_infinity()};
      for (int n = 0; n < FORWARD / 8; n++) {
        for (int e = 0; e < 4; e++) {
          bool seen = first + n * 8 + lane_column() + (e & 1) <= i + (e >> 1) * 8;
          float x = seen ? s[n][e] * h.scale : minus_infinity();
          s[n][e] = x;
          most[e >> 1] = x > most[e >> 1] ? x : most[e >> 1];
        }
      }
      float from[2], keep[2];
      for (int half = 0; half < 2; half++) {
        float x = quad_max(most[half]);
        x = x > top[half] ? x : top[half];
        from[half] = x == minus_infinity() ? 0 : x;
        keep[half] = expf(top[half] - from[half]);
        sum[half] *= keep[half];
        top[half] = x;
      }
      for (int n = 0; n < FORWARD / 8; n++) {
        for (int e = 0; e < 4; e++) {
          s[n][e] = expf(s[n][e] - from[e >> 1]);
          sum[e >> 1] += s[n][e];
        }
      }
      for (int n = 0; n < SIZE / 8; n++) {
        for (int e = 0; e < 4; e++) {
          result[n][e] *= keep[e >> 1];
        }
      }
      u32 powers[FORWARD / 16][4];
      as_left<T>(s, powers);
      product<T, FORWARD + PAD>(result, powers, v);
    }
    float upper = quad_sum(sum[0]), lower = quad_sum(sum[1]);
    store_rows(result, 1 / upper, 1 / lower, out + (row * h.heads + head) * h.size,
        (long)h.heads * h.size, i, h);
    for (int half = 0; half < 2 && lane_column() == 0; half++) {
      if (i + half * 8 < h.context) {
        log_sums[(row + i + half * 8) * h.heads + head] = top[half] + logf(half ? lower : upper);
      }
    }
  }
}

template <int SIZE, class T>
INLINE void tensor_queries(const T *qkv, const T *dout, const float *log_sums, const float *dots,
    heads h, T *dqkv) {
  __shared__ eight k_memory[BACKWARD * (SIZE + PAD) / 8], v_memory[BACKWARD * (SIZE + PAD) / 8];
  u16 *k = k_memory->bits, *v = v_memory->bits;
  __shared__ eight k_columns_memory[SIZE * (BACKWARD + PAD) / 8];
  u16 *k_columns = k_columns_memory->bits;
  long stride = row_of_qkv(h);
  long out_stride = (long)h.heads * h.size;
  int tiles = strips_of(h);
  for (long u = blockIdx.x; u < h.sequences * h.heads * tiles; u += gridDim.x) {
    int tile = tiles - 1 - (int)(u % tiles);
    int head = (int)(u / tiles % h.heads);
    long row = u / tiles / h.heads * h.context;
    const T *base = qkv + row * stride;
    const T *keys = base + (long)(h.heads + head / (h.heads / h.key_heads)) * h.size;
    const T *values = keys + (long)h.key_heads * h.size;
    int i = tile * STRIPS + strip_row();
    u32 q[SIZE / 16][4], g[SIZE / 16][4];
    left_of(base + (long)head * h.size, stride, i, h, q);
    left_of(dout + row * out_stride + (long)head * h.size, out_stride, i, h, g);
    float log_sum[2] = {0, 0}, along[2] = {0, 0};
    for (int half = 0; half < 2; half++) {
      if (i + half * 8 < h.context) {
        log_sum[half] = log_sums[(row + i + half * 8) * h.heads + head];
        along[half] = dots[(row + i + half * 8) * h.heads + head];
      }
    }
    float result[SIZE / 8][4] = {};
    int last = (tile + 1) * STRIPS < h.context ? (tile + 1) * STRIPS : h.context;
    for (int first = 0; first < last; first += BACKWARD) {
      __syncthreads();
      load_rows<BACKWARD, SIZE>(keys, stride, first, h, k, k_columns);
      load_rows<BACKWARD, SIZE>(values, stride, first, h, v, (u16 *)0);
      __syncthreads();
      float s[BACKWARD / 8][4] = {}, slope[BACKWARD / 8][4] = {};
      product<T, SIZE + PAD>(s, q, k);
      product<T, SIZE + PAD>(slope, g, v);
      for (int n = 0; n < BACKWARD / 8; n++) {
        for (int e = 0; e < 4; e++) {
          int half = e >> 1;
          bool seen = first + n * 8 + lane_column() + (e & 1) <= i + half * 8;
          float p = seen ? expf(s[n][e] * h.scale - log_sum[half]) : 0;
          slope[n][e] = seen ? p * (slope[n][e] - along[half]) * h.scale : 0;
        }
      }
      u32 slopes[BACKWARD / 16][4];
      as_left<T>(slope, slopes);
      product<T, BACKWARD + PAD>(result, slopes, k_columns);
    }
    store_rows(result, 1, 1, dqkv + row * stride + (long)head * h.size, stride, i, h);
  }
}

/* Here a row is a key's and a column a query's; the heads that share the keys follow each other. */
template <int SIZE, class T>
INLINE void tensor_keys(const T *qkv, const T *dout, const float *log_sums, const float *dots,
    heads h, T *dqkv) {
  __shared__ eight q_memory[BACKWARD * (SIZE + PAD) / 8], g_memory[BACKWARD * (SIZE + PAD) / 8];
  u16 *q = q_memory->bits, *g = g_memory->bits;
  __shared__ eight q_columns_memory[SIZE * (BACKWARD + PAD) / 8];
  __shared__ eight g_columns_memory[SIZE * (BACKWARD + PAD) / 8];
  u16 *q_columns = q_columns_memory->bits, *g_columns = g_columns_memory->bits;
  __shared__ float log_sum[BACKWARD], along[BACKWARD];
  long stride = row_of_qkv(h);
  long out_stride = (long)h.heads * h.size;
  int tiles = strips_of(h);
  int group = h.heads / h.key_heads;
  for (long u = blockIdx.x; u < h.sequences * h.key_heads * tiles; u += gridDim.x) {
    int tile = (int)(u % tiles);
    int key_head = (int)(u / tiles % h.key_heads);
    long row = u / tiles / h.key_heads * h.context;
    const T *base = qkv + row * stride;
    long key_at = (long)(h.heads + key_head) * h.size;
    long value_at = key_at + (long)h.key_heads * h.size;
    int j = tile * STRIPS + strip_row();
    u32 k[SIZE / 16][4], v[SIZE / 16][4];
    left_of(base + key_at, stride, j, h, k);
    left_of(base + value_at, stride, j, h, v);
    float dk[SIZE / 8][4] = {}, dv[SIZE / 8][4] = {};
    for (int head = key_head * group; head < (key_head + 1) * group; head++) {
      for (int first = tile * STRIPS; first < h.context; first += BACKWARD) {
        __syncthreads();
        load_rows<BACKWARD, SIZE>(base + (long)head * h.size, stride, first, h, q, q_columns);
        load_rows<BACKWARD, SIZE>(
            dout + row * out_stride + (long)head * h.size, out_stride, first, h, g, g_columns);
        int i = first + (int)threadIdx.x;
        if (threadIdx.x < BACKWARD && i < h.context) {
          log_sum[threadIdx.x] = log_sums[(row + i) * h.heads + head];
          along[threadIdx.x] = dots[(row + i) * h.heads + head];
        }
        __syncthreads();
        float s[BACKWARD / 8][4] = {}, slope[BACKWARD / 8][4] = {};
        product<T, SIZE + PAD>(s, k, q);
        product<T, SIZE + PAD>(slope, v, g);
        for (int n = 0; n < BACKWARD / 8; n++) {
          for (int e = 0; e < 4; e++) {
            int c = n * 8 + lane_column() + (e & 1);
            bool seen = first + c >= j + (e >> 1) * 8 && first + c < h.context;
            s[n][e] = seen ? expf(s[n][e] * h.scale - log_sum[c]) : 0;
            slope[n][e] = seen ? s[n][e] * (slope[n][e] - along[c]) * h.scale : 0;
          }
        }
        u32 powers[BACKWARD / 16][4], slopes[BACKWARD / 16][4];
        as_left<T>(s, powers);
        as_left<T>(slope, slopes);
        product<T, BACKWARD + PAD>(dv, powers, g_columns);
        product<T, BACKWARD + PAD>(dk, slopes, q_columns);
      }
    }
    store_rows(dk, 1, 1, dqkv + row * stride + key_at, stride, j, h);
    store_rows(dv, 1, 1, dqkv + row * stride + value_at, stride, j, h);
  }
}

#define TENSOR(type, size_) \
  KERNEL(attention_tensor_##type##_##size_, const type *qkv, long sequences, int context, \
      int heads_, int key_heads, int size, float scale, type *out, float *log_sums) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    tensor_attention<size_>(qkv, h, out, log_sums); \
  } \
  KERNEL(attention_tensor_queries_##type##_##size_, const type *qkv, long sequences, int context, \
      int heads_, int key_heads, int size, float scale, const type *dout, const float *log_sums, \
      const float *dots, type *dqkv) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    tensor_queries<size_>(qkv, dout, log_sums, dots, h, dqkv); \
  } \
  KERNEL(attention_tensor_keys_##type##_##size_, const type *qkv, long sequences, int context, \
      int heads_, int key_heads, int size, float scale, const type *dout, const float *log_sums, \
      const float *dots, type *dqkv) { \
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
