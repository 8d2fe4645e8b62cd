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

// 1 / root(variance + epsilon)
#define INVERSE_ROOT(variance) \
  LOCAL(divide)(1.0f, LOCAL(root)(LOCAL(bounded)((variance) + as_float(EPSILON))))
#define SQUARE_OF(x) ((x) * (x))
// A value scaled and moved; `inverse`: of the row's deviation. Each step is rounded, and bounded
// where the constants that delegate/ops/transformer.py lets through may make an infinity of it.
#define BOUNDED_NORMAL(x, gain, bias)                       \
  LOCAL(bounded)(LOCAL(bounded)((x) * (inverse * (gain))) + \
                 ((bias) - LOCAL(bounded)(mean * (inverse * (gain)))))

#if USES_LAYER_NORM_FLOAT
// output[r,i] = (input[r,i] - the row's mean) / the root of its variance and epsilon, times
// scale[i], plus offset[i]
// Source: the nodes apart: reference/reduce.h, squared_difference.cc, mul.h, sub.h, add.h
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(layer_norm_float) {
  int depth = DEPTH;
  global const float* scale = (global const float*)(constants + SCALE);
  global const float* offset = (global const float*)(constants + OFFSET);
  EACH_ITEM_OR_NONE (row, tile, ELEMENTS) {
    global const float* input = (global const float*)(arena + INPUT) + row * depth;
    global float* output = (global float*)(arena + OUTPUT) + row * depth;
    float sum = 0.0f;
    for (int c = 0; c < depth; c++) sum += input[c];
    float mean = sum / (float)depth;
    float squares = 0.0f;
    for (int c = 0; c < depth; c++) squares += SQUARE_OF(input[c] - mean);
    float inverse = INVERSE_ROOT(squares / (float)depth);
    for (int c = 0; c < depth; c++) output[c] = BOUNDED_NORMAL(input[c], scale[c], offset[c]);
  }
}

KERNEL(layer_norm_float)
#endif

#if USES_LAYER_NORM_ROW_FLOAT
#include "row_sum.clh"
#define ITSELF(x, SUFFIX) (x)
#define SQUARE_BESIDE_MEAN(x, SUFFIX) SQUARE_OF((x) - mean)

// The same for a row, whose work-items share it. Where the mean is not far from 0 beside the
// deviation no step is an infinity; other rows go value by value.
// SCRATCH_INTS: one a work-item for what it found.
// tile: one row; tiles: rows
TILE(layer_norm_row_float) {
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
  global const float* offset = (global const float*)(constants + OFFSET);
  float mean, squares;
  ROW_SUM(mean, ITSELF);
  mean = mean / (float)depth;
  ROW_SUM(squares, SQUARE_BESIDE_MEAN);
  float inverse = INVERSE_ROOT(squares / (float)depth);
  whole = fabs(mean) * inverse < 0x1p60f ? whole : 0;
  for (int i = FIRST; i < whole; i += items) {
    FLOATS x = LOAD_FLOATS(i, input);
    FLOATS gain = LOAD_FLOATS(i, scale);
    FLOATS bias = LOAD_FLOATS(i, offset);
    FLOATS by = inverse * gain;
    STORE_FLOATS(x * by + (bias - mean * by), i, output);
  }
  for (int c = whole * LANES + FIRST; c < depth; c += items)
    output[c] = BOUNDED_NORMAL(input[c], scale[c], offset[c]);
}

KERNEL(layer_norm_row_float)
#endif
