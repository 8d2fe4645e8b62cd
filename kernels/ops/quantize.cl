// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the output's type, uchar, char or short; of the kernel of vectors LANES, and
// IS_ALIGNED, see store.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "store.clh"

#if USES_QUANTIZE_FLOAT || USES_QUANTIZE_VECTOR_FLOAT
// Declares what a tile's elements need, and its input and output from `start` on.
#define DECLARE_NUMBERS                                                           \
  const float factor = as_float(FACTOR);                                          \
  const float beyond = as_float(BEYOND);                                          \
  const int zero = OUTPUT_ZERO;                                                   \
  const int low = OUTPUT_MIN;                                                     \
  const int high = OUTPUT_MAX;                                                    \
  const int lowest = LOWEST;                                                      \
  const int highest = HIGHEST;                                                    \
  const int nan = NOT_A_NUMBER;                                                   \
  global const float* input = (global const float*)(arena + INPUT) + start;       \
  global const float* thresholds = (global const float*)(constants + THRESHOLDS); \
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + start

// Writes an element's answer.
#define ANSWER(i)                                                                         \
  do {                                                                                    \
    float value = input[i];                                                               \
    float steps = value * factor - 0.0625f;                                               \
    steps = steps > 200000.0f ? 200000.0f : steps;                                        \
    steps = steps < -200000.0f ? -200000.0f : steps;                                      \
    /* the answer, or the one below it, as the product is off by less than a sixteenth */ \
    int answer = as_int(steps + ROUNDER) - ROUNDER_BITS + zero;                           \
    answer = clamp(answer, low, high - 1);                                                \
    answer += value >= thresholds[answer + 1 - low];                                      \
    answer = value >= beyond ? highest : answer;                                          \
    answer = value <= -beyond ? lowest : answer;                                          \
    answer = value != value ? nan : answer;                                               \
    output[i] = (ELEM)answer;                                                             \
  } while (0)
#endif

#if USES_QUANTIZE_FLOAT
// output[i] = clamp(round(input[i] / scale) + zero), the quotient a float, ties away from zero
// A product with 1 / scale is near enough to leave two answers; the host knows at which float the
// greater one begins. No device's division is needed.   Source: reference/quantize.h AffineQuantize
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(quantize_float) {
  TILE_RANGE(ELEMENTS);
  DECLARE_NUMBERS;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) ANSWER(i);
}

KERNEL(quantize_float)
#endif

#if USES_QUANTIZE_VECTOR_FLOAT
#define FLOATS JOIN(float, LANES)
#define INTS JOIN(int, LANES)
#define ELEMS JOIN(ELEM, LANES)
#define AS_INTS JOIN(as_int, LANES)
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)
DEFINE_STORE(ELEMS)

// The same of 8 bits, LANES at once. There the product is off by less than 1e-4 of a step, so it
// tells the answer unless it is that near the middle between two, or is beyond what ROUNDER takes.
// tile: TILE_ITEMS vectors, one a work-item; tiles: ceil(elements / LANES / TILE_ITEMS)
TILE(quantize_vector_float) {
  const int start = tile * (TILE_ITEMS * LANES);
  const int count = min(TILE_ITEMS * LANES, ELEMENTS - start);
  DECLARE_NUMBERS;
  const int whole = count / LANES;
  for (int at = get_local_id(0); at < whole; at += get_local_size(0)) {
    const FLOATS steps = LOAD_LANES(float, LANES, input + at * LANES) * factor;
    const FLOATS rounded = steps + ROUNDER;
    const FLOATS apart = fabs(steps - (rounded - ROUNDER));
    const INTS answers = AS_INTS(rounded) - ROUNDER_BITS + zero;
    STORE(ELEMS, TO_ELEMS(clamp(answers, (INTS)low, (INTS)high)), output + at * LANES);
    if (any(!(apart < 0.4999f && fabs(steps) < 200000.0f)))
      for (int i = at * LANES; i < (at + 1) * LANES; i++) ANSWER(i);
  }
#if !IS_ALIGNED
  for (int i = whole * LANES + get_local_id(0); i < count; i += get_local_size(0)) ANSWER(i);
#endif
}

KERNEL(quantize_vector_float)
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
