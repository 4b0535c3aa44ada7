/*
 * What a mixture of experts computes beside its rows: random factors and noise, drawn by formulas of
 * io.jccl.internal.SplitMix, and the mix of two outputs by the softmax of two logits.
 */

INLINE u64 mixed(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/* Uniform over [0, 1), one of 2^53. */
INLINE double uniform(u64 stream, u64 index) {
  return (double)(mixed(stream + 0x9E3779B97F4A7C15ull * index) >> 11) * (1.0 / 9007199254740992.0);
}

/*
 * target = source times a random factor of row and column: uniform in 1 +- jitter, times 0 or the
 * inverse of 1 - dropout. The place of row r is place + r, or without base its two digits in places.
 * Rows are the columns from first on of rows of all columns. target may be source.
 */
KERNEL(scale_randomly, const float *source, long n, long width, const float *places, long place,
    long columns, long first, double jitter, u64 jitter_stream, double dropout, u64 dropout_stream,
    float *target) {
  float kept = (float)(1 / (1 - dropout));
  EACH(i, n) {
    long row = i / width;
    long at = place + row;
    if (places != 0) {
      at = (long)places[2 * row] + ((long)places[2 * row + 1] << 24);
    }
    u64 index = (u64)(at * columns + first + (i - row * width));
    double factor = 1;
    if (jitter > 0) {
      factor += jitter * (2 * uniform(jitter_stream, index) - 1);
    }
    float keep = dropout > 0 && uniform(dropout_stream, index) < dropout ? 0 : kept;
    target[i] = source[i] * ((float)factor * keep);
  }
}

/* x += numbers first and following of the normal distribution, by Box and Muller. */
KERNEL(add_normal, float *x, long n, double deviation, u64 stream, long first) {
  EACH(i, n) {
    u64 index = 2 * (u64)(first + i);
    double radius = sqrt(-2 * log(1 - uniform(stream, index)));
    double angle = 2 * 3.14159265358979323846 * uniform(stream, index + 1);
    x[i] = (float)((double)x[i] + deviation * (radius * cos(angle)));
  }
}

/* The difference of a row's two coefficients. */
INLINE double pair_slope(const float *coefficient, long row) {
  return (double)coefficient[2 * row] - (double)coefficient[2 * row + 1];
}

/* share = the first of softmax(x coefficient + bias); difference = a - b; b += share difference */
KERNEL(mix_pair, const float *x, long rows, long width, const float *coefficient,
    const float *bias, const float *a, float *b, float *difference, float *share) {
  __shared__ double scratch[BLOCK];
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    double z = 0;
    for (long i = threadIdx.x; i < width; i += BLOCK) {
      z += (double)x[r * width + i] * pair_slope(coefficient, i);
    }
    z = pair_slope(bias, 0) + block_sum(z, scratch);
    float s = (float)(1 / (1 + exp(-z)));
    for (long i = r * width + threadIdx.x; i < (r + 1) * width; i += BLOCK) {
      float more = a[i] - b[i];
      difference[i] = more;
      b[i] = b[i] + s * more;
    }
    if (threadIdx.x == 0) {
      share[r] = s;
    }
  }
}

/* target = source times its row's share, or what is left of 1 */
KERNEL(scale_by_share, const float *source, long n, long width, const float *share, int rest,
    float *target) {
  EACH(i, n) {
    float s = share[i / width];
    target[i] = (rest != 0 ? 1 - s : s) * source[i];
  }
}

/* logit = the gradient of each row's first logit, the negative of the second's; added to that of x */
KERNEL(mix_pair_backward, long rows, long width, const float *coefficient, const float *gradient,
    const float *difference, const float *share, float *x_gradient, double *logit) {
  __shared__ double scratch[BLOCK];
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    double dot = 0;
    for (long i = r * width + threadIdx.x; i < (r + 1) * width; i += BLOCK) {
      dot += (double)gradient[i] * (double)difference[i];
    }
    double s = (double)share[r];
    double g = s * (1 - s) * block_sum(dot, scratch);
    for (long i = threadIdx.x; i < width; i += BLOCK) {
      float *to = &x_gradient[r * width + i];
      *to = (float)((double)*to + g * pair_slope(coefficient, i));
    }
    if (threadIdx.x == 0) {
      logit[r] = g;
    }
  }
}

/* sums[c] = the sum over rows of logit times x in column c, and of logit alone in the last sum */
KERNEL(mix_pair_sums, const float *x, long rows, long width, const double *logit, double *sums) {
  __shared__ double scratch[BLOCK];
  for (long c = blockIdx.x; c <= width; c += gridDim.x) {
    double sum = 0;
    for (long r = threadIdx.x; r < rows; r += BLOCK) {
      sum += c == width ? logit[r] : logit[r] * (double)x[r * width + c];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
      sums[c] = sum;
    }
  }
}

/* Adds the sums to the gradients of the first coefficients, and takes them from the second ones. */
KERNEL(add_pair_sums, const double *sums, long width, float *coefficient, float *bias) {
  EACH(c, width + 1) {
    float *to = c < width ? coefficient + 2 * c : bias;
    to[0] = (float)((double)to[0] + sums[c]);
    to[1] = (float)((double)to[1] - sums[c]);
  }
}
