/*
 * The sum of squares in float64, in two passes: squares of float32 are exact there and cannot
 * overflow, so the sum is infinite or NaN exactly if an element is. The order depends on n and the
 * grid alone.
 */
template <class T> INLINE void squares(const T *x, long n, double *partial) {
  __shared__ double scratch[BLOCK];
  double sum = 0;
  EACH(i, n) {
    double value = (double)widen(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

KERNEL(squares_f32, const float *x, long n, double *partial) { squares(x, n, partial); }

KERNEL(squares_bf16, const bf16 *x, long n, double *partial) { squares(x, n, partial); }

KERNEL(squares_f16, const f16 *x, long n, double *partial) { squares(x, n, partial); }

/* One block: target = (add ? target : 0) + sum of the partial sums. */
KERNEL(sum_f64, const double *partial, int count, int add, double *target) {
  __shared__ double scratch[BLOCK];
  double sum = 0;
  for (int i = (int)threadIdx.x; i < count; i += BLOCK) {
    sum += partial[i];
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) {
    *target = add != 0 ? *target + sum : sum;
  }
}

/*
 * One thread: what gradients are multiplied by, and whether the step is skipped, from the sum of
 * their squares. control[0] is the factor min(1, max_norm / (norm + 1e-6)) / loss_scale, control[1]
 * is 1 if the unscaled norm does not fit a float32 or is NaN, else 0.
 */
KERNEL(control, const double *squares, double loss_scale, double max_norm, double *control) {
  if (first_index() == 0) {
    double unscaled = sqrt(*squares) / loss_scale;
    bool fits = unscaled <= 3.4028234663852886e38;
    double clip = max_norm / (unscaled + 1e-6);
    control[0] = fits ? (clip < 1 ? clip : 1) / loss_scale : 0;
    control[1] = fits ? 0 : 1;
  }
}
