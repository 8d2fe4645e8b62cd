// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar or char.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
DEFINE_ROUNDING()

// output[n,c] = rescale(sum over h and w of (input[n,h,w,c] - zero)) + zero; the division by h*w is
// in the multiplier   NHWC   Source: reference/reduce.h QuantizedMeanOrSum
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*c / TILE_ITEMS)
TILE(mean_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  for (int i = get_local_id(0); i < TILE_ITEMS; i += get_local_size(0)) {
    int element = tile * TILE_ITEMS + i;
    if (element >= ELEMENTS) break;
    int n = element / DEPTH;
    global const ELEM* source = input + n * PIXELS * DEPTH + element % DEPTH;
    int sum = -PIXELS * INPUT_ZERO;
    for (int p = 0; p < PIXELS; p++) sum += source[p * DEPTH];
    output[element] =
        (ELEM)clamp(requantize(sum, MULTIPLIER, SHIFT) + OUTPUT_ZERO, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(mean_quant8)
