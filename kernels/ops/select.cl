// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type as wide as the elements; LANES, the elements of an item, 1 in the plain
// kernel.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "broadcast.clh"
DEFINE_VECTOR(elems, ELEM)
DEFINE_VECTOR(bools, uchar)

// output[i] = condition[i] ? left[i] : right[i], each input broadcast along the dimensions it lacks
// Source: reference/reference_ops.h Select, BroadcastSelect5DSlow, RankOneSelect
// tile: TILE_ITEMS items of LANES elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(select_row) {
  global const uchar* condition = arena + CONDITION;
  global const ELEM* left = (global const ELEM*)(arena + LEFT);
  global const ELEM* right = (global const ELEM*)(arena + RIGHT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  TILE_RANGE(ITEMS);
  const int size = ROW;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int item = start + i;
    int row = 0;
    int condition_at = 0;
    int left_at = 0;
    int right_at = 0;
    if (ROWS > 1) {
      row = item / ROW_ITEMS;
      item -= row * ROW_ITEMS;
      int rest = row;
      const int i3 = rest % SIZE_3;
      rest /= SIZE_3;
      const int i2 = rest % SIZE_2;
      rest /= SIZE_2;
      const int i1 = rest % SIZE_1;
      rest /= SIZE_1;
      const int i0 = PLACE_0(rest);
      condition_at = i3 * CONDITION_3 + i2 * CONDITION_2 + i1 * CONDITION_1 + i0 * CONDITION_0;
      condition_at += DEEP_PLACE(rest, CONDITION);
      left_at = i3 * LEFT_3 + i2 * LEFT_2 + i1 * LEFT_1 + i0 * LEFT_0 + DEEP_PLACE(rest, LEFT);
      right_at = i3 * RIGHT_3 + i2 * RIGHT_2 + i1 * RIGHT_1 + i0 * RIGHT_0;
      right_at += DEEP_PLACE(rest, RIGHT);
    }
    const int at = min(item * LANES, size - LANES);
    JOIN(uchar, N) chosen =
        LOAD_BROADCAST(bools, uchar, condition + condition_at, at, CONDITION_STEP);
    JOIN(ELEM, N) a = LOAD_BROADCAST(elems, ELEM, left + left_at, at, LEFT_STEP);
    JOIN(ELEM, N) b = LOAD_BROADCAST(elems, ELEM, right + right_at, at, RIGHT_STEP);
#if LANES == 1
    JOIN(ELEM, N) found = chosen ? a : b;
#else
    const JOIN(ELEM, N) none = 0; /* a comparison's answers are as wide as what it compares */
    JOIN(ELEM, N) found = JOIN(JOIN(convert_, ELEM), N)(chosen) != none ? a : b;
#endif
    STORE_VECTOR(elems, found, output + row * size + at);
  }
}
KERNEL(select_row)
