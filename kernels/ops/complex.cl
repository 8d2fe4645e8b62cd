// SPDX-License-Identifier: Apache-2.0
// Macros: OP, one of the names below.
#pragma OPENCL FP_CONTRACT OFF
#define SIZE_OF 1
#define REAL_PART 2
#define IMAGINARY_PART 3
#include "kernel.clh"
#include "float.clh"
#include "math.clh"
#if OP == SIZE_OF
DEFINE_PRODUCT_REST()
DEFINE_ROOT()

// How far a complex number is from 0: brought near 1 by a power of two, so that no square is too
// large or too small. Infinite where a part is, even if the other one is NaN, as in C.
static float LOCAL(size_of)(float2 x) {
  uint real = as_uint(x.x) & 0x7fffffffu;
  uint imaginary = as_uint(x.y) & 0x7fffffffu;
  uint exponent = clamp(max(real, imaginary) >> 23, 1u, 253u);
  float2 near = x * as_float((254u - exponent) << 23);
  float size = LOCAL(root)(near.x * near.x + near.y * near.y) * as_float(exponent << 23);
  return real == 0x7f800000u || imaginary == 0x7f800000u ? INFINITY : size;
}
#endif

// output[i] = |input[i]|, or its real or imaginary part   Source: complex_support.cc
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(complex_float) {
  TILE_RANGE(ELEMENTS);
  global const float2* input = (global const float2*)(arena + INPUT) + start;
  global float* output = (global float*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
#if OP == SIZE_OF
    output[i] = LOCAL(size_of)(input[i]);
#elif OP == REAL_PART
    output[i] = input[i].x;
#else
    output[i] = input[i].y;
#endif
  }
}

KERNEL(complex_float)
