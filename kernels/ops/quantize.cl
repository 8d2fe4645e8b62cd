// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the output's type, uchar, char or short.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"

#if USES_QUANTIZE_FLOAT
// output[i] = clamp(round(input[i] / scale) + zero), the quotient a float, ties away from zero
// A product with 1 / scale is near enough to leave two answers; the host knows at which float the
// greater one begins. No device's division is needed.   Source: reference/quantize.h AffineQuantize
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(quantize_float) {
  TILE_RANGE(ELEMENTS);
  const float factor = as_float(FACTOR);
  const float beyond = as_float(BEYOND);
  const int zero = OUTPUT_ZERO;
  const int low = OUTPUT_MIN;
  const int high = OUTPUT_MAX;
  const int lowest = LOWEST;
  const int highest = HIGHEST;
  const int nan = NOT_A_NUMBER;
  global const float* input = (global const float*)(arena + INPUT) + start;
  global const float* thresholds = (global const float*)(constants + THRESHOLDS);
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    float value = input[i];
    float steps = value * factor - 0.0625f;
    steps = steps > 200000.0f ? 200000.0f : steps;
    steps = steps < -200000.0f ? -200000.0f : steps;
    // the answer, or the one below it, as the product is off by less than a sixteenth
    int answer = as_int(steps + ROUNDER) - ROUNDER_BITS + zero;
    answer = clamp(answer, low, high - 1);
    answer += value >= thresholds[answer + 1 - low];
    answer = value >= beyond ? highest : answer;
    answer = value <= -beyond ? lowest : answer;
    answer = value != value ? nan : answer;
    output[i] = (ELEM)answer;
  }
}

KERNEL(quantize_float)
#endif

#if USES_QUANTIZE_INT32
DEFINE_ROUNDING()

// output[i] = clamp(rescale(input[i] - zero) + zero)   Source: reference/requantize.h Requantize
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(quantize_int32) {
  TILE_RANGE(ELEMENTS);
  const int input_zero = INPUT_ZERO;
  const int multiplier = MULTIPLIER;
  const int shift = SHIFT;
  const int zero = OUTPUT_ZERO;
  const int low = OUTPUT_MIN;
  const int high = OUTPUT_MAX;
  global const int* input = (global const int*)(arena + INPUT) + start;
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int scaled = LOCAL(requantize)(input[i] - input_zero, multiplier, shift) + zero;
    output[i] = (ELEM)clamp(scaled, low, high);
  }
}

KERNEL(quantize_int32)
#endif
