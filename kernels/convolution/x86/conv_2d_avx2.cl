// SPDX-License-Identifier: Apache-2.0
// Macros: IS_SIGNED, 1 for int8 activations, 0 for uint8; WEIGHT_BITS, 8 or 16; TILE_W pixels x
// VECTORS vectors of 8 channels are a block; PANEL_BYTES for a block's windows; ROWS_A_BLOCK
// and FIXED, see conv_2d_x86.clh; of hybrid ones those of hybrid.clh. Hybrid ones take quantised
// floats as int8, and products of 16 bits.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define X86_LANES 8
#include "requantize_x86.clh"

#define HAS_SUMS 0
#define STRIP_W TILE_W
#define ALWAYS_GATHERS (IS_SIGNED || WEIGHT_BITS == 16)
#define VALUE_BYTES (WEIGHT_BITS / 8)
#define QUADS(pairs, weight) ((INTS)X86(pmaddwd)((SHORTS)(pairs), (SHORTS)(weight)))

#define EACH_PRODUCT(statement)                                      \
  UNROLLED (p, TILE_W) {                                             \
    INTS input = LOCAL(spread)(*(const ANY_INT*)(rows + p * pitch)); \
    UNROLLED (v, VECTORS) {                                          \
      statement;                                                     \
    }                                                                \
  }

#if WEIGHT_BITS == 16
typedef char LOCAL(chars16) __attribute__((vector_size(16)));
typedef char LOCAL(near_chars16) __attribute__((vector_size(16), aligned(1)));
typedef uchar LOCAL(uchars16) __attribute__((vector_size(16)));
typedef short LOCAL(near_shorts) __attribute__((vector_size(32), aligned(1)));

// Bytes as shorts. What is copied beyond the end is overwritten by what follows, or has weights of
// 0.
INLINE void LOCAL(copy)(const uchar* from, uchar* to, int size) {
  for (int i = 0; i < size; i += 16) {
    LOCAL(chars16) bytes = *(const LOCAL(near_chars16)*)(from + i);
#if IS_SIGNED
    *(LOCAL(near_shorts)*)(to + 2 * i) = __builtin_convertvector(bytes, SHORTS);
#else
    *(LOCAL(near_shorts)*)(to + 2 * i) =
        (SHORTS) __builtin_convertvector((LOCAL(uchars16))bytes, SHORTS);
#endif
  }
}

// sum[p][v] += a window's shorts times weights, two of each a step.
INLINE void LOCAL(add_products)(INTS (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  int steps = ROWS * ROW_STEPS;
  const INTS* weight = PLAIN_POINTER(const INTS, constants + WEIGHTS) + c * steps * VECTORS;
  for (int k = 0; k < steps; k++) {
    EACH_PRODUCT(sum[p][v] += QUADS(input, weight[v]))
    weight += VECTORS;
    rows += 4;
  }
}
#else
#define PAIRS(input, weight) ((SHORTS)X86(pmaddubsw)((CHARS)(input), (CHARS)(weight)))

// int8 + 128 is uint8. What is copied beyond the end is overwritten by what follows, or has weights
// of 0.
INLINE void LOCAL(copy)(const uchar* from, uchar* to, int size) {
  INTS flip = LOCAL(spread)(IS_SIGNED ? 0x80808080 : 0);
  for (int i = 0; i < size; i += 32) *(NEAR_INTS*)(to + i) = *(const NEAR_INTS*)(from + i) ^ flip;
}

// sum[p][v] += a window's bytes times weights, added in 16 bits over as many steps of a row as
// these weights cannot overflow, whatever the bytes are. What weights are too large for that comes
// after: an extra step is the rest of one step's weights.
INLINE void LOCAL(add_products)(INTS (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  int row_steps = ROW_STEPS;
  const uchar* first = rows;
  const uchar* packed = PLAIN_POINTER(const uchar, constants + WEIGHTS);
  const INTS* weight = (const INTS*)packed + c * ROWS * row_steps * VECTORS;
  const int* table = (const int*)(packed + TABLE_AT);
  INTS ones = LOCAL(spread)(0x00010001);
  for (int row = 0; row < ROWS; row++) {
    for (int left = row_steps; left > 0;) {
      int count = EACH_LEAST(table[2 * c], left);
      SHORTS part[TILE_W][VECTORS];
      left -= count;
      EACH_PRODUCT(part[p][v] = PAIRS(input, weight[v]))
      while (--count) {
        weight += VECTORS;
        rows += 4;
        EACH_PRODUCT(part[p][v] += PAIRS(input, weight[v]))
      }
      weight += VECTORS;
      rows += 4;
      UNROLLED (p, TILE_W)
        UNROLLED (v, VECTORS) sum[p][v] += QUADS(part[p][v], ones);
    }
    rows += jump;
  }
  const int* at = (const int*)(packed + STEPS_AT);
  const INTS* extra = (const INTS*)(packed + EXTRA_AT);
  for (int e = table[2 * c + 1]; e < table[2 * c + 3]; e++) {
    rows = first + 4 * at[2 * e] + at[2 * e + 1] * jump;
    EACH_PRODUCT(sum[p][v] += QUADS(PAIRS(input, extra[e * VECTORS + v]), ones))
  }
}
#endif

typedef int LOCAL(int2s) __attribute__((vector_size(8), aligned(1)));

INLINE void LOCAL(store_part)(const uchar* from, uchar* to, int size) {
  for (; size >= 8; size -= 8, from += 8, to += 8) *(LOCAL(int2s)*)to = *(const LOCAL(int2s)*)from;
  for (int i = 0; i < size; i++) to[i] = from[i];
}
#define STORE_PART(N, bytes, to, size) LOCAL(store_part)((const uchar*)&bytes, to, size)

#if USES_CONV_2D_AVX2_QUANT8
#include "conv_2d_x86.clh"
#include "conv_2d_x86_run.clh"

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_avx2_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_avx2_quant8)
#endif

#if USES_CONV_2D_AVX2_HYBRID
#include "hybrid.clh"
#define MOVED 0
#include "conv_2d_panel_hybrid.clh"

// conv_2d_hybrid for blocks of pixels and channels; the input is int8   NHWC, OHWI
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_avx2_hybrid) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_avx2_hybrid)
#endif
