/*
 * Layers of a transformer but attention: norms, activations, rotary embedding, sums over rows, the
 * gradient of an embedding, and the choice of a router. Elements are computed with as float32.
 * Where a block works on a row, the threads' partial sums are added as a tree.
 */

/* Elements of a row that a thread loads at once. */
enum { LOADS = 4 };

#define EACH_LOADS(i, width) for (int i = (int)threadIdx.x; i < (width); i += LOADS * BLOCK)

/* All 1 without a weight. */
template <class T> INLINE pack<float, LOADS> weights_of(const T *weight, int first, int width) {
  pack<float, LOADS> w = {1, 1, 1, 1};
  return weight == 0 ? w : elements_of<LOADS>(weight, first, width, 0);
}

/*
 * y = (x - mean) / deviation, times a weight and plus a bias where there are any; the mean is 0 for
 * RMSNorm. statistics gets the reciprocal of the deviation of each row, for LayerNorm after the
 * mean.
 */
template <bool LAYER, class T>
INLINE void norm(const T *x, long rows, int width, const T *weight, const T *bias, float epsilon,
    T *y, float *statistics) {
  __shared__ float scratch[BLOCK];
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *in = x + r * width;
    float mean = 0;
    if (LAYER) {
      float all = 0;
      EACH_LOADS(i, width) {
        pack<float, LOADS> v = elements_of<LOADS>(in, i, width, 0);
        for (int k = 0; k < LOADS; k++) {
          all += v.at[k];
        }
      }
      mean = block_sum(all, scratch) / (float)width;
    }
    float squares = 0;
    EACH_LOADS(i, width) {
      pack<float, LOADS> v = elements_of<LOADS>(in, i, width, 0);
      for (int k = 0; k < LOADS; k++) {
        float from = i + k * BLOCK < width ? v.at[k] - mean : 0;
        squares += from * from;
      }
    }
    squares = block_sum(squares, scratch);
    float by = (float)(1 / sqrt((double)(squares / (float)width + epsilon)));
    EACH_LOADS(i, width) {
      pack<float, LOADS> v = elements_of<LOADS>(in, i, width, 0), add = v;
      pack<float, LOADS> w = weights_of(weight, i, width);
      if (bias != 0) {
        add = elements_of<LOADS>(bias, i, width, 0);
      }
      for (int k = 0; k < LOADS; k++) {
        float to = (v.at[k] - mean) * by * w.at[k];
        if (i + k * BLOCK < width) {
          narrow(bias == 0 ? to : to + add.at[k], &y[r * width + i + k * BLOCK]);
        }
      }
    }
    if (threadIdx.x == 0) {
      if (LAYER) {
        statistics[2 * r] = mean;
      }
      statistics[LAYER ? 2 * r + 1 : r] = by;
    }
  }
}

/* gradient += the gradient of x, from dy, that of y. */
template <bool LAYER, class T>
INLINE void norm_backward(const T *x, long rows, int width, const T *weight,
    const float *statistics, const T *dy, T *gradient) {
  __shared__ float scratch[BLOCK];
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *in = x + r * width;
    const T *out = dy + r * width;
    T *to = gradient + r * width;
    float mean = LAYER ? statistics[2 * r] : 0;
    float by = statistics[LAYER ? 2 * r + 1 : r];
    float sum = 0, dot = 0;
    EACH_LOADS(i, width) {
      pack<float, LOADS> v = elements_of<LOADS>(in, i, width, 0);
      pack<float, LOADS> g = elements_of<LOADS>(out, i, width, 0);
      pack<float, LOADS> w = weights_of(weight, i, width);
      for (int k = 0; k < LOADS; k++) {
        sum += g.at[k] * w.at[k];
        dot += g.at[k] * w.at[k] * (v.at[k] - mean);
      }
    }
    sum = LAYER ? block_sum(sum, scratch) / (float)width : 0;
    dot = block_sum(dot, scratch) * by * by / (float)width;
    EACH_LOADS(i, width) {
      pack<float, LOADS> v = elements_of<LOADS>(in, i, width, 0);
      pack<float, LOADS> g = elements_of<LOADS>(out, i, width, 0);
      pack<float, LOADS> w = weights_of(weight, i, width);
      pack<float, LOADS> old = elements_of<LOADS>(to, i, width, 0);
      for (int k = 0; k < LOADS; k++) {
        float d = by * (g.at[k] * w.at[k] - sum - dot * (v.at[k] - mean));
        if (i + k * BLOCK < width) {
          narrow(old.at[k] + d, &to[i + k * BLOCK]);
        }
      }
    }
  }
}

