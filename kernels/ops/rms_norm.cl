// SPDX-License-Identifier: Apache-2.0
// Macros: for the row kernel LANES floats a load, and ALONE, 1 where a work-group is one work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "math.clh"
DEFINE_PRODUCT_REST()
DEFINE_ROOT()
DEFINE_DIVIDE()
DEFINE_BOUNDED()

// 1 / root(mean of squares + epsilon)
#define INVERSE_ROOT(sum) \
  LOCAL(divide)(1.0f, LOCAL(root)(LOCAL(bounded)((sum) / (float)DEPTH + as_float(EPSILON))))

// A value scaled, each step bounded.
#define BOUNDED_NORMAL(x, gain) LOCAL(bounded)(LOCAL(bounded)((x) * inverse) * (gain))

#if USES_RMS_NORM_FLOAT
// output[r,i] = input[r,i] / the root of the mean of the row's squares and epsilon, times scale[i]
// Source: the nodes apart: reference/mul.h, reduce.h, add.h, elementwise.cc
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(rms_norm_float) {
  int depth = DEPTH;
  global const float* scale = (global const float*)(constants + SCALE);
  EACH_ITEM_OR_NONE (row, tile, ELEMENTS) {
    global const float* input = (global const float*)(arena + INPUT) + row * depth;
    global float* output = (global float*)(arena + OUTPUT) + row * depth;
    float sum = 0.0f;
    for (int c = 0; c < depth; c++) sum += LOCAL(bounded)(input[c] * input[c]);
    float inverse = INVERSE_ROOT(sum);
    for (int c = 0; c < depth; c++) output[c] = BOUNDED_NORMAL(input[c], scale[c]);
  }
}

KERNEL(rms_norm_float)
#endif

#if USES_RMS_NORM_ROW_FLOAT
#include "row_sum.clh"
DEFINE_BOUNDED(LANES)
#define SQUARE_OF(x, SUFFIX) LOCAL(JOIN(bounded, SUFFIX))((x) * (x))

// The same for a row, whose work-items share it. Where no square was bounded no step behind it can
// be, for scales that delegate/ops/transformer.py lets through; other rows go value by value.
// SCRATCH_INTS: one a work-item for what it found.
// tile: one row; tiles: rows
TILE(rms_norm_row_float) {
#if ALONE
  float found[1];
#else
  local float* found = (local float*)scratch;
#endif
  int depth = DEPTH;
  int whole = depth / LANES;
  int items = STRIDE;
  global const float* input = (global const float*)(arena + INPUT) + tile * depth;
  global float* output = (global float*)(arena + OUTPUT) + tile * depth;
  global const float* scale = (global const float*)(constants + SCALE);
  float squares;
  ROW_SUM(squares, SQUARE_OF);
  float inverse = INVERSE_ROOT(squares);
  whole = squares < 0x1p127f ? whole : 0;
  for (int i = FIRST; i < whole; i += items)
    STORE_FLOATS(LOAD_FLOATS(i, input) * inverse * LOAD_FLOATS(i, scale), i, output);
  for (int c = whole * LANES + FIRST; c < depth; c += items)
    output[c] = BOUNDED_NORMAL(input[c], scale[c]);
}

KERNEL(rms_norm_row_float)
#endif
