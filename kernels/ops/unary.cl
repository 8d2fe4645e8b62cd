// SPDX-License-Identifier: Apache-2.0
// Macros: OP, one of the names below.
#pragma OPENCL FP_CONTRACT OFF
#define ABSOLUTE 1
#define NEGATIVE 2
#define SQUARE 3
#define FLOOR 4
#define CEILING 5
#define ROUND 6
#define SQUARE_ROOT 7
#define RECIPROCAL_ROOT 8
#define EXPONENTIAL 9
#define LOGARITHM 10
#define MATH_EXP (OP == EXPONENTIAL)
#define MATH_LOG (OP == LOGARITHM)
#include "kernel.clh"
#include "float.clh"
#include "math.clh"

#if USES_UNARY_FLOAT
#if OP == SQUARE_ROOT || OP == RECIPROCAL_ROOT
DEFINE_PRODUCT_REST()
DEFINE_ROOT()
#endif
#if OP == RECIPROCAL_ROOT
DEFINE_DIVIDE()
#endif

static float LOCAL(answer)(float x) {
#if OP == ABSOLUTE
  return fabs(x);
#elif OP == NEGATIVE
  return -x;
#elif OP == SQUARE
  return x * x;
#elif OP == FLOOR
  return floor(x);
#elif OP == CEILING
  return ceil(x);
#elif OP == ROUND
  // Ties to even; never -0, which is why rint() would not do.
  float below = floor(x);
  float rest = x - below;
  int is_even = floor(below * 0.5f) * 2.0f == below;
  return rest < 0.5f || (rest == 0.5f && is_even) ? below : below + 1.0f;
#elif OP == SQUARE_ROOT
  return LOCAL(root)(x);
#elif OP == RECIPROCAL_ROOT
  return LOCAL(divide)(1.0f, LOCAL(root)(x));
#elif OP == EXPONENTIAL
  return LOCAL(exp_float)(x);
#else
  return LOCAL(log_float)(x);
#endif
}

// output[i] = op(input[i])   Source: elementwise.cc, neg.cc, exp.cc, floor.cc, ceil.cc, round.cc
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(unary_float) {
  TILE_RANGE(ELEMENTS);
  global const float* input = (global const float*)(arena + INPUT) + start;
  global float* output = (global float*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    output[i] = LOCAL(answer)(input[i]);
  }
}

KERNEL(unary_float)
#endif

#if USES_UNARY_INT32
// The same of integers; the least one has no opposite and stays.
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(unary_int32) {
  TILE_RANGE(ELEMENTS);
  global const int* input = (global const int*)(arena + INPUT) + start;
  global int* output = (global int*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int x = input[i];
    int opposite = as_int(0u - as_uint(x));
#if OP == ABSOLUTE
    output[i] = x < 0 ? opposite : x;
#else
    output[i] = opposite;
#endif
  }
}

KERNEL(unary_int32)
#endif
