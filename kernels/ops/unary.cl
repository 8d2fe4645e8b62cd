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
#define SIGN_OF 11
#define SINE 12
#define COSINE 13
#define ANGLES_SINE (OP == SINE || OP == COSINE)
#define MATH_EXP (OP == EXPONENTIAL)
#define MATH_LOG (OP == LOGARITHM)
#include "kernel.clh"
#include "float.clh"
#include "math.clh"

#if USES_UNARY_FLOAT
#if OP == SQUARE_ROOT || OP == RECIPROCAL_ROOT || ANGLES_SINE
DEFINE_PRODUCT_REST()
#endif
#if OP == SQUARE_ROOT || OP == RECIPROCAL_ROOT
DEFINE_ROOT()
#endif
#if OP == RECIPROCAL_ROOT
DEFINE_DIVIDE()
#endif
#include "angles.clh"

#if !ANGLES_SINE
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
#elif OP == SIGN_OF
  // By its bits, as a device may take the least floats for zeros.
  uint size = as_uint(x) & 0x7fffffffu;
  uint one = size == 0u ? 0u : (as_uint(x) & 0x80000000u) | 0x3f800000u;
  return size > 0x7f800000u ? x : as_float(one);
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
#endif

// output[i] = op(input[i])   Source: elementwise.cc, neg.cc, sign.cc, exp.cc, round.cc, ...
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(unary_float) {
  TILE_RANGE(ELEMENTS);
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT) + start;
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + start;
#if ANGLES_SINE
  global const uint* digits = (global const uint*)(constants + DIGITS);
#endif
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    float x = LOAD_FLOAT(i, input);
#if ANGLES_SINE
    STORE_FLOAT(LOCAL(sine_float)(x, OP == COSINE ? 1u : 0u, digits), i, output);
#else
    STORE_FLOAT(LOCAL(answer)(x), i, output);
#endif
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
#elif OP == SIGN_OF
    output[i] = (x > 0) - (x < 0);
#else
    output[i] = opposite;
#endif
  }
}

KERNEL(unary_int32)
#endif

#if USES_UNARY_INT64
#include "int64.clh"

// NEG of integers of 64 bits, the low word first; the least one stays, too.
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(unary_int64) {
  TILE_RANGE(ELEMENTS);
  global const uint2* input = (global const uint2*)(arena + INPUT) + start;
  global uint2* output = (global uint2*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    output[i] = LOCAL(subtract_int64)((uint2)(0u, 0u), input[i]);
  }
}

KERNEL(unary_int64)
#endif
