// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type as wide as what moves as one; WORDS, 2 where computed indices have 64 bits.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if USES_GATHER
// output[block, k, x] = input[block, table[block / REPEATS, k], x]; the host has checked the table
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(gather) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global const int* table = (global const int*)(constants + TABLE);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int row = (start + i) / ROW;
    int x = start + i - row * ROW;
    int block = row / PICKS;
    int pick = row - block * PICKS;
    int place = table[block / REPEATS * PICKS + pick];
    output[start + i] = input[(block * GROUP + place) * ROW + x];
  }
}
KERNEL(gather)
#endif

#if USES_GATHER_COMPUTED
// The same with the table's numbers computed: sums of coordinates times steps. The host fails a run
// with one out of range, so that the low word of 64 bits is all that counts. But the kernel has run
// then, and must have read nothing else either.
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(gather_computed) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global const int* indices = (global const int*)(arena + INDICES);
  global const int* steps = (global const int*)(constants + STEPS);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  const int axes = AXES;
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int row = (start + i) / ROW;
    int x = start + i - row * ROW;
    int block = row / PICKS;
    int pick = row - block * PICKS;
    global const int* index = indices + (block / REPEATS * PICKS + pick) * axes * WORDS;
    int place = 0;
    for (int axis = 0; axis < axes; axis++) place += index[axis * WORDS] * steps[axis];
    place = clamp(place, 0, GROUP - 1);
    output[start + i] = input[(block * GROUP + place) * ROW + x];
  }
}
KERNEL(gather_computed)
#endif
