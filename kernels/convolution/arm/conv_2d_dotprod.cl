// SPDX-License-Identifier: Apache-2.0
// Macros: IS_SIGNED, 1 for int8 activations, 0 for uint8; TILE_W pixels x VECTORS vectors of 4
// channels are a block; PANEL_BYTES for a block's windows; HAS_WEIGHT_ZERO, 1 where the weights'
// zero point is not 0; those of neon.clh and of finish_bytes.clh.
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

INLINE void LOCAL(multiply)(int4 (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                            const int4* weight, const int4* channel, const int* corrections,
                            PARAMS params) {
  int window_rows = ROWS, row_steps = ROW_STEPS;
  EACH_VECTOR(VECTORS, EACH_PIXEL(sum[p][v] = LACKING(p, v)))
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

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_dotprod_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(conv_2d_dotprod_quant8)
