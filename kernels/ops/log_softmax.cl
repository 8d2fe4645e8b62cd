// SPDX-License-Identifier: Apache-2.0
// Macros: for 8 bits ELEM, the tensors' type, uchar or char.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#define MATH_EXP USES_LOG_SOFTMAX_FLOAT
#define MATH_LOG USES_LOG_SOFTMAX_FLOAT
#include "float.clh"
#include "math.clh"

#if USES_LOG_SOFTMAX_FLOAT
// output[r,i] = (input[r,i] - the row's maximum) - log of the sum of all such distances' exp()
// Source: reference/log_softmax.h LogSoftmax
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(log_softmax_float) {
  const int depth = DEPTH;
  EACH_ITEM_OR_NONE (row, tile, ROWS) {
    global const float* input = (global const float*)(arena + INPUT) + row * depth;
    global float* output = (global float*)(arena + OUTPUT) + row * depth;
    float highest = input[0];
    for (int c = 1; c < depth; c++) highest = input[c] > highest ? input[c] : highest;
    float sum = 0.0f;
    for (int c = 0; c < depth; c++) sum += LOCAL(exp_float)(input[c] - highest);
    float log_sum = LOCAL(log_float)(sum);
    for (int c = 0; c < depth; c++) output[c] = input[c] - highest - log_sum;
  }
}

KERNEL(log_softmax_float)
#endif

#if USES_LOG_SOFTMAX_QUANT8
DEFINE_ROUNDING()
#include "fixed_point.clh"

// log(x) with 5 integer bits of x >= 1 with 12: x is 2^n * r, n a multiple of a half, and log(r) a
// quotient of polynomials around 2^(-1/4).
// Source: tflite/kernels/internal/common.h log_x_for_x_greater_than_or_equal_to_1_impl
static int LOCAL(log_above_1)(int x) {
  const int root_half = 1518500250;
  const int root_root_half = 1805811301;
  const int quarter = 1 << 23; /* 6 integer bits, as the powers have */
  int headroom = (int)clz((uint)x) - 1;
  int r_whole = LOCAL(rounding_doubling_high_mul)(LOCAL(lifted)(x, headroom), root_half);
  r_whole = LOCAL(lifted)(r_whole, 1);
  int power_whole = LOCAL(lifted)(12 - headroom - 1, 25) + quarter;
  int below = LOCAL(rounding_doubling_high_mul)(x, root_half);
  int headroom_below = (int)clz((uint)below) - 1;
  int r_half = LOCAL(lifted)(x, headroom_below);
  int power_half = LOCAL(lifted)(12 - headroom_below, 25) - quarter;
  int r = min(r_whole, r_half);
  int power = max(power_whole, power_half);

  int p = (int)(((uint)r + (uint)root_root_half + 1u) >> 1);
  int q = (r - root_root_half) * 2;
  int square = LOCAL(rounding_doubling_high_mul)(q, q);
  int cubic = LOCAL(rounding_doubling_high_mul)(q, square);
  int numerator =
      LOCAL(rounding_doubling_high_mul)(q, r) + LOCAL(rounding_doubling_high_mul)(cubic, 117049297);
  int factor = 1057819769 + q + LOCAL(rounding_doubling_high_mul)(127690142, square);
  int denominator = LOCAL(rounding_doubling_high_mul)(p, factor) +
                    LOCAL(rounding_doubling_high_mul)(638450708, q);
  int quotient = LOCAL(rounding_doubling_high_mul)(LOCAL(rounding_divide_by_pot)(numerator, 6),
                                                   LOCAL(one_over_one_plus)(denominator));
  int log_2 = 1488522236;
  return LOCAL(lifted)(LOCAL(rounding_doubling_high_mul)(power, log_2) + quotient, 1);
}

// output[r,i] = distance to the row's maximum - log of the sum of all exp(), in 16ths below 0
// Source: reference/log_softmax.h, integer_ops/log_softmax.h LogSoftmax
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(log_softmax_quant8) {
  const int depth = DEPTH;
  const int low = OUTPUT_MIN;
  const int high = OUTPUT_MAX;
  global const int* scaled = (global const int*)(constants + TABLE);
  EACH_ITEM (row, tile, ROWS) {
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + row * depth;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + row * depth;
    int highest = input[0];
    for (int c = 1; c < depth; c++) highest = max(highest, (int)input[c]);
    int sum = 0;
    for (int c = 0; c < depth; c++) sum += scaled[256 + highest - input[c]];
    int log_sum = LOCAL(log_above_1)(sum);
    int least = LOCAL(requantize)(log_sum - 0x7fffffff - 1, BACK_MULTIPLIER, BACK_SHIFT);
    least = max(least, -FARTHEST - 1);
    for (int c = 0; c < depth; c++) {
      int distance = highest - input[c];
      int answer = LOCAL(rounding_divide_by_pot)(scaled[distance] - log_sum, 22) + high;
      output[c] = (ELEM)(-distance > least ? clamp(answer, low, high) : low);
    }
  }
}

KERNEL(log_softmax_quant8)
#endif
