/*
 * Softmax cross-entropy: a block for a row. Differences to the row's largest logit and their
 * exponentials are float32, the sum over a row is float64.
 */
template <class T>
INLINE void cross_entropy(const T *logits, long rows, long tokens, const int *labels, float *losses,
    T *gradient, float scale) {
  __shared__ float largest[BLOCK];
  __shared__ double scratch[BLOCK];
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *in = logits + r * tokens;
    long label = labels[r];
    bool counts = label >= 0 && label < tokens;
    float most = widen(in[0]);
    for (long t = threadIdx.x; t < tokens; t += BLOCK) {
      float v = widen(in[t]);
      most = v > most ? v : most;
    }
    largest[threadIdx.x] = most;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
      if ((int)threadIdx.x < half && largest[threadIdx.x + half] > largest[threadIdx.x]) {
        largest[threadIdx.x] = largest[threadIdx.x + half];
      }
      __syncthreads();
    }
    most = largest[0];
    double sum = 0;
    for (long t = threadIdx.x; t < tokens; t += BLOCK) {
      sum += (double)expf(widen(in[t]) - most);
    }
    /* The barriers of the sum also part reads of the logits above from the writes below. */
    float of_label = counts ? widen(in[label]) - most : 0;
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
      losses[r] = counts ? (float)(log(sum) - (double)of_label) : 0;
    }
    if (gradient != 0) {
      for (long t = threadIdx.x; t < tokens; t += BLOCK) {
        float p = counts ? (float)((double)expf(widen(in[t]) - most) / sum) : 0;
        narrow((t == label ? p - 1 : p) * scale, &gradient[r * tokens + t]);
      }
    }
    __syncthreads();
  }
}

#define LOSS(type) \
  KERNEL(cross_entropy_##type, const type##_t *logits, long rows, long tokens, \
      const int *labels, float *losses, type##_t *gradient, float scale) { \
    cross_entropy(logits, rows, tokens, labels, losses, gradient, scale); \
  }
LOSS(f32)
LOSS(bf16)
LOSS(f16)
#undef LOSS
