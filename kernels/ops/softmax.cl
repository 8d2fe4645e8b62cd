// SPDX-License-Identifier: Apache-2.0
// Macros: for 8 bits ELEM, the input's type, uchar or char, and OUT, the output's, which may be
// short; for the row kernels LANES values a load, and ALONE, 1 where a work-group is one work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "exp_below_0.clh"
#include "group_row.clh"
#include "quotient.clh"

#if USES_SOFTMAX_QUANT8 || USES_SOFTMAX_ROW_QUANT8
DEFINE_ROUNDING()
#include "fixed_point.clh"
#endif

#if USES_SOFTMAX_QUANT8
// output[r,i] = e[i] / sum of e, in OUTPUT_BITS bits from the type's lowest value on, e[i] = exp of
// the scaled distance to the row's maximum. Distances have 256 values: the host made exp's table,
// in 31 fractional bits, and kept the sums' 19 bits in a second one.
// Source: reference/softmax.h Softmax
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(softmax_quant8) {
  EACH_ITEM (row, tile, ROWS) {
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + row * DEPTH;
    global OUT* output = (global OUT*)(arena + OUTPUT) + row * DEPTH;
    global const int* exponential = (global const int*)(constants + TABLE);
    int highest = input[0];
    for (int c = 1; c < DEPTH; c++) highest = max(highest, (int)input[c]);
    int sum = 0;
    for (int c = 0; c < DEPTH; c++) sum += exponential[256 + highest - input[c]];
    int headroom = (int)clz((uint)sum);
    int scale = LOCAL(one_over_one_plus)((int)(((uint)sum << headroom) - 0x80000000u));
    // 12 integer bits less the headroom, then 31 fractional bits down to the output's
    int exponent = 12 - headroom + 31 - OUTPUT_BITS;
    for (int c = 0; c < DEPTH; c++) {
      int share = LOCAL(rounding_doubling_high_mul)(scale, exponential[highest - input[c]]);
      // NOTE: at sums of 512 and more, where the exponent passes 31, TFLite's kernel aborts.
      int quanta = exponent > 31 ? 0 : LOCAL(rounding_divide_by_pot)(share, exponent);
      output[c] = (OUT)min(quanta + OUTPUT_MIN, OUTPUT_MAX);
    }
  }
}

KERNEL(softmax_quant8)
#endif

#if USES_SOFTMAX_QUANT16
// output[r,i] = e[i] / sum of e, in 15 fractional bits. The host has exp() of all distances to the
// row's maximum; 1 / (1 + x) is the lines between 513 entries, x - 1 = sum in [0, 1).
// Source: reference/softmax.h SoftmaxInt16
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(softmax_quant16) {
  EACH_ITEM (row, tile, ROWS) {
    global const short* input = (global const short*)(arena + INPUT) + row * DEPTH;
    global short* output = (global short*)(arena + OUTPUT) + row * DEPTH;
    global const short* exponential = (global const short*)(constants + TABLE);
    global const short* entries = (global const short*)(constants + RECIPROCALS);
    int highest = input[0];
    for (int c = 1; c < DEPTH; c++) highest = max(highest, (int)input[c]);
    int sum = 0;
    for (int c = 0; c < DEPTH; c++) sum += exponential[highest - input[c]];
    int headroom = (int)clz((uint)sum) - 1;
    int shifted = (int)((((uint)sum << headroom) + 8192u) >> 14);
    int x = clamp(shifted - 98304, -32768, 32767);
    int place = 256 + (x >> 7);
    int slope = (short)(entries[place + 1] - entries[place]);
    int scale = (short)(entries[place] + ((slope * (x & 127) + 64) >> 7));
    int shift = 30 - headroom;
    for (int c = 0; c < DEPTH; c++) {
      int share = (exponential[highest - input[c]] * scale + (1 << (shift - 1))) >> shift;
      output[c] = (short)clamp(share, 0, 32767);
    }
  }
}

KERNEL(softmax_quant16)
#endif

