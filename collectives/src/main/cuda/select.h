/*
 * The k elements of largest magnitude of a vector, for compression of gradients. Without its sign
 * bit a float32 is ordered like an integer, and NaN is above everything; three histograms over 11,
 * 10 and 10 bits find the k-th largest magnitude exactly, and of equals the first ones are taken.
 * Atomic additions are of integers, so their order does not matter.
 *
 * Scratch: prefix of the threshold that is known so far (in the end the threshold), how many
 * elements with that prefix are wanted, 2 unused, a histogram, and for each chunk of the vector
 * how many elements are above the threshold and how many equal it.
 */
enum { BINS = 2048, CHUNKS = 1024, COUNTS = 4, CHUNK_COUNTS = COUNTS + BINS };
enum { EACH_THREAD = 4, SELECT_TILE = BLOCK * EACH_THREAD };

INLINE u32 magnitude(u32 bits) { return bits & 0x7fffffffu; }

/* Sum over the threads before this one; all gets the sum over all. scratch holds BLOCK values. */
INLINE u64 block_scan(u64 x, u64 *scratch, u64 *all) {
  int t = (int)threadIdx.x;
  scratch[t] = x;
  __syncthreads();
  for (int distance = 1; distance < BLOCK; distance *= 2) {
    u64 before = t >= distance ? scratch[t - distance] : 0;
    __syncthreads();
    scratch[t] += before;
    __syncthreads();
  }
  u64 sum = scratch[t] - x;
  *all = scratch[BLOCK - 1];
  __syncthreads();
  return sum;
}

/* Counts digits, the bits from shift to below above, of the elements with the known prefix. */
KERNEL(select_histogram, const u32 *x, long n, int above, int shift, u32 *scratch) {
  __shared__ u32 bins[BINS];
  u32 prefix = scratch[0];
  u32 mask = (1u << (above - shift)) - 1;
  for (int i = (int)threadIdx.x; i < BINS; i += BLOCK) {
    bins[i] = 0;
  }
  __syncthreads();
  EACH(i, n) {
    u32 m = magnitude(x[i]);
    if (m >> above == prefix) {
      atomicAdd(&bins[m >> shift & mask], 1u);
    }
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < BINS; i += BLOCK) {
    if (bins[i] != 0) {
      atomicAdd(&scratch[COUNTS + i], bins[i]);
    }
  }
}

/*
 * One block: the digit of the threshold, from the largest down, and a histogram of zeros again. k is
 * how many are wanted, 0 for what the scratch says.
 */
KERNEL(select_digit, u32 *scratch, int k, int digits) {
  __shared__ u64 sums[BLOCK];
  u32 *bins = scratch + COUNTS;
  u32 prefix = scratch[0];
  u64 wanted = k == 0 ? scratch[1] : (u32)k;
  int each = (1 << digits) / BLOCK;
  int first = (1 << digits) - 1 - (int)threadIdx.x * each;
  u64 own = 0;
  for (int i = 0; i < each; i++) {
    own += bins[first - i];
  }
  u64 all;
  u64 larger = block_scan(own, sums, &all);
  if (larger < wanted && wanted <= larger + own) {
    int bin = first;
    while (larger + bins[bin] < wanted) {
      larger += bins[bin--];
    }
    scratch[0] = prefix << digits | (u32)bin;
    scratch[1] = (u32)(wanted - larger);
  }
  for (int i = 0; i < each; i++) {
    bins[first - i] = 0;
  }
}

/* 1 for an element that equals the threshold, 1 << 32 for one above it. */
INLINE u64 rank_of(u32 bits, u32 threshold) {
  u32 m = magnitude(bits);
  return m > threshold ? (u64)1 << 32 : m == threshold ? 1 : 0;
}

/* Both numbers for each chunk. */
KERNEL(select_count, const u32 *x, long n, long chunk, u32 *scratch) {
  __shared__ u64 sums[BLOCK];
  u32 threshold = scratch[0];
  for (long c = blockIdx.x; c * chunk < n; c += gridDim.x) {
    long end = (c + 1) * chunk < n ? (c + 1) * chunk : n;
    u64 sum = 0;
    for (long i = c * chunk + threadIdx.x; i < end; i += BLOCK) {
      sum += rank_of(x[i], threshold);
    }
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0) {
      scratch[CHUNK_COUNTS + c] = (u32)(sum >> 32);
      scratch[CHUNK_COUNTS + CHUNKS + c] = (u32)sum;
    }
  }
}

/* One block: both numbers before each chunk in place of those in it. */
KERNEL(select_offsets, u32 *scratch, int chunks) {
  __shared__ u64 sums[BLOCK];
  u32 *above = scratch + CHUNK_COUNTS;
  u32 *equal = above + CHUNKS;
  int each = CHUNKS / BLOCK;
  int first = (int)threadIdx.x * each;
  u64 own = 0, all;
  for (int i = first; i < first + each && i < chunks; i++) {
    own += (u64)above[i] << 32 | equal[i];
  }
  u64 before = block_scan(own, sums, &all);
  for (int i = first; i < first + each && i < chunks; i++) {
    u64 here = (u64)above[i] << 32 | equal[i];
    above[i] = (u32)(before >> 32);
    equal[i] = (u32)before;
    before += here;
  }
}

/*
 * Moves what is selected, in order: indices to the first k elements of selection, bits to the next
 * k; zeros remain.
 */
KERNEL(select_move, u32 *x, long n, long chunk, const u32 *scratch, u32 *selection, long k) {
  __shared__ u64 sums[BLOCK];
  u32 threshold = scratch[0];
  u32 ties = scratch[1];
  for (long c = blockIdx.x; c * chunk < n; c += gridDim.x) {
    long end = (c + 1) * chunk < n ? (c + 1) * chunk : n;
    u64 base = (u64)scratch[CHUNK_COUNTS + c] << 32 | scratch[CHUNK_COUNTS + CHUNKS + c];
    for (long tile = c * chunk; tile < end; tile += SELECT_TILE) {
      long first = tile + (long)threadIdx.x * EACH_THREAD;
      u64 own = 0, all;
      for (long i = first; i < first + EACH_THREAD && i < end; i++) {
        own += rank_of(x[i], threshold);
      }
      u64 before = base + block_scan(own, sums, &all);
      for (long i = first; i < first + EACH_THREAD && i < end; i++) {
        u32 bits = x[i];
        u64 rank = rank_of(bits, threshold);
        u32 equal = (u32)before;
        before += rank;
        if (rank > 1 || (rank == 1 && equal < ties)) {
          long to = (long)((before - rank) >> 32) + (equal < ties ? equal : ties);
          selection[to] = (u32)i;
          selection[k + to] = bits;
          x[i] = 0;
        }
      }
      base += all;
    }
  }
}

/* target += a selection; no index occurs twice, and one outside is left out. */
KERNEL(add_selection, const u32 *selection, long k, float *target, long n) {
  EACH(i, k) {
    u32 to = selection[i];
    if (to < n) {
      target[to] += float_of(selection[k + i]);
    }
  }
}
