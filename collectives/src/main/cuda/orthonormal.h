/*
 * Thin matrices of float32, column after column, for low-rank compression of gradients. The table
 * has three numbers for each: where it begins, the length of a column, and how many there are. A
 * block works on a matrix or a column; a thread always on the same elements of columns, so that
 * only sums wait for others.
 */
INLINE double column_norm(const float *a, long length, double *scratch) {
  double sum = 0;
  for (long i = threadIdx.x; i < length; i += BLOCK) {
    sum += (double)a[i] * (double)a[i];
  }
  return sqrt(block_sum(sum, scratch));
}

/* A norm of 1, or zeros if the norm does not exceed a limit. */
INLINE void normalize_column(float *a, long length, double least, double *scratch) {
  double norm = column_norm(a, length, scratch);
  for (long i = threadIdx.x; i < length; i += BLOCK) {
    a[i] = norm <= least ? 0 : (float)((double)a[i] / norm);
  }
}

/* Modified Gram-Schmidt, twice for each column, since once is inaccurate in float32. */
KERNEL(orthonormalize, float *thin, const long *table, long matrices) {
  __shared__ double norms[BLOCK];
  __shared__ float dots[BLOCK];
  for (long m = blockIdx.x; m < matrices; m += gridDim.x) {
    float *first = thin + table[3 * m];
    long length = table[3 * m + 1], columns = table[3 * m + 2];
    for (long k = 0; k < columns; k++) {
      float *a = first + k * length;
      double before = column_norm(a, length, norms);
      for (long l = 0; l < 2 * k; l++) {
        const float *b = first + l % k * length;
        float dot = 0;
        for (long i = threadIdx.x; i < length; i += BLOCK) {
          dot += a[i] * b[i];
        }
        dot = block_sum(dot, dots);
        for (long i = threadIdx.x; i < length; i += BLOCK) {
          a[i] -= dot * b[i];
        }
      }
      /* What is left of a dependent column is rounding error: float32 has 2^-24. */
      normalize_column(a, length, 1e-6 * before, norms);
    }
  }
}

/* Every so many columns of all matrices are a block's; number counts them. */
#define EACH_COLUMN(m, k, number, table, matrices) \
  for (long m = 0, number = -1; m < (matrices); m++) \
    for (long k = 0; k < (table)[3 * m + 2]; k++) \
      if (++number % gridDim.x == blockIdx.x)

KERNEL(normalize, float *thin, const long *table, long matrices) {
  __shared__ double norms[BLOCK];
  EACH_COLUMN(m, k, number, table, matrices) {
    long length = table[3 * m + 1];
    normalize_column(thin + table[3 * m] + k * length, length, 0, norms);
  }
}

/* Whether each column is zero. */
KERNEL(find_zero_columns, const float *thin, const long *table, long matrices, int *zero) {
  __shared__ int counts[BLOCK];
  EACH_COLUMN(m, k, number, table, matrices) {
    long length = table[3 * m + 1];
    const float *a = thin + table[3 * m] + k * length;
    int others = 0;
    for (long i = threadIdx.x; i < length; i += BLOCK) {
      others += a[i] == 0 ? 0 : 1;
    }
    others = block_sum(others, counts);
    if (threadIdx.x == 0) {
      zero[number] = others == 0 ? 1 : 0;
    }
  }
}

/* SplitMix64, as io.jccl.internal.SplitMix. */
INLINE u64 split_mix(u64 state) {
  u64 z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/*
 * One block: random elements from -1 to 1 for columns that are zero. What is drawn depends on the
 * seed, the place of the column and the number of columns drawn before it.
 */
KERNEL(redraw_zero_columns, float *thin, const long *table, long matrices, const int *zero,
    u64 seed, u64 *drawn) {
  u64 before = *drawn;
  long number = 0;
  for (long m = 0; m < matrices; m++) {
    long length = table[3 * m + 1];
    for (long k = 0; k < table[3 * m + 2]; k++) {
      if (zero[number++] != 0) {
        u64 state = seed * 31 + (u64)(table[3 * m] + k) * 0xD1342543DE82EF95ULL + before++;
        for (long i = threadIdx.x; i < length; i += BLOCK) {
          u64 bits = split_mix(state + (u64)(i + 1) * 0x9E3779B97F4A7C15ULL) >> 40;
          thin[table[3 * m] + k * length + i] = (float)bits * (1.0f / 8388608) - 1;
        }
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *drawn = before;
  }
}
