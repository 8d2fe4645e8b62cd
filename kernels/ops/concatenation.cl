// SPDX-License-Identifier: Apache-2.0
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// output[row, start + x] = table[input[row, x]]: an input's bytes at the output's scale
// Source: reference/concatenation.h ConcatenationWithScaling
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(concatenation_quant8) {
  global const uchar* input = arena + INPUT;
  global const uchar* table = constants + TABLE;
  global uchar* output = arena + OUTPUT + START;
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int at = start + i;
    int row = at / ROW;
    output[row * OUTPUT_ROW + at - row * ROW] = table[input[at]];
  }
}
KERNEL(concatenation_quant8)