#if USES_SOFTMAX_ROW_QUANT8
DEFINE_ROUNDING(LANES)
#define INTS JOIN(int, LANES)
#define ELEMS JOIN(ELEM, LANES)
#define LOAD_ELEMS JOIN(vload, LANES)
#define STORE_ELEMS JOIN(vstore, LANES)
#define LOAD_INTS JOIN(vload, LANES)
#define STORE_INTS JOIN(vstore, LANES)

// The same for one row: the shares of all 256 distances make a table, which the values then index.
// SCRATCH_INTS: 256 of that table, one a work-item for what it found.
// tile: one row; tiles: rows
TILE(softmax_row_quant8) {
#if ALONE
  int shares[256];
  int found[1];
#else
  local int* shares = scratch;
  local int* found = scratch + 256;
#endif
  int depth = DEPTH;
  int whole = depth / LANES;
  int items = STRIDE;
  global const ELEM* input = (global const ELEM*)(arena + INPUT) + tile * depth;
  global OUT* output = (global OUT*)(arena + OUTPUT) + tile * depth;
  global const int* exponential = (global const int*)(constants + TABLE);

  ELEMS highest_lanes = input[0];
  for (int i = FIRST; i < whole; i += items)
    highest_lanes = max(highest_lanes, LOAD_ELEMS(i, input));
  ELEM lane[LANES];
  STORE_ELEMS(highest_lanes, 0, lane);
  int highest = lane[0];
#pragma unroll
  for (int i = 1; i < LANES; i++) highest = max(highest, (int)lane[i]);
  SCALAR_LOOP for (int c = whole * LANES + FIRST; c < depth; c += items) {
    highest = max(highest, (int)input[c]);
  }
  found[FIRST] = highest;
  SHARE(found, max);
  for (int i = 0; i < min(items, SHARERS); i++) highest = max(highest, found[i]);
  MEET();

  int sums[4];  // without an initializer, which Mesa would read from a buffer of its own
  sums[0] = sums[1] = sums[2] = sums[3] = 0;
  SCALAR_LOOP for (int i = FIRST; i < whole; i += items) {
    UNROLLED (l, LANES) sums[l % 4] += exponential[256 + highest - input[i * LANES + l]];
  }
  SCALAR_LOOP for (int c = whole * LANES + FIRST; c < depth; c += items) {
    sums[0] += exponential[256 + highest - input[c]];
  }
  found[FIRST] = sums[0] + sums[1] + sums[2] + sums[3];
  SHARE(found, PLUS);
  int sum = 0;
  for (int i = 0; i < min(items, SHARERS); i++) sum += found[i];

  int headroom = (int)clz((uint)sum);
  int scale = LOCAL(one_over_one_plus)((int)(((uint)sum << headroom) - 0x80000000u));
  int exponent = 12 - headroom + 31 - OUTPUT_BITS;
  INTS scale_lanes = scale;
  INTS exponent_lanes = min(exponent, 31);
  INTS most = OUTPUT_MAX - OUTPUT_MIN;
  for (int i = FIRST; i < 256 / LANES; i += items) {
    INTS e = LOAD_INTS(i, exponential);
    INTS share = LOCAL(JOIN(rounding_doubling_high_mul, LANES))(scale_lanes, e);
    INTS quanta = LOCAL(JOIN(rounding_divide_by_pot, LANES))(share, exponent_lanes);
    if (exponent > 31) quanta = 0; /* as above */
    STORE_INTS(min(quanta, most) + OUTPUT_MIN, i, shares);
  }
  MEET();
  SCALAR_LOOP for (int i = FIRST; i < whole; i += items) {
    UNROLLED (l, LANES) output[i * LANES + l] = (OUT)shares[highest - input[i * LANES + l]];
  }
  SCALAR_LOOP for (int c = whole * LANES + FIRST; c < depth; c += items) {
    output[c] = (OUT)shares[highest - input[c]];
  }
}

KERNEL(softmax_row_quant8)
#endif

#if USES_SOFTMAX_FLOAT
DEFINE_EXP()
DEFINE_QUOTIENT()

