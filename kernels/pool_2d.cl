// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' type, uchar or char; TAKES_MAX, 1 for the maximum, 0 the average.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// output[n,y,x,c] = average or maximum of the in-bounds window of input[n,y',x',c], clamped
// NHWC   Source: reference/pooling.h, integer_ops/pooling.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*c / TILE_ITEMS)
TILE(pool_2d_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  for (int i = get_local_id(0); i < TILE_ITEMS; i += get_local_size(0)) {
    int element = tile * TILE_ITEMS + i;
    if (element >= ELEMENTS) break;
    int c = element % DEPTH;
    int pixel = element / DEPTH;
    int left = pixel % OUT_W * STRIDE_W - PAD_LEFT;
    int top = pixel / OUT_W % OUT_H * STRIDE_H - PAD_TOP;
    int n = pixel / OUT_W / OUT_H;
    int x_begin = max(left, 0);
    int x_end = min(left + KERNEL_W, IN_W);
    int y_begin = max(top, 0);
    int y_end = min(top + KERNEL_H, IN_H);
    int value = TAKES_MAX ? OUTPUT_MIN : 0;
    for (int y = y_begin; y < y_end; y++) {
      for (int x = x_begin; x < x_end; x++) {
        int source = input[((n * IN_H + y) * IN_W + x) * DEPTH + c];
        value = TAKES_MAX ? max(value, source) : value + source;
      }
    }
    if (!TAKES_MAX) {
      // Half away from zero; an unsigned sum is never negative.
      int count = (y_end - y_begin) * (x_end - x_begin);
      value = (value > 0 ? value + count / 2 : value - count / 2) / count;
    }
    output[element] = (ELEM)clamp(value, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(pool_2d_quant8)
