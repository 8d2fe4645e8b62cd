// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' and the weights' type where they are of 8 bits, uchar or char.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "quantize.clh"
#include "float.clh"

#if USES_CONV_2D_GROUPS_QUANT8
DEFINE_ROUNDING()

// output[n,y,x,o] = sum over the in-bounds window of (input[n,y',x',g*GROUP_IN_C+i] - zero) *
// (weights[o,ky,kx,i] - zero) for the group g of o, plus bias, requantised and clamped   NHWC, OHWI
// Source: reference/conv.h, integer_ops/conv.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(conv_2d_groups_quant8) {
  global const int* channel = (global const int*)(constants + CHANNELS);
  int in_c = GROUP_IN_C;
  int input_zero = INPUT_ZERO;
  int weight_zero = WEIGHT_ZERO;
  EACH_ITEM (element, tile, ELEMENTS) {
    int sum = 0;
    LOCATE_OUTPUT(element);
    int first = o / GROUP_OUT_C * in_c;
    EACH_TAP_INSIDE (ky, kx) {
      global const ELEM* source =
          (global const ELEM*)(arena + INPUT) + ((n * IN_H + in_y) * IN_W + in_x) * IN_C + first;
      global const ELEM* weight =
          (global const ELEM*)(constants + WEIGHTS) + ((o * KERNEL_H + ky) * KERNEL_W + kx) * in_c;
      int c = 0;
      // NOTE: llvmpipe leaves every loop after 65535 rounds, so there are fewer than terms.
      for (; c <= in_c - 8; c += 8)
        UNROLLED (j, 8)
          sum += ((int)source[c + j] - input_zero) * ((int)weight[c + j] - weight_zero);
      for (; c < in_c; c++) sum += ((int)source[c] - input_zero) * ((int)weight[c] - weight_zero);
    }
    sum += channel[o];
    int scaled = LOCAL(requantize)(sum, channel[OUT_C + o], channel[2 * OUT_C + o]) + OUTPUT_ZERO;
    ((global ELEM*)(arena + OUTPUT))[element] = (ELEM)clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(conv_2d_groups_quant8)
#endif

#if USES_CONV_2D_GROUPS_FLOAT
// The same of floats.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(conv_2d_groups_float) {
  FLOAT_BOUNDS(float);
  int in_c = GROUP_IN_C;
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    float sum = 0.0f;
    LOCATE_OUTPUT(element);
    int first = o / GROUP_OUT_C * in_c;
    EACH_TAP_INSIDE (ky, kx) {
      global const float* source =
          (global const float*)(arena + INPUT) + ((n * IN_H + in_y) * IN_W + in_x) * IN_C + first;
      global const float* weight =
          (global const float*)(constants + WEIGHTS) + ((o * KERNEL_H + ky) * KERNEL_W + kx) * in_c;
      for (int c = 0; c < in_c; c++) sum = MULTIPLY_ADD(source[c], weight[c], sum);
    }
    sum += ((global const float*)(constants + BIAS))[o];
    ((global float*)(arena + OUTPUT))[element] = ACTIVATE(sum, low, high);
  }
}

KERNEL(conv_2d_groups_float)
#endif
