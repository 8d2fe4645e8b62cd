// SPDX-License-Identifier: Apache-2.0
// Macros: IS_SIGNED, 1 for int8 activations, 0 for uint8; TILE_W pixels x VECTORS vectors of 16
// channels are a block; PANEL_BYTES for a block's windows; FLIPS, 1 where int8 inputs are made
// uint8 as they are loaded; ROWS_A_BLOCK and FIXED, see conv_2d_x86.clh; of hybrid ones those of
// hybrid.clh. Hybrid ones take quantised floats as uint8, 128 more than TFLite's int8.
//
// The instruction multiplies uint8 by int8, so of int8 inputs and weights one has to be 128 more.
// To add that to inputs takes an instruction a pixel and step. Where weights have it, what they
// make too much is the same for all channels: 128 times the sum of a window.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define X86_LANES 16
#include "requantize_x86.clh"

#define HAS_SUMS (USES_CONV_2D_VNNI_QUANT8 && !FLIPS)
#define STRIP_W TILE_W
#define ALWAYS_GATHERS 0
#define VALUE_BYTES 1
#if IS_SIGNED && !FLIPS
#define DOT(sum, input, weight) ((INTS)__builtin_ia32_vpdpbusd512(sum, weight, input))
#else
#define DOT(sum, input, weight) ((INTS)__builtin_ia32_vpdpbusd512(sum, input, weight))
#endif

// sum[p][v] += a window's bytes times weights: 4 bytes of one pixel, the same for all lanes, times
// 4 weights of each lane's channel.
INLINE void LOCAL(add_products)(INTS (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  int steps = ROWS * ROW_STEPS, row_steps = ROW_STEPS, left = row_steps;
  const INTS* weight = PLAIN_POINTER(const INTS, constants + WEIGHTS) + c * steps * VECTORS;
#if FLIPS
  INTS flip = LOCAL(spread)(0x80808080);
#endif
  for (int k = 0; k < steps; k++) {
    UNROLLED (p, TILE_W) {
      const ANY_INT* bytes = (const ANY_INT*)(rows + p * pitch);
#if FLIPS
      // int8 + 128 is uint8. The compiler would flip a scalar's bits and spread it after that.
      INTS input;
      __asm__("vpxord %2%{1to16%}, %1, %0" : "=v"(input) : "v"(flip), "m"(*bytes));
#else
      INTS input = LOCAL(spread)(*bytes);
#endif
      UNROLLED (v, VECTORS) sum[p][v] = DOT(sum[p][v], input, weight[v]);
    }
    weight += VECTORS;
    rows += 4;
    if (--left == 0) {
      left = row_steps;
      rows += jump;
    }
  }
}

#if HAS_SUMS
// In each 4 lanes the sum of 4 lanes of a, of b, of c and of d.
INLINE INTS LOCAL(added)(INTS a, INTS b, INTS c, INTS d) {
#define EVEN 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define ODD 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
  INTS ab = __builtin_shufflevector(a, b, EVEN) + __builtin_shufflevector(a, b, ODD);
  INTS cd = __builtin_shufflevector(c, d, EVEN) + __builtin_shufflevector(c, d, ODD);
  return __builtin_shufflevector(ab, cd, EVEN) + __builtin_shufflevector(ab, cd, ODD);
}

// corrections[p] = what weights make too much: the sum of a window's bytes times what a uint8
// weight's zero point is above 128, as weights are taken 128 less than stored; or times 128, which
// int8 ones have more. RAMP has 64 bytes of that factor, then 64 of 0.
INLINE void LOCAL(correct)(const uchar* rows, int pitch, int jump, global const uchar* constants,
                           PARAMS params, int* corrections) {
  const uchar* ramp = PLAIN_POINTER(const uchar, constants + RAMP);
  int size = ROW_BYTES;
  INTS sum[16];
  UNROLLED (p, 16) sum[p] = LOCAL(spread)(0);
  if (IS_CORRECTED) {
    for (int row = 0; row < ROWS; row++) {
      for (int k = 0; k < size; k += 64) {
        INTS factor = *(const NEAR_INTS*)(ramp + EACH_MOST(0, 64 - (size - k)));
        UNROLLED (p, TILE_W)
          sum[p] = DOT(sum[p], *(const NEAR_INTS*)(rows + p * pitch + k), factor);
      }
      rows += 4 * ROW_STEPS + jump;
    }
  }
  INTS part[4];
  UNROLLED (i, 4)
    part[i] = LOCAL(added)(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
#define LOW_PIECES 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_PIECES 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_HALVES 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_HALVES 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
  INTS first = __builtin_shufflevector(part[0], part[1], LOW_PIECES) +
               __builtin_shufflevector(part[0], part[1], HIGH_PIECES);
  INTS last = __builtin_shufflevector(part[2], part[3], LOW_PIECES) +
              __builtin_shufflevector(part[2], part[3], HIGH_PIECES);
  *(INTS*)corrections = __builtin_shufflevector(first, last, LOW_HALVES) +
                        __builtin_shufflevector(first, last, HIGH_HALVES);
}
#endif

#include "conv_2d_avx512.clh"

#if USES_CONV_2D_VNNI_QUANT8
#include "conv_2d_x86.clh"
#include "conv_2d_x86_run.clh"

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_vnni_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_vnni_quant8)
#endif

#if USES_CONV_2D_VNNI_HYBRID
#include "hybrid.clh"
#define MOVED 128
#include "conv_2d_panel_hybrid.clh"

// conv_2d_hybrid for blocks of pixels and channels; the input is uint8   NHWC, OHWI
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_vnni_hybrid) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_vnni_hybrid)
#endif
