// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the elements' type; VALUE, the type that they are combined in, int or float; WIDE,
// that of sums and products, uint or float; RANK; OP, one of the names below.
#pragma OPENCL FP_CONTRACT OFF
#define SUM 1
#define PRODUCT 2
#define LEAST 3
#define GREATEST 4
#define ALL_OF 5
#define ANY_OF 6
#include "kernel.clh"

// Of integers what is beyond their type is lost, so sums and products are of unsigned ones.
static VALUE LOCAL(combined)(VALUE a, VALUE b) {
#if OP == SUM
  return (VALUE)((WIDE)a + (WIDE)b);
#elif OP == PRODUCT
  return (VALUE)((WIDE)a * (WIDE)b);
#elif OP == LEAST
  return a <= b ? a : b;
#elif OP == GREATEST
  return a >= b ? a : b;
#elif OP == ALL_OF
  return a != 0 && b != 0;
#else
  return a != 0 || b != 0;
#endif
}

#if USES_REDUCE_WINDOW
// output[places] = the initial value, combined with one element of the window after the other,
// the last dimension first; the initial value again where the window is between elements or beyond
// them. `axes`: of each dimension the sizes of output, window and input, the window's step, what
// is before the input, its elements' distance, that of the window's, and the input's elements
// between neighbours.
// Source: stablehlo_reduce_window.cc
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(reduce_window) {
  global const int* axes = (global const int*)(constants + AXES);
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  VALUE initial = (VALUE)((global const ELEM*)(arena + INITIAL))[0];
  int taps = TAPS;
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    VALUE value = initial;
    for (int tap = 0; tap < taps; tap++) {
      int rest_of_tap = tap;
      int rest = element;
      int at = 0;
      int is_inside = 1;
      for (int d = RANK - 1; d >= 0; d--) {
        global const int* axis = axes + 8 * d;
        int place = rest % axis[0] * axis[3] - axis[4] + rest_of_tap % axis[1] * axis[6];
        rest /= axis[0];
        rest_of_tap /= axis[1];
        int index = place / axis[5];
        is_inside &= place >= 0 && index * axis[5] == place && index < axis[2];
        at += index * axis[7];
      }
      value = LOCAL(combined)(value, is_inside ? (VALUE)input[is_inside ? at : 0] : initial);
    }
    ((global ELEM*)(arena + OUTPUT))[element] = (ELEM)value;
  }
}

KERNEL(reduce_window)
#endif
