// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' type, uchar or char; WEIGHT, the stored weights' type; for the
// vector kernel LANES channels and TILE_W output pixels of a row a work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "quantize.clh"
#include "store.clh"

#if USES_DEPTHWISE_CONV_2D_QUANT8
DEFINE_ROUNDING()

// output[n,y,x,o] = sum over the in-bounds window of (input[..,o / depth_multiplier] - zero) *
// (weights[ky,kx,o] - zero), plus bias, requantised and clamped   NHWC, 1HWO
// Source: reference/depthwiseconv_uint8.h, integer_ops/depthwise_conv.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(depthwise_conv_2d_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global const WEIGHT* weights = (global const WEIGHT*)(constants + WEIGHTS);
  global const int* channel = (global const int*)(constants + CHANNELS);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  EACH_ITEM (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    int sum = channel[o];
    EACH_TAP_INSIDE (ky, kx) {
      int source = input[((n * IN_H + in_y) * IN_W + in_x) * IN_C + o / DEPTH_MULTIPLIER];
      int weight = weights[(ky * KERNEL_W + kx) * OUT_C + o];
      sum += (source - INPUT_ZERO) * (weight - WEIGHT_ZERO);
    }
    int scaled = LOCAL(requantize)(sum, channel[OUT_C + o], channel[2 * OUT_C + o]) + OUTPUT_ZERO;
    output[element] = (ELEM)clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(depthwise_conv_2d_quant8)
#endif

#if USES_DEPTHWISE_CONV_2D_VECTOR_QUANT8
DEFINE_ROUNDING(LANES)
#define INTS JOIN(int, LANES)
#define TO_INTS JOIN(convert_int, LANES)
#define LOAD JOIN(vload, LANES)
#define ELEMS JOIN(ELEM, LANES)
DEFINE_STORE(ELEMS)
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)

// The same for a depth multiplier of 1, LANES channels and TILE_W neighbouring pixels at a time:
// weights are 16 bit, less their zero point. The input's zero point is in the bias; a pixel out of
// bounds reads zero points kept among the constants. The last block of pixels or channels overlaps
// the one before it and writes the same values again: no short stores.
// tile: TILE_ITEMS blocks of LANES channels x TILE_W pixels, channels first; tiles:
// ceil(blocks / TILE_ITEMS)
TILE(depthwise_conv_2d_vector_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE_BLOCK(item, OUT_C);
    global const int* channel = (global const int*)(constants + CHANNELS) + c;
    global const short* weight = (global const short*)(constants + WEIGHTS) + c;
    global const uchar* zeros = constants + ZEROS;
    INTS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = LOAD(0, channel);
    for (int ky = 0; ky < KERNEL_H; ky++) {
      int in_y = y * STRIDE_H - PAD_TOP + ky * DILATION_H;
      int row_inside = in_y >= 0 && in_y < IN_H;
      int row = (n * IN_H + in_y) * IN_W;
      for (int kx = 0; kx < KERNEL_W; kx++) {
        INTS factor = TO_INTS(LOAD(0, weight));
        weight += OUT_C;
        UNROLLED (p, TILE_W) {
          int in_x = (x + p) * STRIDE_W - PAD_LEFT + kx * DILATION_W;
          int inside = row_inside && in_x >= 0 && in_x < IN_W;
          global const uchar* tap = arena + INPUT + (row + in_x) * IN_C + c;
          global const ELEM* source = (global const ELEM*)(inside ? tap : zeros);
          sum[p] += TO_INTS(LOAD(0, source)) * factor;
        }
      }
    }
    INTS multiplier = LOAD(0, channel + OUT_C);
    INTS shift = LOAD(0, channel + 2 * OUT_C);
    INTS low = OUTPUT_MIN;
    INTS high = OUTPUT_MAX;
    UNROLLED (p, TILE_W) {
      INTS scaled = LOCAL(JOIN(requantize, LANES))(sum[p], multiplier, shift) + OUTPUT_ZERO;
      global ELEM* output =
          (global ELEM*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x + p) * OUT_C + c;
      STORE(ELEMS, TO_ELEMS(clamp(scaled, low, high)), output);
    }
  }
}

KERNEL(depthwise_conv_2d_vector_quant8)
#endif
