// SPDX-License-Identifier: Apache-2.0
// Macros: OUT, the type of the values: char, uchar, short or float; LANES floats a step; ALONE, 1
// where a work-group is one work-item; IS_ASYMMETRIC, whether a row has a zero point;
// ROUNDS_BY_ADDING, 1 where all but the last values of a row, fewer than 8, become the integer part
// of their sum with a half; IN_DOUBLES, 1 where the zero point is added before that, see
// row_scale.clh, too; NAN_IS_LOWEST, 1 where the calling TFLite converts NaN to the lowest int, and
// not to 0; SHIFT, what is taken off a value: 0, -128 or zero, its row's zero point; SUMS, if SUMS
// times the sum of each BLOCK_SIZE values of a row is written, too; SCRATCH_INTS, if not ALONE: two
// for each work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "product_rest.clh"
DEFINE_PRODUCT_REST()
#include "row_scale.clh"

#if ALONE
#define FIRST 0
#define STRIDE 1
#else
#define FIRST ((int)get_local_id(0))
#define STRIDE ((int)get_local_size(0))
#endif

// What NaN becomes; an infinity is NaN, too, times the inverse 0 of its row's scale. The zero point
// is added to the int that NaN converts to, and wraps around. Of the last values of a row their sum
// is converted, to an int8.
#if IN_DOUBLES
#define OF_NAN(zero, is_whole) (-128)
#elif !IS_ASYMMETRIC
#define OF_NAN(zero, is_whole) (NAN_IS_LOWEST ? -127 : 0)
#elif NAN_IS_LOWEST
#define OF_NAN(zero, is_whole) ((is_whole) ? ((zero) < 0 ? 127 : -128) : 0)
#else
#define OF_NAN(zero, is_whole) ((is_whole) ? (zero) : 0)
#endif

// x rounded to the nearest, ties away from zero. With a half added the sum is rounded first, which
// differs just below a half.
#define DEFINE_NEAREST(SUFFIX)                                                             \
  static JOIN(int, SUFFIX) LOCAL(JOIN(nearest, SUFFIX))(JOIN(float, SUFFIX) x) {           \
    JOIN(int, SUFFIX) whole = JOIN(convert_int, SUFFIX)(x);                                \
    JOIN(float, SUFFIX) rest = x - JOIN(convert_float, SUFFIX)(whole);                     \
    return whole + JOIN(convert_int, SUFFIX)(rest + rest);                                 \
  }                                                                                        \
  static JOIN(int, SUFFIX) LOCAL(JOIN(by_adding, SUFFIX))(JOIN(float, SUFFIX) x) {         \
    JOIN(int, SUFFIX) sign = JOIN(as_int, SUFFIX)(x) & (int)0x80000000u;                   \
    return JOIN(convert_int, SUFFIX)(x + JOIN(as_float, SUFFIX)(sign | (int)0x3f000000));  \
  }                                                                                        \
  static JOIN(int, SUFFIX) LOCAL(JOIN(quantized, SUFFIX))(JOIN(float, SUFFIX) x, int zero, \
                                                          int is_whole) {                  \
    JOIN(int, SUFFIX) least = IS_ASYMMETRIC ? -128 : -127;                                 \
    JOIN(int, SUFFIX) most = 127;                                                          \
    JOIN(int, SUFFIX) of_nan = OF_NAN(zero, is_whole);                                     \
    int is_added = ROUNDS_BY_ADDING && is_whole;                                           \
    JOIN(int, SUFFIX) value =                                                              \
        is_added ? LOCAL(JOIN(by_adding, SUFFIX))(x) : LOCAL(JOIN(nearest, SUFFIX))(x);    \
    value += zero;                                                                         \
    if (IN_DOUBLES) value = LOCAL(JOIN(nearest, SUFFIX))(x + (float)zero);                 \
    return x != x ? of_nan : clamp(value, least, most);                                    \
  }
DEFINE_NEAREST()
#if LANES > 1
#include "store.clh"
#define FLOATS JOIN(float, LANES)
#define INTS JOIN(int, LANES)
#define OUTS JOIN(OUT, LANES)
DEFINE_NEAREST(LANES)
DEFINE_STORE(OUTS)
#endif

