/*
 * Causal attention in float32, with any device's instructions. Scores exist for 16 x 16 tiles only:
 * thread (ty, tx) of a block computes that of row ty and column tx, and later holds every 16th
 * element, from tx on, of row ty's result. The forward pass keeps the logarithm of the sum of
 * exponentials of each row and head (arXiv 2205.14135); no sum depends on the grid.
 */
#include "heads.h"

enum { TILE = 16, HEAD = 128, LINE = HEAD + 1, PER_THREAD = HEAD / TILE, SCORES = TILE + 1 };

INLINE int tiles_of(heads h) { return (h.context + TILE - 1) / TILE; }

/* Rows first to first + 15 of a head into shared memory, zeros after the last of the sequence. */
template <class T>
INLINE void load_tile(float *tile, const T *from, long stride, int first, heads h, float factor) {
  for (int e = (int)threadIdx.x; e < TILE * h.size; e += BLOCK) {
    int r = e / h.size;
    int d = e - r * h.size;
    tile[r * LINE + d] =
        first + r < h.context ? widen(from[(first + r) * stride + d]) * factor : 0;
  }
}

INLINE float dot(const float *a, const float *b, int size) {
  float sum = 0;
  for (int d = 0; d < size; d++) {
    sum += a[d] * b[d];
  }
  return sum;
}

template <class T>
INLINE void attention(const T *qkv, heads h, T *out, float *log_sums) {
  __shared__ float q[TILE * LINE], k[TILE * LINE], v[TILE * LINE];
  __shared__ float scores[TILE * SCORES], powers[TILE * SCORES];
  int tx = (int)threadIdx.x % TILE, ty = (int)threadIdx.x / TILE;
  long stride = row_of_qkv(h);
  int tiles = tiles_of(h);
  for (long u = blockIdx.x; u < h.sequences * h.heads * tiles; u += gridDim.x) {
    int tile = tiles - 1 - (int)(u % tiles); /* the longest first */
    int head = (int)(u / tiles % h.heads);
    long row = u / tiles / h.heads * h.context;
    const T *base = qkv + row * stride;
    const T *keys = base + (long)(h.heads + head / (h.heads / h.key_heads)) * h.size;
    const T *values = keys + (long)h.key_heads * h.size;
    load_tile(q, base + (long)head * h.size, stride, tile * TILE, h, h.scale);
    int i = tile * TILE + ty;
    float sum = 0, top = minus_infinity();
    float result[PER_THREAD] = {};
    for (int first = 0; first <= tile * TILE; first += TILE) {
      __syncthreads();
      load_tile(k, keys, stride, first, h, 1);
      load_tile(v, values, stride, first, h, 1);
      __syncthreads();
      bool seen = first + tx <= i;
      float score = dot(q + ty * LINE, k + tx * LINE, h.size);
      scores[ty * SCORES + tx] = score;
      __syncthreads();
      /* Columns after the diagonal take no part: 0 times infinity would be NaN. */
      int columns = i - first + 1 < TILE ? i - first + 1 : TILE;
      float before = top;
      for (int c = 0; c < columns; c++) {
        float s = scores[ty * SCORES + c];
        top = s > top ? s : top;
      }
      float base_score = top == minus_infinity() ? 0 : top;
      powers[ty * SCORES + tx] = seen ? expf(score - base_score) : 0;
      __syncthreads();
      float keep = expf(before - base_score);
      sum *= keep;
      for (int c = 0; c < columns; c++) {
        sum += powers[ty * SCORES + c];
      }
      for (int n = 0; n < PER_THREAD; n++) {
        int d = tx + n * TILE;
        if (d < h.size) {
          float r = result[n] * keep;
          for (int c = 0; c < columns; c++) {
            r += powers[ty * SCORES + c] * v[c * LINE + d];
          }
          result[n] = r;
        }
      }
    }
    if (i < h.context) {
      T *to = out + ((row + i) * h.heads + head) * h.size;
      for (int n = 0; n < PER_THREAD; n++) {
        int d = tx + n * TILE;
        if (d < h.size) {
          narrow(result[n] / sum, &to[d]);
        }
      }
      if (tx == 0) {
        log_sums[(row + i) * h.heads + head] = top + logf(sum);
      }
    }
    __syncthreads();
  }
}

