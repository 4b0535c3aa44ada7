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

template <int RULE, class G>
INLINE void update(float *p, float *m, float *v, const G *gradients, void *target, int target_type,
    const double *control, long n, coefficients c) {
  if (control != 0) {
    if (control[1] != 0) {
      return;
    }
    c.factor = (float)control[0];
  }
  EACH(i, n) {
    float g = widen(gradients[i]) * c.factor;
    float x = p[i];
    if (RULE == ADAMW || RULE == LION) {
      x = x * c.decay;
    } else {
      g = g + x * c.decay;
    }
    if (RULE == SGD) {
      x = x - g * c.rate;
    } else if (RULE == LION) {
      float mean = m[i];
      float u = mean * c.keep1 + g * c.add1;
      x = u > 0 ? x - c.rate : u < 0 ? x + c.rate : x;
      m[i] = mean * c.keep2 + g * c.add2;
    } else {
      float mean = m[i] * c.keep1 + g * c.add1;
      m[i] = mean;
      if (RULE == MOMENTUM) {
        x = x - mean * c.rate;
      } else if (RULE == NESTEROV) {
        x = x - (g + mean * c.keep2) * c.rate;
      } else {
        float square = v[i] * c.keep2 + g * c.add2 * g;
        v[i] = square;
        x = x - mean * c.rate / (sqrtf(square) * c.root + c.epsilon);
      }
    }
    p[i] = x;
    if (target_type == TARGET_F32) {
      narrow(x, &((float *)target)[i]);
    } else if (target_type == TARGET_BF16) {
      narrow(x, &((bf16 *)target)[i]);
    } else if (target_type == TARGET_F16) {
      narrow(x, &((f16 *)target)[i]);
    }
  }
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
