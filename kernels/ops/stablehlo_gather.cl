// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type as wide as what moves as one; WORDS, see start.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "dimensions.clh"
#include "start.clh"

// output[i0, i1, ...] = input[start + sum of i_n * in_n], where start is the sum of
// table[axis].step * the coordinate along the axis at sum of i_n * index_n, from 0 to
// table[axis].most
// Source: stablehlo_gather.cc
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(stablehlo_gather) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global const int* indices = (global const int*)(arena + INDICES);
  global const int* table = (global const int*)(constants + TABLE);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  const int axes = AXES;
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int rest = start + i;
    int in = 0;
    int first = 0;
    PLACE(0, first, INDEX)
    PLACE(1, first, INDEX)
    PLACE(2, first, INDEX)
    PLACE(3, first, INDEX)
    PLACE(4, first, INDEX)
    PLACE(5, first, INDEX)
    for (int axis = 0; axis < axes; axis++) {
      const int place = LOCAL(start_of)(indices, first + axis * COORDINATE, table[2 * axis]);
      in += place * table[2 * axis + 1];
    }
    output[start + i] = input[in];
  }
}
KERNEL(stablehlo_gather)