template <int N, class T> INLINE float product_of_rows(const T *a, const T *b, int size) {
  float sum = 0;
  for (int d = 0; d < size; d += N) {
    pack<T, N> x = pack_at<N>(a + d), y = pack_at<N>(b + d);
    for (int k = 0; k < N; k++) {
      sum += widen(x.at[k]) * widen(y.at[k]);
    }
  }
  return sum;
}

/* The product of each row's output and its gradient, a number for each row and head. */
template <class T>
INLINE void attention_dots(const T *out, const T *dout, long rows, int size, float *dots) {
  const int PACK = 16 / sizeof(T);
  bool packs = size % PACK == 0 && aligned(out, dout);
  EACH(r, rows) {
    const T *a = dout + r * size, *b = out + r * size;
    dots[r] = packs ? product_of_rows<PACK>(a, b, size) : product_of_rows<1>(a, b, size);
  }
}

template <class T>
INLINE void attention_queries(const T *qkv, const T *dout, const float *log_sums, const float *dots,
    heads h, T *dqkv) {
  __shared__ float q[TILE * LINE], k[TILE * LINE], v[TILE * LINE], g[TILE * LINE];
  __shared__ float slopes[TILE * SCORES];
  int tx = (int)threadIdx.x % TILE, ty = (int)threadIdx.x / TILE;
  long stride = row_of_qkv(h);
  int tiles = tiles_of(h);
  for (long u = blockIdx.x; u < h.sequences * h.heads * tiles; u += gridDim.x) {
    int tile = tiles - 1 - (int)(u % tiles);
    int head = (int)(u / tiles % h.heads);
    long row = u / tiles / h.heads * h.context;
    const T *base = qkv + row * stride;
    const T *keys = base + (long)(h.heads + head / (h.heads / h.key_heads)) * h.size;
    const T *values = keys + (long)h.key_heads * h.size;
    long out_stride = (long)h.heads * h.size;
    load_tile(q, base + (long)head * h.size, stride, tile * TILE, h, h.scale);
    load_tile(g, dout + row * out_stride + (long)head * h.size, out_stride, tile * TILE, h, 1);
    int i = tile * TILE + ty;
    long at = (row + i) * h.heads + head;
    float log_sum = i < h.context ? log_sums[at] : 0;
    float along = i < h.context ? dots[at] : 0;
    float result[PER_THREAD] = {};
    for (int first = 0; first <= tile * TILE; first += TILE) {
      __syncthreads();
      load_tile(k, keys, stride, first, h, 1);
      load_tile(v, values, stride, first, h, 1);
      __syncthreads();
      float p = expf(dot(q + ty * LINE, k + tx * LINE, h.size) - log_sum);
      float slope = dot(g + ty * LINE, v + tx * LINE, h.size);
      slopes[ty * SCORES + tx] = p * (slope - along) * h.scale;
      __syncthreads();
      int columns = i - first + 1 < TILE ? i - first + 1 : TILE;
      for (int n = 0; n < PER_THREAD; n++) {
        int d = tx + n * TILE;
        for (int c = 0; d < h.size && c < columns; c++) {
          result[n] += slopes[ty * SCORES + c] * k[c * LINE + d];
        }
      }
    }
    if (i < h.context) {
      T *to = dqkv + (row + i) * stride + (long)head * h.size;
      for (int n = 0; n < PER_THREAD; n++) {
        int d = tx + n * TILE;
        if (d < h.size) {
          narrow(result[n], &to[d]);
        }
      }
    }
    __syncthreads();
  }
}

