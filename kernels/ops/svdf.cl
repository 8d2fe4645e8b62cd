// SPDX-License-Identifier: Apache-2.0
// SVDF: a unit has RANK filters. A filter multiplies the input by its weights, remembers the last
// MEMORY of these features, and multiplies them by its weights of time.
// Macro: LANES, the floats of a vector over time; 1 where floats go one by one. IEEE has its own.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#if IEEE
#undef LANES
#define LANES 4
#endif
#include "float.clh"

// Declares an item's picture and unit, the unit's first filter, and where its filters have what
// they remember, put what they remember next, and have their weights of time.
#define LOCATE_UNIT(item, TYPE, TIME_TYPE)                              \
  const int picture = (item) / UNITS;                                   \
  const int unit = (item) - picture * UNITS;                            \
  const int first = unit * RANK;                                        \
  const int row = (picture * UNITS * RANK + first) * MEMORY;            \
  global const TYPE* state = (global const TYPE*)(arena + STATE) + row; \
  global TYPE* next = (global TYPE*)(arena + STATE_OUTPUT) + row;       \
  global const TIME_TYPE* times = (global const TIME_TYPE*)(constants + TIMES) + first * MEMORY

#if USES_SVDF_QUANT8
DEFINE_ROUNDING()

// state_output[b,f,m] = state[b,f,m + 1], and the last sum_c(weights[f,c] * input[b,c]), scaled;
// output[b,u] = bias[u] + sum of times[f,m] * state_output[b,f,m] over the unit's filters, scaled.
// `offsets` are what the input's zero point takes off a filter's sum. Sums wrap as TFLite's do.
// Source: reference/svdf.h EvalIntegerSVDF
// tile: TILE_ITEMS units, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(svdf_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE_UNIT(item, short, short);
    global const char* input = (global const char*)(arena + INPUT) + picture * DEPTH;
    global const char* weights = (global const char*)(constants + WEIGHTS) + first * DEPTH;
    global const int* offsets = (global const int*)(constants + OFFSETS) + first;
    const int last = MEMORY - 1;
    uint sum = (uint)((global const int*)(constants + BIAS))[unit];
    for (int filter = 0; filter < RANK; filter++) {
      int dot = 0;
      for (int c = 0; c < DEPTH; c++) dot += weights[c] * input[c];
      dot = (int)((uint)dot + (uint)offsets[filter]);
      dot = clamp(LOCAL(requantize)(dot, FEATURE_MULTIPLIER, FEATURE_SHIFT), -32768, 32767);
      for (int m = 0; m < last; m++) {
        const short value = state[m + 1];
        next[m] = value;
        sum += (uint)(times[m] * value);
      }
      next[last] = (short)dot;
      sum += (uint)(times[last] * dot);
      weights += DEPTH;
      times += MEMORY;
      state += MEMORY;
      next += MEMORY;
    }
    const int value = LOCAL(requantize)((int)sum, OUTPUT_MULTIPLIER, OUTPUT_SHIFT) + OUTPUT_ZERO;
    ((global char*)(arena + OUTPUT))[item] = (char)clamp(value, -128, 127);
  }
}

KERNEL(svdf_quant8)
#endif

#if USES_SVDF_FLOAT || USES_SVDF_HYBRID
#include "fours.clh"
#if LANES > 1
#include "lane_sum.clh"
#define PARTS JOIN(float, LANES)
#else
#define SUM_OF(v) (v)
#define PARTS float
#endif
// Weights of time: floats, or int8 with one scale, whose product is what a float would be.
#if USES_SVDF_FLOAT
#define TIME float
#define LOAD_TIMES(from) LOAD_WHOLE_FLOATS(0, from)
#define LOAD_TIME(time) (time)
#else
#define TIME char
#define LOAD_TIMES(from) (JOIN(convert_float, LANES)(JOIN(vload, LANES)(0, from)) * scale)
#define LOAD_TIME(time) ((float)(time) * scale)
#endif

#if IEEE
// Moves a filter's features by one, adds the newest, and returns their products with weights of
// time; `parts` stay.
static float LOCAL(over_time)(global const float* state, global float* next,
                              global const TIME* times, int memory, float scale, float feature,
                              PARTS* parts) {
  for (int m = 0; m < memory - 1; m++) next[m] = state[m + 1];
  next[memory - 1] = feature;
  float4 fours = 0.0f;
  int m = 0;
  for (; m <= memory - 4; m += 4) fours += vload4(0, next + m) * LOAD_TIMES(times + m);
  float sum = SUM_OF_FOUR(fours);
  for (; m < memory; m++) sum += next[m] * LOAD_TIME(times[m]);
  return sum;
}

