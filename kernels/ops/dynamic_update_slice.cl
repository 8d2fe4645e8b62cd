// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type as wide as the elements; ALONE, 1 where a work-group is one work-item;
// WORDS, see start.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "start.clh"

// output[start + i] = update[i]; the rest of the output is a copy of the operand already. RUN
// neighbours of the update are neighbours there, too: one work-item alone takes them at once.
// Source: dynamic_update_slice.cc
// tile: TILE_ITEMS elements of the update, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(dynamic_update_slice) {
  TILE_RANGE(ELEMENTS);
  global const ELEM* update = (global const ELEM*)(arena + UPDATE);
  global const int* starts = (global const int*)(arena + STARTS);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  int first = LOCAL(start_of)(starts, 0, MOST_0) * STEP_0;
  if (AXES > 1) first += LOCAL(start_of)(starts, 1, MOST_1) * STEP_1;
  if (AXES > 2) first += LOCAL(start_of)(starts, 2, MOST_2) * STEP_2;
  if (AXES > 3) first += LOCAL(start_of)(starts, 3, MOST_3) * STEP_3;
  if (AXES > 4) first += LOCAL(start_of)(starts, 4, MOST_4) * STEP_4;
  if (AXES > 5) first += LOCAL(start_of)(starts, 5, MOST_5) * STEP_5;
#if ALONE
  for (int i = 0, span; i < count; i += span) {
    span = min(RUN - (start + i) % RUN, count - i);
#else
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
#endif
    int rest = start + i;
    int at = first;
    if (AXES > 5) {
      at += rest % SIZE_5 * STEP_5;
      rest /= SIZE_5;
    }
    if (AXES > 4) {
      at += rest % SIZE_4 * STEP_4;
      rest /= SIZE_4;
    }
    if (AXES > 3) {
      at += rest % SIZE_3 * STEP_3;
      rest /= SIZE_3;
    }
    if (AXES > 2) {
      at += rest % SIZE_2 * STEP_2;
      rest /= SIZE_2;
    }
    if (AXES > 1) {
      at += rest % SIZE_1 * STEP_1;
      rest /= SIZE_1;
    }
    at += rest * STEP_0;
#if ALONE
    for (int j = 0; j < span; j++) output[at + j] = update[start + i + j];
#else
    output[at] = update[start + i];
#endif
  }
}

KERNEL(dynamic_update_slice)
