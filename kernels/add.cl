// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar or char.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
DEFINE_ROUNDING()

// output[i] = clamp(rescale(rescale1(left[i] - zero1) + rescale2(right[i] - zero2)) + zero)
// Inputs are lifted by 20 bits first, so that nothing is lost before the sum.
// Source: reference/add.h AddElementwise
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(add_quant8) {
  int start = tile * TILE_ITEMS;
  int count = min(TILE_ITEMS, ELEMENTS - start);
  global const ELEM* left = (global const ELEM*)(arena + LEFT) + start;
  global const ELEM* right = (global const ELEM*)(arena + RIGHT) + start;
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int a = LOCAL(requantize)((left[i] - LEFT_ZERO) * (1 << 20), LEFT_MULTIPLIER, LEFT_SHIFT);
    int b = LOCAL(requantize)((right[i] - RIGHT_ZERO) * (1 << 20), RIGHT_MULTIPLIER, RIGHT_SHIFT);
    int sum = LOCAL(requantize)(a + b, OUTPUT_MULTIPLIER, OUTPUT_SHIFT) + OUTPUT_ZERO;
    output[i] = (ELEM)clamp(sum, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(add_quant8)
