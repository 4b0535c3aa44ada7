/* Float16 and bfloat16 as the fakes of libnccl and libcublas store them. */
#ifndef JCCL_FAKE_FLOATS_H
#define JCCL_FAKE_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bits_to_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint32_t float_to_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static inline float from_half(uint16_t h) {
  uint32_t magnitude = h & 0x7fff;
  float f = magnitude < 0x400 ? (float)magnitude * 0x1p-24f
      : magnitude < 0x7c00    ? bits_to_float((magnitude << 13) + (112U << 23))
                              : bits_to_float(magnitude << 13 | 0x7f800000);
  return (h & 0x8000) != 0 ? -f : f;
}

/* Rounds the magnitude of a finite value to nearest even in so many fraction bits. */
static inline uint32_t narrow(uint32_t magnitude, int fraction_bits, int bias) {
  if ((int)(magnitude >> 23) - 127 >= 1 - bias) {
    int shift = 23 - fraction_bits;
    uint32_t tie = (magnitude >> shift) & 1;
    uint32_t rounded = (magnitude + (1U << (shift - 1)) - 1 + tie) >> shift;
    return rounded - ((uint32_t)(127 - bias) << fraction_bits);
  }
  /* A multiple of the smallest value; the product is exact. */
  float unit = (float)(1U << (bias - 1 + fraction_bits));
  return (uint32_t)rintf(bits_to_float(magnitude) * unit);
}

static inline uint16_t to_half(float f) {
  uint32_t bits = float_to_bits(f);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  }
  uint32_t code = magnitude == 0x7f800000 ? 0x7c00 : narrow(magnitude, 10, 15);
  return (uint16_t)(sign | (code > 0x7c00 ? 0x7c00 : code));
}

static inline uint16_t to_bfloat(float f) {
  uint32_t bits = float_to_bits(f);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return (uint16_t)(bits >> 16 | 0x40);
  }
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
