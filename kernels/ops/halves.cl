// SPDX-License-Identifier: Apache-2.0
// Macros: HALVES, 1, see float.clh; IS_ROUNDED, 1 where floats become halves, 0 where halves become
// floats.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"

// output[i] = input[i]: the nearest half of a float, or the float that a half is
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(halves_float) {
  TILE_RANGE(ELEMENTS);
#if IS_ROUNDED
  global const float* input = (global const float*)(arena + INPUT) + start;
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) STORE_FLOAT(input[i], i, output);
#else
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT) + start;
  global float* output = (global float*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) output[i] = LOAD_FLOAT(i, input);
#endif
}

KERNEL(halves_float)
