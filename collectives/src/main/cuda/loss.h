/*
 * Softmax cross-entropy: a block for a row. Differences to the largest logit so far and their
 * exponentials are float32, the sum over a row is float64.
 */

/* What is subtracted: infinities that are equal have no difference. */
INLINE float base_of(float most) { return most == minus_infinity() ? 0 : most; }

template <class T>
INLINE void cross_entropy(const T *logits, long rows, long pitch, int tokens, const int *labels,
    float *losses, T *gradient, float scale) {
  __shared__ float largest[BLOCK];
  __shared__ double scratch[BLOCK];
  const int N = 8;
  const int ROUND = N * BLOCK;
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *in = logits + r * pitch;
    int label = labels[r];
    bool counts = label >= 0 && label < tokens;
    float most = widen(in[0]);
    double sum = 0;
    for (int t = (int)threadIdx.x; t < tokens; t += ROUND) {
      pack<float, N> x = elements_of<N>(in, t, tokens, minus_infinity());
      float before = most;
      for (int k = 0; k < N; k++) {
        most = x.at[k] > most ? x.at[k] : most;
      }
      if (most > before) {
        sum *= exp((double)before - (double)most);
      }
      for (int k = 0; k < N; k++) {
        sum += (double)expf(x.at[k] - base_of(most));
      }
    }
    float own = most;
    largest[threadIdx.x] = most;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
      if ((int)threadIdx.x < half && largest[threadIdx.x + half] > largest[threadIdx.x]) {
        largest[threadIdx.x] = largest[threadIdx.x + half];
      }
      __syncthreads();
    }
    most = largest[0];
    if (most > own) {
      sum *= exp((double)own - (double)most);
    }
    /* The barriers of the sum also part reads of the logits above from the writes below. */
    float of_label = counts ? widen(in[label]) - most : 0;
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
      losses[r] = counts ? (float)(log(sum) - (double)of_label) : 0;
    }
    if (gradient != 0) {
      float by = (float)(1 / sum);
      for (int t = (int)threadIdx.x; t < tokens; t += ROUND) {
        pack<float, N> x = elements_of<N>(in, t, tokens, minus_infinity());
        for (int k = 0; k < N; k++) {
          int i = t + k * BLOCK;
          float p = counts ? expf(x.at[k] - most) * by : 0;
          if (i < tokens) {
            narrow((i == label ? p - 1 : p) * scale, &gradient[r * pitch + i]);
          }
        }
      }
    }
    __syncthreads();
  }
}

#define LOSS(type) \
  KERNEL(cross_entropy_##type, const type##_t *logits, long rows, long pitch, long tokens, \
      const int *labels, float *losses, type##_t *gradient, float scale) { \
    cross_entropy(logits, rows, pitch, (int)tokens, labels, losses, gradient, scale); \
  }
LOSS(f32)
LOSS(bf16)
LOSS(f16)
#undef LOSS
