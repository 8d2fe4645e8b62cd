// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar or char; for the vector kernel LANES elements at once, and
// IS_FLOAT, 1 where float sums were proven to be the same, and IS_ALIGNED, see store.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "store.clh"
#include "float.clh"

#if USES_ADD_QUANT8
DEFINE_ROUNDING()

// output[i] = clamp(rescale(rescale1(left[i] - zero1) + rescale2(right[i] - zero2)) + zero)
// Inputs are lifted by 20 bits first, so that nothing is lost before the sum.
// Source: reference/add.h AddElementwise
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(add_quant8) {
  TILE_RANGE(ELEMENTS);
  global const ELEM* left = (global const ELEM*)(arena + LEFT) + start;
  global const ELEM* right = (global const ELEM*)(arena + RIGHT) + start;
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int a = LOCAL(requantize)((left[i] - LEFT_ZERO) * (1 << 20), LEFT_MULTIPLIER, LEFT_SHIFT);
    int b = LOCAL(requantize)((right[i] - RIGHT_ZERO) * (1 << 20), RIGHT_MULTIPLIER, RIGHT_SHIFT);
    int sum = LOCAL(requantize)(a + b, OUTPUT_MULTIPLIER, OUTPUT_SHIFT) + OUTPUT_ZERO;
    output[i] = (ELEM)clamp(sum, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(add_quant8)
#endif

#if USES_ADD_VECTOR_QUANT8
#define INTS JOIN(int, LANES)
#define LOAD_INTS(from) JOIN(convert_int, LANES)(LOAD_LANES(ELEM, LANES, from))
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)
#define ELEMS JOIN(ELEM, LANES)
DEFINE_STORE(ELEMS)
#if IS_FLOAT
#define FLOATS JOIN(float, LANES)
#define TO_FLOATS JOIN(convert_float, LANES)
#define AS_INTS JOIN(as_int, LANES)
#else
DEFINE_ROUNDING(LANES)
#define RESCALE LOCAL(JOIN(requantize, LANES))
#endif

// The same for LANES elements at a time, in fixed point or by factors and an offset that the host
// proved for every pair of inputs. The last vector overlaps the one before: no short stores.
// tile: TILE_ITEMS vectors, one a work-item; tiles: ceil(vectors / TILE_ITEMS)
TILE(add_vector_quant8) {
  global const ELEM* left = (global const ELEM*)(arena + LEFT);
  global const ELEM* right = (global const ELEM*)(arena + RIGHT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  const int end = min(TILE_ITEMS, ITEMS - tile * TILE_ITEMS);
  const int last = ELEMENTS - LANES;
#if IS_FLOAT
  const FLOATS left_factor = as_float(LEFT_FACTOR);
  const FLOATS right_factor = as_float(RIGHT_FACTOR);
  const FLOATS offset = as_float(OFFSET);
  const FLOATS rounding = ROUNDER + OUTPUT_ZERO;
  const INTS none = as_int(ROUNDER);
#else
  const INTS left_multiplier = LEFT_MULTIPLIER;
  const INTS left_shift = LEFT_SHIFT;
  const INTS right_multiplier = RIGHT_MULTIPLIER;
  const INTS right_shift = RIGHT_SHIFT;
  const INTS multiplier = OUTPUT_MULTIPLIER;
  const INTS shift = OUTPUT_SHIFT;
#endif
  const INTS low = OUTPUT_MIN;
  const INTS high = OUTPUT_MAX;
  for (int i = get_local_id(0); i < end; i += get_local_size(0)) {
    const int at = min((tile * TILE_ITEMS + i) * LANES, last);
    INTS a = LOAD_INTS(left + at);
    INTS b = LOAD_INTS(right + at);
#if IS_FLOAT
    FLOATS sum = TO_FLOATS(b) * right_factor + offset;
    sum = TO_FLOATS(a) * left_factor + sum;
    INTS result = AS_INTS(sum + rounding) - none;
#else
    a = RESCALE((a - LEFT_ZERO) * (1 << 20), left_multiplier, left_shift);
    b = RESCALE((b - RIGHT_ZERO) * (1 << 20), right_multiplier, right_shift);
    INTS result = RESCALE(a + b, multiplier, shift) + OUTPUT_ZERO;
#endif
    STORE(ELEMS, TO_ELEMS(clamp(result, low, high)), output + at);
  }
}

KERNEL(add_vector_quant8)
#endif