/*
 * Sums over rows: a block has as many columns as are in 32 bytes. Rows in CLASSES classes, by the
 * remainder, are added in their order and the classes as a tree, so results do not depend on N, the
 * columns of a thread. value(lanes<N>, r, column) gives what row r adds; a thread asks for BATCH
 * rows at once, the last one again where there are no more.
 */
enum { CLASSES = 128, BATCH = 8 };

template <int N, int COLUMNS, class F>
INLINE void sum_rows(long rows, long width, float *target, F value) {
  const int ACROSS = COLUMNS / N, DOWN = BLOCK / ACROSS, OWN = CLASSES / DOWN;
  __shared__ float sums[CLASSES * COLUMNS];
  int t = (int)threadIdx.x;
  int across = t % ACROSS * N, down = t / ACROSS;
  for (long first = (long)blockIdx.x * COLUMNS; first < width; first += (long)gridDim.x * COLUMNS) {
    float sum[OWN][N] = {};
    for (long r = down; first + across < width && r < rows; r += BATCH * DOWN) {
      pack<float, N> x[BATCH];
      for (int u = 0; u < BATCH; u++) {
        long row = r + u * DOWN;
        x[u] = value(lanes<N>(), row < rows ? row : rows - 1, first + across);
      }
      for (int u = 0; u < BATCH; u++) {
        for (int n = 0; n < N; n++) {
          sum[u % OWN][n] += r + u * DOWN < rows ? x[u].at[n] : 0;
        }
      }
    }
    for (int k = 0; k < OWN; k++) {
      for (int n = 0; n < N; n++) {
        sums[(k * DOWN + down) * COLUMNS + across + n] = sum[k][n];
      }
    }
    __syncthreads();
    for (int half = CLASSES / 2 * COLUMNS; half >= COLUMNS; half /= 2) {
      for (int i = t; i < half; i += BLOCK) {
        sums[i] += sums[i + half];
      }
      __syncthreads();
    }
    if (t < COLUMNS && first + t < width) {
      target[first + t] += sums[t];
    }
    __syncthreads();
  }
}

template <class T, class F>
INLINE void sum_rows(bool aligned, long rows, long width, float *target, F value) {
  const int N = 16 / sizeof(T);
  if (aligned && width % N == 0) {
    sum_rows<N, 2 * N>(rows, width, target, value);
  } else {
    sum_rows<1, 2 * N>(rows, width, target, value);
  }
}

template <class T> INLINE void column_sums(const T *x, long rows, long width, float *target) {
  sum_rows<T>(aligned(x), rows, width, target, [=](auto lanes, long r, long column) {
    const int N = decltype(lanes)::count;
    pack<T, N> in = pack_at<N>(&x[r * width + column]);
    pack<float, N> sum;
    for (int n = 0; n < N; n++) {
      sum.at[n] = widen(in.at[n]);
    }
    return sum;
  });
}

/* weight_gradient += the sum over rows of dy times what the norm gave before the weight. */
template <bool LAYER, class T>
INLINE void norm_weight(const T *x, long rows, long width, const float *statistics, const T *dy,
    float *weight_gradient) {
  sum_rows<T>(aligned(x, dy), rows, width, weight_gradient, [=](auto lanes, long r, long column) {
    const int N = decltype(lanes)::count;
    pack<T, N> in = pack_at<N>(&x[r * width + column]);
    pack<T, N> out = pack_at<N>(&dy[r * width + column]);
    float mean = LAYER ? statistics[2 * r] : 0;
    float by = statistics[LAYER ? 2 * r + 1 : r];
    pack<float, N> sum;
    for (int n = 0; n < N; n++) {
      sum.at[n] = widen(out.at[n]) * ((widen(in.at[n]) - mean) * by);
    }
    return sum;
  });
}

INLINE float logistic(float x) { return 1 / (1 + expf(-x)); }

/* sqrt(8 / pi): 0.5 (1 + tanh(u)) is logistic(2 u). */
#define GELU_SLOPE 1.5957691216057308f
#define GELU_CUBE 0.044715f

