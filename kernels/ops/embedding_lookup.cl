// SPDX-License-Identifier: Apache-2.0
// Macro: IS_COMPUTED, 1 where the indices lie in the arena, else they are constants.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if IS_COMPUTED
#define INDEX_SPACE arena
#else
#define INDEX_SPACE constants
#endif

// output[k,x] = table[indices[k],x] * scales[indices[k]]; the host fails a run with an index out of
// range, for which the kernel must have read nothing else.
// Source: embedding_lookup.cc EvalHybrid
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(embedding_lookup_hybrid) {
  global const char* table = (global const char*)(constants + TABLE);
  global const float* scales = (global const float*)(constants + SCALES);
  global const int* indices = (global const int*)(INDEX_SPACE + INDICES);
  global float* output = (global float*)(arena + OUTPUT);
  int width = ROW;
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int place = (start + i) / width;
    int row = clamp(indices[place], 0, ROWS - 1);
    output[start + i] = (float)table[row * width + start + i - place * width] * scales[row];
  }
}

KERNEL(embedding_lookup_hybrid)
