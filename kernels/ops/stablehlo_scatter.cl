// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the elements' type; WIDE, that of sums and products, uint or float; OP, one of the
// names below.
#pragma OPENCL FP_CONTRACT OFF
#define UPDATE 0
#define SUM 1
#define PRODUCT 2
#define LEAST 3
#define GREATEST 4
#include "kernel.clh"

// Of integers what is beyond their type is lost, so sums and products are of unsigned ones.
static ELEM LOCAL(combined)(ELEM a, ELEM b) {
#if OP == UPDATE
  return b;
#elif OP == SUM
  return (ELEM)((WIDE)a + (WIDE)b);
#elif OP == PRODUCT
  return (ELEM)((WIDE)a * (WIDE)b);
#elif OP == LEAST
  return b < a ? b : a;
#else
  return a < b ? b : a;
#endif
}

#if USES_STABLEHLO_SCATTER
// output[i] = input[i], combined with each update that goes there, one after the other. `firsts`:
// for each element the first of its updates in `table`; one more ends the last element.
// Source: stablehlo_scatter.cc
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(stablehlo_scatter) {
  global const int* firsts = (global const int*)(constants + FIRSTS);
  global const int* table = (global const int*)(constants + TABLE);
  global const ELEM* updates = (global const ELEM*)(arena + UPDATES);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ELEM value = ((global const ELEM*)(arena + INPUT))[element];
    for (int k = firsts[element]; k < firsts[element + 1]; k++) {
      value = LOCAL(combined)(value, updates[table[k]]);
    }
    ((global ELEM*)(arena + OUTPUT))[element] = value;
  }
}

KERNEL(stablehlo_scatter)
#endif
