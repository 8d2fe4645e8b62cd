// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type as wide as the output's elements; WORDS, 2 where indices have 64 bits.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// output[i, k, x] = on where input[i, x] is k, else off
// Source: tflite/kernels/one_hot.cc OneHotComputeImpl
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(one_hot) {
  global const int* indices = (global const int*)(arena + INDICES);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  const ELEM on = *(global const ELEM*)(arena + ON);
  const ELEM off = *(global const ELEM*)(arena + OFF);
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int row = (start + i) / INNER;
    int x = start + i - row * INNER;
    int outer = row / DEPTH;
    int k = row - outer * DEPTH;
    // Of 64 bits TFLite looks at the low ones alone.
    if (indices[(outer * INNER + x) * WORDS] == k) {
      output[start + i] = on;
    } else {
      output[start + i] = off;
    }
  }
}
KERNEL(one_hot)
