// SPDX-License-Identifier: Apache-2.0
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// output[i] = table[input[i]]: an 8-bit value has 256 answers, and the host knows them all
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(quantize_quant8) {
  int start = tile * TILE_ITEMS;
  int count = min(TILE_ITEMS, ELEMENTS - start);
  global const uchar* input = arena + INPUT + start;
  global const uchar* table = constants + TABLE;
  global uchar* output = arena + OUTPUT + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) output[i] = table[input[i]];
}

KERNEL(quantize_quant8)
