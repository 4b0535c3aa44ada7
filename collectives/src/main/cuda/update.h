/*
 * One step of an optimizer, in one pass: operation by operation what io.jccl.kernel.PlainUpdate
 * does. p, m and v are float32; target, if any, gets the new parameters rounded. control may be
 * null: see norm.h.
 */
enum rule { ADAM, ADAMW, SGD, MOMENTUM, NESTEROV, LION };

enum { NO_TARGET, TARGET_F32, TARGET_BF16, TARGET_F16 };

struct coefficients {
  float factor, decay, keep1, add1, keep2, add2, rate, root, epsilon;
};

/* The new parameter; m and v are changed where the rule has them. */
template <int RULE> INLINE float stepped(float x, float &m, float &v, float g, coefficients c) {
  g = g * c.factor;
  if (RULE == ADAMW || RULE == LION) {
    x = x * c.decay;
  } else {
    g = g + x * c.decay;
  }
  if (RULE == SGD) {
    return x - g * c.rate;
  }
  if (RULE == LION) {
    float u = m * c.keep1 + g * c.add1;
    m = m * c.keep2 + g * c.add2;
    return u > 0 ? x - c.rate : u < 0 ? x + c.rate : x;
  }
  m = m * c.keep1 + g * c.add1;
  if (RULE == MOMENTUM) {
    return x - m * c.rate;
  }
  if (RULE == NESTEROV) {
    return x - (g + m * c.keep2) * c.rate;
  }
  v = v * c.keep2 + g * c.add2 * g;
  return x - m * c.rate / (sqrtf(v) * c.root + c.epsilon);
}

template <class T, int N> INLINE void put_narrow(T *to, const pack<float, N> &x) {
  map_pack<N>([](float v) { return v; }, to, x);
}

template <int RULE, class G>
INLINE void update(float *p, float *m, float *v, const G *gradients, void *target, int target_type,
    const double *control, long n, coefficients c) {
  if (control != 0) {
    if (control[1] != 0) {
      return;
    }
    c.factor = (float)control[0];
  }
  each_pack<4>(n, aligned(p, m, v, gradients, target), [=](auto lanes, long i) {
    const int N = decltype(lanes)::count;
    pack<float, N> x = pack_at<N>(p + i), first = {}, second = {};
    pack<G, N> g = pack_at<N>(gradients + i);
    if (RULE != SGD) {
      first = pack_at<N>(m + i);
    }
    if (RULE == ADAM || RULE == ADAMW) {
      second = pack_at<N>(v + i);
    }
    for (int k = 0; k < N; k++) {
      x.at[k] = stepped<RULE>(x.at[k], first.at[k], second.at[k], widen(g.at[k]), c);
    }
    put_pack(p + i, x);
    if (RULE != SGD) {
      put_pack(m + i, first);
    }
    if (RULE == ADAM || RULE == ADAMW) {
      put_pack(v + i, second);
    }
    if (target_type == TARGET_F32) {
      put_pack((float *)target + i, x);
    } else if (target_type == TARGET_BF16) {
      put_narrow((bf16 *)target + i, x);
    } else if (target_type == TARGET_F16) {
      put_narrow((f16 *)target + i, x);
    }
  });
}

#define UPDATE(name, rule, type) \
  KERNEL(name##_##type, float *p, float *m, float *v, const type##_t *gradients, void *target, \
      int target_type, const double *control, long n, float factor, float decay, float keep1, \
      float add1, float keep2, float add2, float rate, float root, float epsilon) { \
    coefficients c = {factor, decay, keep1, add1, keep2, add2, rate, root, epsilon}; \
    update<rule, type##_t>(p, m, v, gradients, target, target_type, control, n, c); \
  }
#define UPDATES(name, rule) \
  UPDATE(name, rule, f32) \
  UPDATE(name, rule, bf16) \
  UPDATE(name, rule, f16)
UPDATES(adam, ADAM)
UPDATES(adamw, ADAMW)
UPDATES(sgd, SGD)
UPDATES(momentum, MOMENTUM)
UPDATES(nesterov, NESTEROV)
UPDATES(lion, LION)
#undef UPDATES
#undef UPDATE
