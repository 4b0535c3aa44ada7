/*
 * The shape of causal attention. A row of qkv holds the queries of all heads, then the keys and the
 * values of all key heads; heads / key_heads heads share a key head.
 */
#ifndef JCCL_HEADS_H
#define JCCL_HEADS_H

struct heads {
  long sequences;
  int context, heads, key_heads, size;
  float scale;
};

INLINE long row_of_qkv(heads h) { return (long)(h.heads + 2 * h.key_heads) * h.size; }

#endif
