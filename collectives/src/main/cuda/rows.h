/*
 * Rows and columns of matrices, moved unit by unit: bits is the widest unit that divides the rows
 * and their addresses. Widths and strides count units.
 */
#define ROWS(bits) \
  /* target[r] = source[index[r]]; a row of zeros where the index is not 0 to source_rows - 1 */ \
  KERNEL(gather_u##bits, const u##bits *source, long source_rows, const int *index, long rows, \
      long width, u##bits *target) { \
    EACH(i, rows * width) { \
      long row = quotient(i, width); \
      long from = index[row]; \
      target[i] = \
          from >= 0 && from < source_rows ? source[from * width + (i - row * width)] : 0; \
    } \
  } \
  /* target[index[r]] = source[r]; rows with an index outside the target are left out */ \
  KERNEL(scatter_u##bits, const u##bits *source, const int *index, long rows, long width, \
      u##bits *target, long target_rows) { \
    EACH(i, rows * width) { \
      long row = quotient(i, width); \
      long to = index[row]; \
      if (to >= 0 && to < target_rows) { \
        target[to * width + (i - row * width)] = source[i]; \
      } \
    } \
  } \
  /* a block of columns, from rows of one length to rows of another */ \
  KERNEL(columns_u##bits, const u##bits *source, long source_stride, u##bits *target, \
      long target_stride, long rows, long width) { \
    EACH(i, rows * width) { \
      long row = quotient(i, width); \
      long column = i - row * width; \
      target[row * target_stride + column] = source[row * source_stride + column]; \
    } \
  }
ROWS(8)
ROWS(16)
ROWS(32)
ROWS(64)
#undef ROWS
