// SPDX-License-Identifier: Apache-2.0
// Macros: INDEX, uchar or ushort, as wide as the input's elements; ELEM, a type as wide as the
// output's.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if USES_LOOKUP
// output[i] = table[input[i]]: a value of 8 or 16 bits has few answers, and the host knows them all
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(lookup) {
  TILE_RANGE(ELEMENTS);
  global const INDEX* input = (global const INDEX*)(arena + INPUT) + start;
  global const ELEM* table = (global const ELEM*)(constants + TABLE);
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) output[i] = table[input[i]];
}

KERNEL(lookup)
#endif

#if USES_LOOKUP_VECTOR
#define INDICES JOIN(INDEX, 4)
#define ELEMS JOIN(ELEM, 4)

// The same for four neighbours, which lie at a multiple of four elements: one load, one store. The
// last four may reach past the end, where nothing is written.
// tile: TILE_ITEMS fours, one a work-item; tiles: ceil(elements / 4 / TILE_ITEMS)
TILE(lookup_vector) {
  const int elements = ELEMENTS;
  const int start = tile * TILE_ITEMS;
  const int end = min(start + TILE_ITEMS, (elements + 3) / 4);
  global const INDICES* input = (global const INDICES*)(arena + INPUT);
  global const ELEM* table = (global const ELEM*)(constants + TABLE);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  global ELEMS* fours = (global ELEMS*)(arena + OUTPUT);
  const int whole = min(end, elements / 4);
  for (int i = start + get_local_id(0); i < whole; i += get_local_size(0)) {
    INDICES at = input[i];
    ELEMS found = {table[at.x], table[at.y], table[at.z], table[at.w]};
    fours[i] = found;
  }
  if (whole < end) {
    for (int i = whole * 4 + get_local_id(0); i < elements; i += get_local_size(0)) {
      global const INDEX* one = (global const INDEX*)(arena + INPUT);
      output[i] = table[one[i]];
    }
  }
}

KERNEL(lookup_vector)
#endif