/* Here a row is a key's and a column a query's; the heads that share the keys follow each other. */
template <class T>
INLINE void attention_keys(const T *qkv, const T *dout, const float *log_sums, const float *dots,
    heads h, T *dqkv) {
  __shared__ float q[TILE * LINE], k[TILE * LINE], v[TILE * LINE], g[TILE * LINE];
  __shared__ float powers[TILE * SCORES], slopes[TILE * SCORES];
  int tx = (int)threadIdx.x % TILE, ty = (int)threadIdx.x / TILE;
  long stride = row_of_qkv(h);
  long out_stride = (long)h.heads * h.size;
  int tiles = tiles_of(h);
  int group = h.heads / h.key_heads;
  for (long u = blockIdx.x; u < h.sequences * h.key_heads * tiles; u += gridDim.x) {
    int tile = (int)(u % tiles);
    int key_head = (int)(u / tiles % h.key_heads);
    long row = u / tiles / h.key_heads * h.context;
    const T *base = qkv + row * stride;
    long key_at = (long)(h.heads + key_head) * h.size;
    long value_at = key_at + (long)h.key_heads * h.size;
    load_tile(k, base + key_at, stride, tile * TILE, h, 1);
    load_tile(v, base + value_at, stride, tile * TILE, h, 1);
    int j = tile * TILE + ty;
    float dk[PER_THREAD] = {}, dv[PER_THREAD] = {};
    for (int head = key_head * group; head < (key_head + 1) * group; head++) {
      for (int first = tile * TILE; first < h.context; first += TILE) {
        __syncthreads();
        load_tile(q, base + (long)head * h.size, stride, first, h, h.scale);
        load_tile(g, dout + row * out_stride + (long)head * h.size, out_stride, first, h, 1);
        __syncthreads();
        int i = first + tx;
        long at = (row + i) * h.heads + head;
        float p = 0, slope = 0;
        if (i < h.context) {
          p = expf(dot(q + tx * LINE, k + ty * LINE, h.size) - log_sums[at]);
          slope = p * (dot(g + tx * LINE, v + ty * LINE, h.size) - dots[at]);
        }
        powers[ty * SCORES + tx] = p;
        slopes[ty * SCORES + tx] = slope;
        __syncthreads();
        int begin = j > first ? j - first : 0;
        int end = h.context - first < TILE ? h.context - first : TILE;
        for (int n = 0; n < PER_THREAD; n++) {
          int d = tx + n * TILE;
          for (int c = begin; d < h.size && c < end; c++) {
            dv[n] += powers[ty * SCORES + c] * g[c * LINE + d];
            dk[n] += slopes[ty * SCORES + c] * q[c * LINE + d];
          }
        }
      }
    }
    if (j < h.context) {
      T *to = dqkv + (row + j) * stride;
      for (int n = 0; n < PER_THREAD; n++) {
        int d = tx + n * TILE;
        if (d < h.size) {
          narrow(dk[n], &to[key_at + d]);
          narrow(dv[n], &to[value_at + d]);
        }
      }
    }
    __syncthreads();
  }
}

#define ATTENTION(type) \
  KERNEL(attention_##type, const type##_t *qkv, long sequences, int context, int heads_, \
      int key_heads, int size, float scale, type##_t *out, float *log_sums) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    attention(qkv, h, out, log_sums); \
  } \
  KERNEL(attention_dots_##type, const type##_t *out, const type##_t *dout, long rows, int size, \
      float *dots) { \
    attention_dots(out, dout, rows, size, dots); \
  } \
  KERNEL(attention_queries_##type, const type##_t *qkv, long sequences, int context, \
      int heads_, int key_heads, int size, float scale, const type##_t *dout, \
      const float *log_sums, const float *dots, type##_t *dqkv) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    attention_queries(qkv, dout, log_sums, dots, h, dqkv); \
  } \
  KERNEL(attention_keys_##type, const type##_t *qkv, long sequences, int context, int heads_, \
      int key_heads, int size, float scale, const type##_t *dout, const float *log_sums, \
      const float *dots, type##_t *dqkv) { \
    heads h = {sequences, context, heads_, key_heads, size, scale}; \
    attention_keys(qkv, dout, log_sums, dots, h, dqkv); \
  }
ATTENTION(f32)
ATTENTION(bf16)
ATTENTION(f16)
#undef ATTENTION