// sum + a filter's: the first ones are added as products are.
static float LOCAL(plus_filter)(float sum, float value, int filter, int rank, PARTS* parts) {
  const int whole = rank / 4 * 4;
  if (filter >= whole) return sum + value;
  *parts += (int4)(0, 1, 2, 3) == (int4)(filter & 3) ? (float4)(value) : (float4)(0.0f);
  if (filter < whole - 1) return sum;
  sum = SUM_OF_FOUR(*parts);
  *parts = 0.0f;
  return sum;
}
#else
// Moves a filter's features by one, and adds the newest. Of their products with weights of time,
// whole vectors add to `parts`, and the rest is returned.
static float LOCAL(over_time)(global const float* state, global float* next,
                              global const TIME* times, int memory, float scale, float feature,
                              PARTS* parts) {
  int m = 0;
#if LANES > 1
  PARTS own = 0.0f;
  for (; m + LANES < memory; m += LANES) {
    const PARTS value = LOAD_WHOLE_FLOATS(0, state + m + 1);
    STORE_FLOATS_TO(global, value, 0, next + m);
    own = MULTIPLY_ADD(value, LOAD_TIMES(times + m), own);
  }
  *parts += own;
#endif
  float sum = 0.0f;
  for (; m < memory - 1; m++) {
    const float value = state[m + 1];
    next[m] = value;
    sum = MULTIPLY_ADD(value, LOAD_TIME(times[m]), sum);
  }
  next[memory - 1] = feature;
  return MULTIPLY_ADD(feature, LOAD_TIME(times[memory - 1]), sum);
}

static float LOCAL(plus_filter)(float sum, float value, int filter, int rank, PARTS* parts) {
  return sum + value;
}
#endif
#endif

#if USES_SVDF_FLOAT
// As svdf_quant8, of floats; the result is clamped.   Source: reference/svdf.h EvalFloatSVDF
// tile: TILE_ITEMS units, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(svdf_float) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_UNIT(item, float, float);
    global const float* input = (global const float*)(arena + INPUT) + picture * DEPTH;
    global const float* weights = (global const float*)(constants + WEIGHTS) + first * DEPTH;
    float sum = 0.0f;
    PARTS parts = 0.0f;
    for (int filter = 0; filter < RANK; filter++) {
      const float dot = LOCAL(plus_fours)(input, weights, DEPTH, 0.0f);
      const int at = filter * MEMORY;
      const float value =
          LOCAL(over_time)(state + at, next + at, times + at, MEMORY, 1.0f, dot, &parts);
      sum = LOCAL(plus_filter)(sum, value, filter, RANK, &parts);
      weights += DEPTH;
    }
    sum += SUM_OF(parts) + ((global const float*)(constants + BIAS))[unit];
    ((global float*)(arena + OUTPUT))[item] = ACTIVATE(sum, low, high);
  }
}

KERNEL(svdf_float)
#endif

#if USES_SVDF_HYBRID
// As svdf_float, of rows that became int8, and int8 weights with one scale, those of time, too. A
// filter's sum of weights is what a row's zero point takes off.
// Source: reference/svdf.h EvalHybridSVDF
// tile: TILE_ITEMS units, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(svdf_hybrid) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_UNIT(item, float, char);
    global const char* input = (global const char*)(arena + INPUT) + picture * PITCH;
    global const char* weights = (global const char*)(constants + WEIGHTS) + first * DEPTH;
    global const int* weight_sums = (global const int*)(constants + WEIGHT_SUMS) + first;
    const float scale =
        ((global const float*)(arena + ROW_SCALES))[picture] * as_float(WEIGHT_SCALE);
    const int zero = ((global const int*)(arena + ROW_ZEROS))[picture];
    float sum = 0.0f;
    PARTS parts = 0.0f;
    for (int filter = 0; filter < RANK; filter++) {
      int dot = 0;
      for (int c = 0; c < DEPTH; c++) dot += weights[c] * input[c];
      dot -= zero * weight_sums[filter];
      const int at = filter * MEMORY;
      const float value = LOCAL(over_time)(state + at, next + at, times + at, MEMORY,
                                           as_float(TIME_SCALE), (float)dot * scale, &parts);
      sum = LOCAL(plus_filter)(sum, value, filter, RANK, &parts);
      weights += DEPTH;
    }
    sum += SUM_OF(parts) + ((global const float*)(constants + BIAS))[unit];
    ((global float*)(arena + OUTPUT))[item] = ACTIVATE(sum, low, high);
  }
}

KERNEL(svdf_hybrid)
#endif
