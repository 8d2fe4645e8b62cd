// SPDX-License-Identifier: Apache-2.0
// Macros: for 8 bits ELEM, the tensors' type, uchar or char, and IS_SIGNED, 1 where it is char.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#define MATH_DIVIDE USES_L2_NORMALIZATION_FLOAT
#include "float.clh"
#include "math.clh"
#if USES_L2_NORMALIZATION_FLOAT
DEFINE_NEAREST_ROOT()
#endif

#if USES_L2_NORMALIZATION_QUANT8
DEFINE_ROUNDING()
#include "fixed_point.clh"

// 1 / sqrt(sum) as multiplier * 2^-(31 + shift), by five Newton steps with 3 integer bits from 1.
// Source: tflite/kernels/internal/quantization_util.cc GetInvSqrtQuantizedMultiplierExp
static int LOCAL(inverse_root)(int sum, int* right_shift) {
  if (sum <= 1) {
    *right_shift = 0;
    return 0x7fffffff;
  }
  int shift = 11;
  while (sum >= 1 << 29) {
    sum /= 4;
    shift++;
  }
  int pairs = ((int)clz((uint)sum) - 1) / 2 - 1;
  shift -= pairs;
  sum <<= 2 * pairs;
  int half_input = LOCAL(rounding_divide_by_pot)(sum >> 1, 1);
  int x = 1 << 28;
  for (int step = 0; step < 5; step++) {
    int square = LOCAL(rounding_doubling_high_mul)(x, x);
    int cube = LOCAL(lifted)(LOCAL(rounding_doubling_high_mul)(square, x), 6);
    int grown = LOCAL(rounding_doubling_high_mul)((1 << 28) + (1 << 27), x); /* 1.5 * x */
    x = LOCAL(lifted)(grown - LOCAL(rounding_doubling_high_mul)(half_input, cube), 3);
  }
  x = LOCAL(rounding_doubling_high_mul)(x, 1518500250); /* sqrt(1/2) */
  if (shift < 0) {
    x <<= -shift;
    shift = 0;
  }
  *right_shift = shift;
  return x;
}

// output[r,i] = (input[r,i] - zero) / the root of the row's sum of squares, in 128ths
// Source: reference/l2normalization.h, integer_ops/l2normalization.h L2Normalization
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(l2_normalization_quant8) {
  const int depth = DEPTH;
  const int zero = INPUT_ZERO;
  EACH_ITEM (row, tile, ROWS) {
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + row * depth;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + row * depth;
    int sum = 0;
    for (int c = 0; c < depth; c++) sum += (input[c] - zero) * (input[c] - zero);
    int shift;
    int multiplier = LOCAL(inverse_root)(sum, &shift);
    for (int c = 0; c < depth; c++) {
      int value = input[c] - zero;
#if IS_SIGNED
      value = LOCAL(requantize)(value, multiplier, 7 - shift);
#else
      value = LOCAL(requantize)(value * 128, multiplier, -shift);
#endif
      output[c] = (ELEM)clamp(value + OUTPUT_ZERO, OUTPUT_MIN, OUTPUT_MAX);
    }
  }
}

KERNEL(l2_normalization_quant8)
#endif

#if USES_L2_NORMALIZATION_FLOAT
// output[r,i] = input[r,i] / the root of the row's sum of squares, or 1e-6 where that is less
// Source: reference/l2normalization.h L2Normalization
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(l2_normalization_float) {
  const int depth = DEPTH;
  EACH_ITEM_OR_NONE (row, tile, ROWS) {
    global const float* input = (global const float*)(arena + INPUT) + row * depth;
    global float* output = (global float*)(arena + OUTPUT) + row * depth;
    float sum = 0.0f;
    for (int c = 0; c < depth; c++) sum += input[c] * input[c];
#if IEEE
    float norm = ROOT(sum);
#else
    float near = sqrt(sum);
    float square = near * near;
    float rest = (sum - square) - LOCAL(product_rest)(near, near, square);
    float better = near + rest / (2.0f * near);
    float norm = better == better ? better : near; /* of 0 and infinity */
#endif
    norm = norm < 1e-6f ? 1e-6f : norm;
    for (int c = 0; c < depth; c++) output[c] = LOCAL(divide_float)(input[c], norm);
  }
}

KERNEL(l2_normalization_float)
#endif
