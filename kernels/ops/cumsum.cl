// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the type to add; WORDS, 2 where it is an integer of 64 bits, low word first.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

static ELEM LOCAL(sum)(ELEM a, ELEM b) {
#if WORDS == 2
  uint low = a.x + b.x;
  return (ELEM)(low, a.y + b.y + (low < a.x ? 1 : 0));
#else
  return a + b;
#endif
}

// output[o, i, x] = sum over j <= i of input[o, j, x], or j < i, or from the end
// Source: reference/cumsum.h CumSum
// tile: TILE_ITEMS lines of SIZE elements, one a work-item; tiles: ceil(lines / TILE_ITEMS)
TILE(cumsum) {
  TILE_RANGE(ELEMENTS);
  const int size = SIZE;
  const int step = IS_REVERSE ? -INNER : INNER;
  const int is_exclusive = IS_EXCLUSIVE;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int outer = (start + i) / INNER;
    int at = outer * INNER * size + start + i - outer * INNER;
    if (IS_REVERSE) at += (size - 1) * INNER;
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + at;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + at;
    ELEM total = 0;
    for (int k = 0; k < size; k++) {
      ELEM next = LOCAL(sum)(total, input[k * step]);
      output[k * step] = is_exclusive ? total : next;
      total = next;
    }
  }
}
KERNEL(cumsum)