INLINE float gelu(float x) { return x * logistic(GELU_SLOPE * (x + GELU_CUBE * x * x * x)); }

INLINE float gelu_slope(float x) {
  float s = logistic(GELU_SLOPE * (x + GELU_CUBE * x * x * x));
  float bend = s * (1 - s);
  /* Far from 0 the square would overflow, and 0 times infinity is NaN. */
  return bend == 0 ? s : s + x * bend * (GELU_SLOPE * (1 + 3 * GELU_CUBE * x * x));
}

template <class T> INLINE void swiglu(const T *x, long width, T *y, long n) {
  const int PACK = 16 / sizeof(T);
  each_pack<PACK>(n, width % PACK == 0 && aligned(x, y), [=](auto lanes, long i) {
    const int N = decltype(lanes)::count;
    const T *gate = x + quotient(i, width) * width + i;
    map_pack<N>([](float a, float b) { return a * logistic(a) * b; }, y + i, pack_at<N>(gate),
        pack_at<N>(gate + width));
  });
}

template <class T>
INLINE void swiglu_backward(const T *x, long width, const T *dy, T *dx, long n) {
  const int PACK = 16 / sizeof(T);
  each_pack<PACK>(n, width % PACK == 0 && aligned(x, dy, dx), [=](auto lanes, long i) {
    const int N = decltype(lanes)::count;
    long at = quotient(i, width) * width + i;
    pack<T, N> gate = pack_at<N>(x + at), passed = pack_at<N>(x + at + width);
    pack<T, N> out = pack_at<N>(dy + i);
    for (int k = 0; k < N; k++) {
      float a = widen(gate.at[k]), b = widen(passed.at[k]), g = widen(out.at[k]);
      float s = logistic(a);
      narrow(g * b * (s * (1 + a * (1 - s))), &gate.at[k]);
      narrow(g * (a * s), &passed.at[k]);
    }
    put_pack(dx + at, gate);
    put_pack(dx + at + width, passed);
  });
}

template <class T> INLINE void bias_of_rows(T *x, const T *bias, long width, long n) {
  const int PACK = 16 / sizeof(T);
  each_pack<PACK>(n, width % PACK == 0 && aligned(x, bias), [=](auto lanes, long i) {
    const int N = decltype(lanes)::count;
    map_pack<N>([](float a, float b) { return a + b; }, x + i, pack_at<N>(x + i),
        pack_at<N>(bias + remainder_of(i, width)));
  });
}

/* Positive or NaN, else 0. */
INLINE float relu(float x) { return x <= 0 ? 0 : x; }