// The least and the greatest of 0 and input[first .. end - 1], the same for all of a work-group.
static void __attribute__((always_inline)) LOCAL(range_of)(global const float* input, int first,
                                                           int end, local int* scratch,
                                                           float* least, float* most) {
  float low = 0.0f;
  float high = 0.0f;
  int i = first + FIRST * LANES;
#if LANES > 1
  FLOATS lows = 0.0f;
  FLOATS highs = 0.0f;
  for (; i <= end - LANES; i += STRIDE * LANES) {
    FLOATS x = LOAD_FLOATS(0, input + i);
    lows = x < lows ? x : lows;
    highs = x > highs ? x : highs;
  }
  float each_low[LANES], each_high[LANES];
  STORE_FLOATS_TO(private, lows, 0, each_low);
  STORE_FLOATS_TO(private, highs, 0, each_high);
  UNROLLED (lane, LANES) {
    low = each_low[lane] < low ? each_low[lane] : low;
    high = each_high[lane] > high ? each_high[lane] : high;
  }
#endif
  for (; i < end; i += STRIDE) {
    float x = input[i];
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
#if !ALONE
  local float* lowest = (local float*)scratch;
  local float* highest = lowest + SCRATCH_INTS / 2;
  lowest[FIRST] = low;
  highest[FIRST] = high;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int item = 0; item < STRIDE; item++) {
    low = lowest[item] < low ? lowest[item] : low;
    high = highest[item] > high ? highest[item] : high;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  *least = low;
  *most = high;
}

// input[first .. end - 1] of a row of `depth` floats becomes output[first .. end - 1].
static void __attribute__((always_inline)) LOCAL(write_values)(global const float* input,
                                                               global OUT* output, int first,
                                                               int end, int depth, float inverse,
                                                               int zero) {
  int whole = min(depth / 8 * 8, end); /* what TFLite takes eight at a time */
  int i = first + FIRST * LANES;
#if LANES > 1
  for (; i <= whole - LANES; i += STRIDE * LANES) {
    FLOATS x = LOAD_FLOATS(0, input + i) * inverse;
    INTS value = LOCAL(JOIN(quantized, LANES))(x, zero, 1) - SHIFT;
    STORE(OUTS, JOIN(JOIN(convert_, OUT), LANES)(value), output + i);
  }
#endif
  for (; i < end; i += STRIDE) {
    output[i] = (OUT)(LOCAL(quantized)(input[i] * inverse, zero, i < whole) - SHIFT);
  }
}

#if SUMS
// SUMS times the sums of the blocks of output[first .. end - 1], which all of a work-group wrote.
static void __attribute__((always_inline)) LOCAL(write_sums)(global const OUT* output,
                                                             global int* sums, int first, int end,
                                                             int size) {
#if !ALONE
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif
  for (int block = first / size + FIRST; block < end / size; block += STRIDE) {
    int sum = 0;
    for (int i = 0; i < size; i++) sum += output[block * size + i];
    sums[block] = SUMS * sum;
  }
}
#define WRITE_SUMS(row, first, end)                                                             \
  LOCAL(write_sums)                                                                             \
  (output, (global int*)(arena + BLOCK_SUMS_OUTPUT) + (row) * (depth / BLOCK_SIZE), first, end, \
   BLOCK_SIZE)
#else
#define WRITE_SUMS(row, first, end)
#endif

#if IS_ASYMMETRIC
#define SCALE_OF(low, high) LOCAL(asymmetric_scale)(low, high, &inverse, &zero)
#else
#define SCALE_OF(low, high) LOCAL(symmetric_scale)(low, high, &inverse)
#endif

#if USES_QUANTIZE_ROW_FLOAT
// output[row,i] = input[row,i] as one of 255 or 256 whole numbers over the range of the row, which
// has its scale, and its zero point, if any. What 0.0 becomes fills a row up to PITCH values.
// Source: portable_tensor_utils.cc, neon_tensor_utils.cc
// tile: a row; tiles: rows
TILE(quantize_row_float) {
  int depth = DEPTH;
  int pitch = PITCH;
  global const float* input = (global const float*)(arena + INPUT) + tile * depth;
  global OUT* output = (global OUT*)(arena + OUTPUT) + tile * pitch;
  float low, high, inverse;
  int zero = 0;
  LOCAL(range_of)(input, 0, depth, scratch, &low, &high);
  float scale = SCALE_OF(low, high);
  if (FIRST == 0) {
    ((global float*)(arena + SCALE_OUTPUT))[tile] = scale;
    ((global int*)(arena + ZERO_OUTPUT))[tile] = zero;
  }
  LOCAL(write_values)(input, output, 0, depth, depth, inverse, zero);
  WRITE_SUMS(tile, 0, depth);
  for (int i = depth + FIRST; i < pitch; i += STRIDE) output[i] = (OUT)(zero - SHIFT);
}

KERNEL(quantize_row_float)
#endif

#if USES_QUANTIZE_ROW_RANGE_FLOAT
// output[row,part,:] = the least and the greatest of 0 and PART floats of a row, the last part of
// a row has fewer
// tile: a part of a row; tiles: rows * PARTS
TILE(quantize_row_range_float) {
  int row = tile / PARTS;
  int first = (tile - row * PARTS) * PART;
  global const float* input = (global const float*)(arena + INPUT) + row * DEPTH;
  float low, high;
  LOCAL(range_of)(input, first, min(first + PART, DEPTH), scratch, &low, &high);
  if (FIRST == 0) {
    ((global float*)(arena + OUTPUT))[2 * tile] = low;
    ((global float*)(arena + OUTPUT))[2 * tile + 1] = high;
  }
}

KERNEL(quantize_row_range_float)
#endif

#if USES_QUANTIZE_ROW_PART_FLOAT
// The same as quantize_row_float for rows of many floats, of whose parts the ranges are known. PART
// is a multiple of 8, of LANES and of BLOCK_SIZE.
// tile: a part of a row; tiles: rows * PARTS
TILE(quantize_row_part_float) {
  int parts = PARTS;
  int depth = DEPTH;
  int row = tile / parts;
  int first = (tile - row * parts) * PART;
  int end = min(first + PART, depth);
  global const float* input = (global const float*)(arena + INPUT) + row * depth;
  global OUT* output = (global OUT*)(arena + OUTPUT) + row * PITCH;
  global const float* ranges = (global const float*)(arena + RANGES) + 2 * row * parts;
  float low = 0.0f;
  float high = 0.0f;
  float inverse;
  int zero = 0;
  for (int part = 0; part < parts; part++) {
    low = ranges[2 * part] < low ? ranges[2 * part] : low;
    high = ranges[2 * part + 1] > high ? ranges[2 * part + 1] : high;
  }
  float scale = SCALE_OF(low, high);
  if (FIRST == 0 && first == 0) {
    ((global float*)(arena + SCALE_OUTPUT))[row] = scale;
    ((global int*)(arena + ZERO_OUTPUT))[row] = zero;
  }
  LOCAL(write_values)(input, output, first, end, depth, inverse, zero);
  WRITE_SUMS(row, first, end);
  if (end == depth)
    for (int i = depth + FIRST; i < PITCH; i += STRIDE) output[i] = (OUT)(zero - SHIFT);
}

KERNEL(quantize_row_part_float)
#endif