// output[r,i] = e[i] / sum of e, e[i] = exp(beta * (input[r,i] - the row's maximum))
// Source: reference/softmax.h Softmax
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(softmax_float) {
  float beta = as_float(BETA);
  EACH_ITEM_OR_NONE (row, tile, ROWS) {
    global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT) + row * DEPTH;
    global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + row * DEPTH;
    float highest = LOAD_FLOAT(0, input);
    for (int c = 1; c < DEPTH; c++) highest = AT_LEAST(highest, LOAD_FLOAT(c, input));
    float sum = 0.0f;
    for (int c = 0; c < DEPTH; c++) {
      float e = LOCAL(exp_below_0)((LOAD_FLOAT(c, input) - highest) * beta);
      STORE_FLOAT(e, c, output);
      sum += e;
    }
    for (int c = 0; c < DEPTH; c++) STORE_FLOAT(QUOTIENT(LOAD_FLOAT(c, output), sum), c, output);
  }
}

KERNEL(softmax_float)
#endif

#if USES_SOFTMAX_ROW_FLOAT
DEFINE_EXP()
DEFINE_QUOTIENT()
DEFINE_EXP(LANES)
DEFINE_QUOTIENT(LANES)
#define FLOATS JOIN(float, LANES)

// The same for one row; the sum is one of the lanes' sums, unless each work-item adds all terms, as
// IEEE asks for.
// SCRATCH_INTS: one a work-item for what it found.
// tile: one row; tiles: rows
TILE(softmax_row_float) {
#if ALONE
  float found[1];
#else
  local float* found = (local float*)scratch;
#endif
  float beta = as_float(BETA);
  int depth = DEPTH;
  int whole = depth / LANES;
  int items = STRIDE;
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT) + tile * depth;
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + tile * depth;

  FLOATS highest_lanes = LOAD_FLOAT(0, input);
  for (int i = FIRST; i < whole; i += items) {
    FLOATS values = LOAD_FLOATS(i, input);
    highest_lanes = AT_LEAST(highest_lanes, values);
  }
  float lane[LANES];
  STORE_FLOATS_TO(private, highest_lanes, 0, lane);
  float highest = lane[0];
#pragma unroll
  for (int i = 1; i < LANES; i++) highest = AT_LEAST(highest, lane[i]);
  for (int c = whole * LANES + FIRST; c < depth; c += items)
    highest = AT_LEAST(highest, LOAD_FLOAT(c, input));
  found[FIRST] = highest;
  SHARE(found, AT_LEAST);
  for (int i = 0; i < min(items, SHARERS); i++) highest = AT_LEAST(highest, found[i]);
  MEET();

  FLOATS sum_lanes = 0.0f;
  for (int i = FIRST; i < whole; i += items) {
    FLOATS e = LOCAL(JOIN(exp_below_0, LANES))((LOAD_FLOATS(i, input) - highest) * beta);
    STORE_FLOATS(e, i, output);
    sum_lanes += e;
  }
  STORE_FLOATS_TO(private, sum_lanes, 0, lane);
  float sum = lane[0];
#pragma unroll
  for (int i = 1; i < LANES; i++) sum += lane[i];
  for (int c = whole * LANES + FIRST; c < depth; c += items) {
    float e = LOCAL(exp_below_0)((LOAD_FLOAT(c, input) - highest) * beta);
    STORE_FLOAT(e, c, output);
    sum += e;
  }
#if IEEE
#if !ALONE
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif
  sum = 0.0f;
  for (int c = 0; c < depth; c++) sum += LOAD_FLOAT(c, output);
#if !ALONE
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif
#else
  found[FIRST] = sum;
  SHARE(found, PLUS);
  sum = 0.0f;
  for (int i = 0; i < min(items, SHARERS); i++) sum += found[i];
#endif
  for (int i = FIRST; i < whole; i += items)
    STORE_FLOATS(QUOTIENT(LOAD_FLOATS(i, output), (FLOATS)(sum)), i, output);
  for (int c = whole * LANES + FIRST; c < depth; c += items)
    STORE_FLOAT(QUOTIENT(LOAD_FLOAT(c, output), sum), c, output);
}

KERNEL(softmax_row_float)
#endif
