// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the type to add; IS_BOOL; WORDS, 2 where it is an integer of 64 bits, low word
// first.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#if WORDS == 2
#include "int64.clh"
#endif

static ELEM LOCAL(sum)(ELEM a, ELEM b) {
#if WORDS == 2
  return LOCAL(add_int64)(a, b);
#elif IS_BOOL
  return a | b;
#else
  return (ELEM)(a + b);
#endif
}

#if USES_SCATTER_ND
// output[row] = the sum of the updates whose index is this row, in their order; 0 without one.
// `firsts`: for each row the first of its updates in `table`; one more ends the last row.
// Source: reference_ops.h ScatterNd
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(scatter_nd) {
  TILE_RANGE(ELEMENTS);
  global const int* firsts = (global const int*)(constants + FIRSTS);
  global const int* table = (global const int*)(constants + TABLE);
  global const ELEM* updates = (global const ELEM*)(arena + UPDATES);
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    const int row = (start + i) / ROW;
    const int at = start + i - row * ROW;
    ELEM total = 0;
    for (int k = firsts[row]; k < firsts[row + 1]; k++) {
      total = LOCAL(sum)(total, updates[table[k] * ROW + at]);
    }
    output[i] = total;
  }
}

KERNEL(scatter_nd)
#endif

#if USES_SCATTER_ND_COMPUTED
// The same where a run says the indices; a run with one that is outside fails.
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(scatter_nd_computed) {
  TILE_RANGE(ELEMENTS);
  global const int* indices = (global const int*)(arena + INDICES);
  global const int* steps = (global const int*)(constants + STEPS);
  global const ELEM* updates = (global const ELEM*)(arena + UPDATES);
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    const int row = (start + i) / ROW;
    const int at = start + i - row * ROW;
    ELEM total = 0;
    for (int k = 0; k < PICKS; k++) {
      int place = 0;
      for (int axis = 0; axis < AXES; axis++) place += indices[k * AXES + axis] * steps[axis];
      if (place == row) total = LOCAL(sum)(total, updates[k * ROW + at]);
    }
    output[i] = total;
  }
}

KERNEL(scatter_nd_computed)
#endif