INLINE u32 order_of(float x) {
  if (x != x) {
    return 0;
  }
  u32 bits = bits_of(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

/* The k largest of each row, the largest first; of equal ones the first; NaN last. */
template <class T>
INLINE void top_k(const T *x, long rows, int width, int k, T *values, int *indices) {
  EACH(r, rows) {
    const T *in = x + r * width;
    u32 last = 0xffffffffu;
    int last_index = -1;
    for (int n = 0; n < k; n++) {
      u32 best = 0;
      int index = -1;
      for (int i = 0; i < width; i++) {
        u32 key = order_of(widen(in[i]));
        bool left = key < last || (key == last && i > last_index);
        if (left && (index < 0 || key > best)) {
          best = key;
          index = i;
        }
      }
      last = best;
      last_index = index;
      indices[r * k + n] = index;
      values[r * k + n] = in[index];
    }
  }
}

/*
 * target[index[r]] += source[r] in the order of r: BLOCK columns of the rows of a class, by the
 * remainder, are one block's, and a column one thread's. Blocks look for their rows BLOCK at a time.
 */
template <class T>
INLINE void scatter_add(const T *source, const int *index, long rows, long width, float *target,
    long target_rows) {
  __shared__ u32 found[BLOCK / 32];
  int t = (int)threadIdx.x;
  long parts = (width + BLOCK - 1) / BLOCK;
  u32 classes = gridDim.x > parts ? (u32)(gridDim.x / parts) : 1;
  for (long unit = blockIdx.x; unit < classes * parts; unit += gridDim.x) {
    long column = unit % parts * BLOCK + t;
    for (long first = 0; first < rows; first += BLOCK) {
      if (t < BLOCK / 32) {
        found[t] = 0;
      }
      __syncthreads();
      int mine = first + t < rows ? index[first + t] : -1;
      if (mine >= 0 && mine < target_rows && (u32)mine % classes == unit / parts) {
        atomicAdd(&found[t / 32], 1u << t % 32);
      }
      __syncthreads();
      for (int k = 0; k < BLOCK / 32; k++) {
        for (u32 left = found[k]; column < width && left != 0; left &= left - 1) {
          long r = first + k * 32 + __ffs((int)left) - 1;
          target[(long)index[r] * width + column] += widen(source[r * width + column]);
        }
      }
      __syncthreads();
    }
  }
}

#define NORM(name, layer, type) \
  KERNEL(name##_##type, const type##_t *x, long rows, long width, const type##_t *weight, \
      const type##_t *bias, float epsilon, type##_t *y, float *statistics) { \
    norm<layer>(x, rows, (int)width, weight, bias, epsilon, y, statistics); \
  } \
  KERNEL(name##_backward_##type, const type##_t *x, long rows, long width, \
      const type##_t *weight, const float *statistics, const type##_t *dy, type##_t *gradient) { \
    norm_backward<layer>(x, rows, (int)width, weight, statistics, dy, gradient); \
  } \
  KERNEL(name##_weight_##type, const type##_t *x, long rows, long width, \
      const float *statistics, const type##_t *dy, float *weight_gradient) { \
    norm_weight<layer>(x, rows, width, statistics, dy, weight_gradient); \
  }

#define ACTIVATION(name, value, slope, type) \
  KERNEL(name##_##type, const type##_t *x, type##_t *y, long n) { \
    map(n, [](float v) { return value; }, y, x); \
  } \
  /* gradient: of y, changed to that of x */ \
  KERNEL(name##_backward_##type, const type##_t *x, type##_t *gradient, long n) { \
    map(n, [](float v, float g) { return slope; }, gradient, x, gradient); \
  }

#define LAYERS(type) \
  NORM(rms, false, type) \
  NORM(layer, true, type) \
  ACTIVATION(gelu, gelu(v), g * gelu_slope(v), type) \
  ACTIVATION(relu_squared, relu(v) * relu(v), g * 2 * relu(v), type) \
  /* rows of 2 width elements: a gate and what passes it */ \
  KERNEL(swiglu_##type, const type##_t *x, long width, type##_t *y, long n) { \
    swiglu(x, width, y, n); \
  } \
  KERNEL(swiglu_backward_##type, const type##_t *x, long width, const type##_t *dy, \
      type##_t *dx, long n) { \
    swiglu_backward(x, width, dy, dx, n); \
  } \
  /* Turns the pairs (i, i + size / 2) of the first heads of each row; angles: cosines, then sines, \
     of each position. sign -1 turns back. */ \
  KERNEL(rotary_##type, type##_t *x, long rows, long stride, int heads, int size, int context, \
      const float *angles, float sign) { \
    long half = size / 2; \
    EACH(i, rows * heads * half) { \
      long unit = quotient(i, half); \
      long pair = i - unit * half; \
      long row = quotient(unit, heads); \
      long first = row * stride + (unit - row * heads) * size + pair; \
      const float *turn = angles + remainder_of(row, context) * size; \
      float c = turn[pair], s = turn[half + pair] * sign; \
      float a = widen(x[first]), b = widen(x[first + half]); \
      narrow(a * c - b * s, &x[first]); \
      narrow(a * s + b * c, &x[first + half]); \
    } \
  } \
  KERNEL(bias_##type, type##_t *x, const type##_t *bias, long width, long n) { \
    bias_of_rows(x, bias, width, n); \
  } \
  KERNEL(column_sums_##type, const type##_t *x, long rows, long width, float *target) { \
    column_sums(x, rows, width, target); \
  } \
  KERNEL(scatter_add_##type, const type##_t *source, const int *index, long rows, long width, \
      float *target, long target_rows) { \
    scatter_add(source, index, rows, width, target, target_rows); \
  } \
  KERNEL(top_k_##type, const type##_t *x, long rows, int width, int k, type##_t *values, \
      int *indices) { \
    top_k(x, rows, width, k, values, indices); \
  }
LAYERS(f32)
LAYERS(bf16)
LAYERS(f16)
#undef LAYERS
#undef ACTIVATION
#undef NORM
