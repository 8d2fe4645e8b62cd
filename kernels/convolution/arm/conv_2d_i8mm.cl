// SPDX-License-Identifier: Apache-2.0
// Macros: as conv_2d_dotprod.cl. Of an odd TILE_W the last pixel stands for two.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define ARM_TARGET "dotprod,i8mm"
#include "neon.clh"
#include "conv_2d_arm.clh"

#define PAIRS ((TILE_W + 1) / 2)
#define ODD(p) EACH_LEAST(2 * (p) + 1, TILE_W - 1)  // of a pair

// A step of 8 bytes: those of two pixels times 8 weights of two channels.
#define STEP(bytes, weight)                         \
  EACH_VECTOR(2 * VECTORS, int4 each = (weight)[v]; \
              EACH_PAIR(ADD_MATRIX(part[p][v], bytes[p], each)))
#define EACH_PAIR(statement) \
  UNROLLED (p, PAIRS) {      \
    statement;               \
  }

INLINE void LOCAL(add_products)(int4 (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  int window_rows = ROWS, row_steps = ROW_STEPS;
  const int4* weight =
      PLAIN_POINTER(const int4, constants + WEIGHTS) + c * window_rows * row_steps * VECTORS;
  int4 part[PAIRS][2 * VECTORS];  // of two pixels and two channels: four sums
  EACH_VECTOR(2 * VECTORS, EACH_PAIR(part[p][v] = 0))
  for (int y = 0; y < window_rows; y++) {
    int left = row_steps;
    for (; left >= 4; left -= 4) {
      int4 first[PAIRS], second[PAIRS];
      EACH_PAIR(int4 even = *(const NEAR_INTS*)(rows + 2 * p * pitch);
                int4 odd = *(const NEAR_INTS*)(rows + ODD(p) * pitch);
                first[p] = (int4)(even.lo, odd.lo); second[p] = (int4)(even.hi, odd.hi))
      STEP(first, weight)
      STEP(second, weight + 2 * VECTORS)
      weight += 4 * VECTORS;
      rows += 16;
    }
    if (left > 0) {  // there are two more
      int4 last[PAIRS];
      EACH_PAIR(last[p] = (int4)(*(const NEAR_INT2*)(rows + 2 * p * pitch),
                                 *(const NEAR_INT2*)(rows + ODD(p) * pitch)))
      STEP(last, weight)
      weight += 2 * VECTORS;
      rows += 8;
    }
    rows += jump;
  }
  EACH_VECTOR(VECTORS,
              EACH_PAIR(int4 left = part[p][2 * v]; int4 right = part[p][2 * v + 1];
                        sum[2 * p][v] += (int4)(left.lo, right.lo);
                        if (2 * p + 1 < TILE_W) sum[2 * p + 1][v] += (int4)(left.hi, right.hi)))
}

#if USES_CONV_2D_I8MM_QUANT8
#define ADDS_TO_SUMS 0
#include "conv_2d_arm_run.clh"

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_i8mm_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_i8mm_quant8)
#endif

#if USES_CONV_2D_I8MM_HYBRID
#include "hybrid.clh"
#define MOVED 0
#include "conv_2d_panel_hybrid.clh"

// conv_2d_hybrid for blocks of pixels and channels; the input is int8   NHWC, OHWI
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_i8mm_hybrid) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_i8mm_hybrid)
#endif
