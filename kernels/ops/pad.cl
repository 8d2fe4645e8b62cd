// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type as wide as the tensors' elements.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// output[i0..i4] = input[i0 - before0 .. i4 - before4], the border's value outside of it
// Source: reference/pad.h PadImpl
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(pad) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  ELEM border = *(global const ELEM*)(constants + BORDER);
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int rest = start + i;
    int i4 = rest % OUT_4 - BEFORE_4;
    rest /= OUT_4;
    int i3 = rest % OUT_3 - BEFORE_3;
    rest /= OUT_3;
    int i2 = rest % OUT_2 - BEFORE_2;
    rest /= OUT_2;
    int i1 = rest % OUT_1 - BEFORE_1;
    int i0 = rest / OUT_1 - BEFORE_0;
    int inside = i4 >= 0 && i4 < IN_4 && i3 >= 0 && i3 < IN_3 && i2 >= 0 && i2 < IN_2 && i1 >= 0 &&
                 i1 < IN_1 && i0 >= 0 && i0 < IN_0;
    int place = (((i0 * IN_1 + i1) * IN_2 + i2) * IN_3 + i3) * IN_4 + i4;
    output[start + i] = inside ? input[place] : border;
  }
}
KERNEL(pad)
