// SPDX-License-Identifier: Apache-2.0
// Macros: IS_SIGNED, 1 for int8 activations, 0 for uint8; TILE_W pixels x VECTORS vectors of 4
// channels are a block; PANEL_BYTES for a block's windows; those of neon.clh. Of 8-bit ones
// HAS_WEIGHT_ZERO, 1 where the weights' zero point is not 0, and those of finish_bytes.clh; of
// hybrid ones those of hybrid.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define ARM_TARGET "dotprod"
#include "neon.clh"
#include "conv_2d_arm.clh"

// A step of 4 bytes: those of one pixel, the same for all lanes, times 4 weights of each lane's
// channel. 16 bytes of a pixel are loaded at once.
#define STEP(lane)                                               \
  EACH_VECTOR(VECTORS, int4 each = weight[(lane) * VECTORS + v]; \
              EACH_PIXEL(ADD_DOT_LANE(sum[p][v], each, bytes[p], lane)))

INLINE void LOCAL(add_products)(int4 (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  int window_rows = ROWS, row_steps = ROW_STEPS;
  const int4* weight =
      PLAIN_POINTER(const int4, constants + WEIGHTS) + c * window_rows * row_steps * VECTORS;
  for (int y = 0; y < window_rows; y++) {
    int left = row_steps;
    for (; left >= 4; left -= 4) {
      int4 bytes[TILE_W];
      EACH_PIXEL(bytes[p] = *(const NEAR_INTS*)(rows + p * pitch))
      STEP(0)
      STEP(1)
      STEP(2)
      STEP(3)
      weight += 4 * VECTORS;
      rows += 16;
    }
    for (; left > 0; left--) {
      int4 bytes[TILE_W];
      EACH_PIXEL(bytes[p] = *(const ANY_INT*)(rows + p * pitch))
      EACH_VECTOR(VECTORS, EACH_PIXEL(ADD_DOT(sum[p][v], bytes[p], weight[v])))
      weight += VECTORS;
      rows += 4;
    }
    rows += jump;
  }
}

#if USES_CONV_2D_DOTPROD_QUANT8
#define ADDS_TO_SUMS 1
#include "conv_2d_arm_run.clh"

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_dotprod_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_dotprod_quant8)
#endif

#if USES_CONV_2D_DOTPROD_HYBRID
#include "hybrid.clh"
#define MOVED 0
#include "conv_2d_panel_hybrid.clh"

// conv_2d_hybrid for blocks of pixels and channels; the input is int8   NHWC, OHWI
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_dotprod_hybrid) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_dotprod_hybrid)
#endif
