// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the input's type, uchar, char or short.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// output[i] = scale * (input[i] - zero), a float   Source: reference/dequantize.h Dequantize
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(dequantize) {
  TILE_RANGE(ELEMENTS);
  const float scale = as_float(SCALE);
  const int zero = ZERO;
  global const ELEM* input = (global const ELEM*)(arena + INPUT) + start;
  global float* output = (global float*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0))
    output[i] = (float)(input[i] - zero) * scale;
}

KERNEL(dequantize)
