/*
 * Rows of a mixture of experts: sums of weighted rows that a sparse matrix names, and the gradient
 * of its weights. Row r of the matrix has the entries start[r] to start[r + 1] - 1, without start
 * entry r alone; entry k names row index[k], and counts as absent if that is not a row. The order
 * of a sum is that of the entries.
 */

struct entries {
  long first, end;
};

/* The entries of a row, as far as there are any. */
INLINE entries entries_of(const int *start, long r, long count) {
  entries e;
  e.first = start == 0 ? r : start[r];
  e.end = start == 0 ? r + 1 : start[r + 1];
  e.first = e.first < 0 ? 0 : e.first;
  e.end = e.end > count ? count : e.end;
  return e;
}

/* target[r] = the sum over its entries of weight[k] source[index[k]] */
template <class T>
INLINE void combine_rows(const T *source, long source_rows, long width, const int *start,
    const int *index, const float *weight, long count, T *target, long rows) {
  EACH(i, rows * width) {
    long row = quotient(i, width);
    long column = i - row * width;
    entries e = entries_of(start, row, count);
    float sum = 0;
    for (long k = e.first; k < e.end; k++) {
      long from = index[k];
      if (from >= 0 && from < source_rows) {
        float x = widen(source[from * width + column]);
        sum += weight == 0 ? x : weight[k] * x;
      }
    }
    narrow(sum, &target[i]);
  }
}

/* dots[k] = x[r] . source[index[k]] for the entries of each row; 0 for one that is absent */
template <class T>
INLINE void row_dots(const T *x, long rows, long width, const int *start, const int *index,
    long count, const T *source, long source_rows, float *dots) {
  __shared__ float scratch[BLOCK];
  for (long r = blockIdx.x; r < rows; r += gridDim.x) {
    entries e = entries_of(start, r, count);
    for (long k = e.first; k < e.end; k++) {
      long from = index[k];
      bool there = from >= 0 && from < source_rows;
      float sum = 0;
      for (long i = threadIdx.x; there && i < width; i += BLOCK) {
        sum += widen(x[r * width + i]) * widen(source[from * width + i]);
      }
      sum = block_sum(sum, scratch);
      if (threadIdx.x == 0) {
        dots[k] = sum;
      }
    }
  }
}

#define EXPERTS(type) \
  KERNEL(combine_rows_##type, const type##_t *source, long source_rows, long width, \
      const int *start, const int *index, const float *weight, long count, type##_t *target, \
      long rows) { \
    combine_rows(source, source_rows, width, start, index, weight, count, target, rows); \
  } \
  KERNEL(row_dots_##type, const type##_t *x, long rows, long width, const int *start, \
      const int *index, long count, const type##_t *source, long source_rows, float *dots) { \
    row_dots(x, rows, width, start, index, count, source, source_rows, dots); \
  }
EXPERTS(f32)
EXPERTS(bf16)
EXPERTS(f16)
#undef EXPERTS
