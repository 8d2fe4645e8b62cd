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

// Of each pixel the 4 bytes of its window's row that are `at` bytes behind source[p].
#define EACH_PRODUCT(at, statement)                                  \
  UNROLLED (p, TILE_W) {                                             \
    INTS input = LOCAL(spread)(*(const ANY_INT*)(source[p] + (at))); \
    UNROLLED (v, VECTORS) {                                          \
      statement;                                                     \
    }                                                                \
  }

#if WEIGHT_BITS == 16
typedef char LOCAL(chars16) __attribute__((vector_size(16)));
typedef char LOCAL(near_chars16) __attribute__((vector_size(16), aligned(1)));
typedef uchar LOCAL(uchars16) __attribute__((vector_size(16)));
typedef short LOCAL(near_shorts) __attribute__((vector_size(32), aligned(1)));

// Bytes less `zero` as shorts. What is copied beyond the end is overwritten by what follows, or has
// weights of 0.
INLINE void LOCAL(copy_less)(const uchar* from, uchar* to, int size, int zero) {
  SHORTS zeros = (SHORTS)LOCAL(spread)((zero & 0xffff) * 0x10001);
  for (int i = 0; i < size; i += 16) {
    LOCAL(chars16) bytes = *(const LOCAL(near_chars16)*)(from + i);
#if IS_SIGNED
    SHORTS values = __builtin_convertvector(bytes, SHORTS);
#else
    SHORTS values = (SHORTS) __builtin_convertvector((LOCAL(uchars16))bytes, SHORTS);
#endif
    *(LOCAL(near_shorts)*)(to + 2 * i) = values - zeros;
  }
}
INLINE void LOCAL(copy)(const uchar* from, uchar* to, int size) {
  LOCAL(copy_less)(from, to, size, 0);
}

// sum[p][v] += the shorts of rows `row` to `end_row` of windows times weights, two of each a step.
// A window's rows are `pitch` bytes apart.
INLINE void LOCAL(add_rows)(INTS (*sum)[VECTORS], const uchar** window, int pitch, int row,
                            int end_row, global const uchar* constants, PARAMS params, int c) {
  int row_steps = ROW_STEPS;
  const INTS* weight =
      PLAIN_POINTER(const INTS, constants + WEIGHTS) + (c * ROWS + row) * row_steps * VECTORS;
  for (; row < end_row; row++) {
    const uchar* source[TILE_W];
    UNROLLED (p, TILE_W) source[p] = window[p] + row * pitch;
    for (int at = 0; at < 4 * row_steps; at += 4) {
      EACH_PRODUCT(at, sum[p][v] += QUADS(input, weight[v]))
      weight += VECTORS;
    }
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
INLINE void LOCAL(add_rows)(INTS (*sum)[VECTORS], const uchar** window, int pitch, int row,
                            int end_row, global const uchar* constants, PARAMS params, int c) {
  int row_steps = ROW_STEPS;
  const uchar* source[TILE_W];
  const uchar* packed = PLAIN_POINTER(const uchar, constants + WEIGHTS);
  const INTS* weight = (const INTS*)packed + (c * ROWS + row) * row_steps * VECTORS;
  const int* table = (const int*)(packed + TABLE_AT);
  INTS ones = LOCAL(spread)(0x00010001);
  for (; row < end_row; row++) {
    UNROLLED (p, TILE_W) source[p] = window[p] + row * pitch;
    for (int at = 0; at < 4 * row_steps;) {
      int end = EACH_LEAST(at + 4 * table[2 * c], 4 * row_steps);
      SHORTS part[TILE_W][VECTORS];
      EACH_PRODUCT(at, part[p][v] = PAIRS(input, weight[v]))
      weight += VECTORS;
      for (at += 4; at < end; at += 4) {
        EACH_PRODUCT(at, part[p][v] += PAIRS(input, weight[v]))
        weight += VECTORS;
      }
      UNROLLED (p, TILE_W)
        UNROLLED (v, VECTORS) sum[p][v] += QUADS(part[p][v], ones);
    }
  }
  const int* places = (const int*)(packed + STEPS_AT);
  const INTS* extra = (const INTS*)(packed + EXTRA_AT);
  UNROLLED (p, TILE_W) source[p] = window[p];
  for (int e = table[2 * c + 1]; e < table[2 * c + 3]; e++) {
    int at = 4 * places[2 * e] + places[2 * e + 1] * (pitch - 4 * row_steps);
    EACH_PRODUCT(at, sum[p][v] += QUADS(PAIRS(input, extra[e * VECTORS + v]), ones))
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
#include "conv_2d_avx2_run.clh"

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_avx2_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_avx2_quant8)
#endif

#if USES_CONV_2D_AVX2_HYBRID
#include "hybrid.clh"
#define MOVED 0

INLINE void LOCAL(add_products)(INTS (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  const uchar* window[TILE_W];
  UNROLLED (p, TILE_W) window[p] = rows + p * pitch;
  LOCAL(add_rows)(sum, window, 4 * ROW_STEPS + jump, 0, ROWS, constants, params, c);
}

#include "conv_2d_panel_hybrid.clh"

// conv_2d_hybrid for blocks of pixels and channels; the input is int8   NHWC, OHWI
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_avx2_hybrid) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_avx2_hybrid)
#endif
