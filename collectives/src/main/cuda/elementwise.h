/* Element by element: fill, cast, add, scale, divide, axpy; and a kernel that only takes time. */

#define FILL(bits) \
  KERNEL(fill_u##bits, u##bits *target, u##bits value, long n) { \
    each_pack<128 / bits>(n, aligned(target), [=](auto lanes, long i) { \
      const int N = decltype(lanes)::count; \
      pack<u##bits, N> all; \
      for (int k = 0; k < N; k++) { \
        all.at[k] = value; \
      } \
      put_pack(target + i, all); \
    }); \
  }
FILL(8)
FILL(16)
FILL(32)
FILL(64)
#undef FILL

#define CAST(from, to) \
  KERNEL(cast_##from##_##to, const from##_t *source, to##_t *target, long n) { \
    map(n, [](auto x) { return x; }, target, source); \
  }

typedef float f32_t;
typedef double f64_t;
typedef bf16 bf16_t;
typedef f16 f16_t;

CAST(f32, f64)
CAST(f32, bf16)
CAST(f32, f16)
CAST(f64, f32)
CAST(f64, bf16)
CAST(f64, f16)
CAST(bf16, f32)
CAST(bf16, f64)
CAST(bf16, f16)
CAST(f16, f32)
CAST(f16, f64)
CAST(f16, bf16)
#undef CAST

/* target may be a or b (source, y). */
#define ARITHMETIC(name) \
  KERNEL(add_##name, const name##_t *a, const name##_t *b, name##_t *target, long n) { \
    map(n, [](auto x, auto y) { return x + y; }, target, a, b); \
  } \
  KERNEL(scale_##name, const name##_t *source, double factor, name##_t *target, long n) { \
    wide_of<name##_t>::type f = (wide_of<name##_t>::type)factor; \
    map(n, [=](auto x) { return x * f; }, target, source); \
  } \
  KERNEL(divide_##name, const name##_t *source, double divisor, name##_t *target, long n) { \
    wide_of<name##_t>::type d = (wide_of<name##_t>::type)divisor; \
    map(n, [=](auto x) { return x / d; }, target, source); \
  } \
  KERNEL(axpy_##name, double alpha, const name##_t *x, name##_t *y, long n) { \
    wide_of<name##_t>::type f = (wide_of<name##_t>::type)alpha; \
    map(n, [=](auto b, auto a) { return b + f * a; }, y, y, x); \
  }
ARITHMETIC(f32)
ARITHMETIC(f64)
ARITHMETIC(bf16)
ARITHMETIC(f16)
#undef ARITHMETIC

/* Keeps one thread of a device busy for so many nanoseconds: work whose length is known. */
KERNEL(spin, long duration) {
  EACH(i, 1) {
    u64 end = nanoseconds() + (u64)duration;
    while (nanoseconds() < end) {
    }
  }
}
