// SPDX-License-Identifier: Apache-2.0
// Macros: as conv_2d_dotprod.cl; TILE_W is even.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define ARM_TARGET "dotprod,i8mm"
#include "neon.clh"
#include "conv_2d_arm.clh"

// A step of 8 bytes: those of two pixels times 8 weights of two channels.
#define STEP(bytes, weight)                         \
  EACH_VECTOR(2 * VECTORS, int4 each = (weight)[v]; \
              EACH_PAIR(ADD_MATRIX(part[p][v], bytes[p], each)))
#define EACH_PAIR(statement) \
  UNROLLED (p, TILE_W / 2) { \
    statement;               \
  }

INLINE void LOCAL(multiply)(int4 (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                            const int4* weight, const int4* channel, const int* corrections,
                            PARAMS params) {
  int window_rows = ROWS, row_steps = ROW_STEPS;
  int4 part[TILE_W / 2][2 * VECTORS];  // of two pixels and two channels: four sums
  EACH_VECTOR(2 * VECTORS, EACH_PAIR(part[p][v] = 0))
  for (int y = 0; y < window_rows; y++) {
    int left = row_steps;
    for (; left >= 4; left -= 4) {
      int4 first[TILE_W / 2], second[TILE_W / 2];
      EACH_PAIR(int4 even = *(const NEAR_INTS*)(rows + 2 * p * pitch);
                int4 odd = *(const NEAR_INTS*)(rows + (2 * p + 1) * pitch);
                first[p] = (int4)(even.lo, odd.lo); second[p] = (int4)(even.hi, odd.hi))
      STEP(first, weight)
      STEP(second, weight + 2 * VECTORS)
      weight += 4 * VECTORS;
      rows += 16;
    }
    if (left > 0) {  // there are two more
      int4 last[TILE_W / 2];
      EACH_PAIR(last[p] = (int4)(*(const NEAR_INT2*)(rows + 2 * p * pitch),
                                 *(const NEAR_INT2*)(rows + (2 * p + 1) * pitch)))
      STEP(last, weight)
      weight += 2 * VECTORS;
      rows += 8;
    }
    rows += jump;
  }
  EACH_VECTOR(VECTORS,
              EACH_PAIR(int4 left = part[p][2 * v]; int4 right = part[p][2 * v + 1];
                        sum[2 * p][v] = (int4)(left.lo, right.lo) + LACKING(2 * p, v);
                        sum[2 * p + 1][v] = (int4)(left.hi, right.hi) + LACKING(2 * p + 1, v)))
}

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_i8mm_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_i8mm_quant8)
