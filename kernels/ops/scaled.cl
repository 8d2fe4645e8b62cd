// SPDX-License-Identifier: Apache-2.0
// Macros: LANES columns a step, 1 or a vector's; HAS_RESIDUAL, whether a second input is added.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float_lanes.clh"

// output[r,c] = (input[r,c] + residual[r,c]) * scale[c] + offset[c], each step rounded. An item is
// SPAN columns of a row of DEPTH.   Source: the nodes apart: reference/add.h, mul.h
// tile: TILE_ITEMS items; tiles: ceil(rows * DEPTH / SPAN / TILE_ITEMS)
TILE(scaled_float) {
  int span = SPAN;
  int parts = DEPTH / span;
  global const float* scale = (global const float*)(constants + SCALE);
  global const float* offset = (global const float*)(constants + OFFSET);
  EACH_ITEM_OR_NONE (item, tile, ELEMENTS) {
    int first = item % parts * span;
    global const float* input = (global const float*)(arena + INPUT) + item * span;
#if HAS_RESIDUAL
    global const float* residual = (global const float*)(arena + RESIDUAL) + item * span;
#endif
    global float* output = (global float*)(arena + OUTPUT) + item * span;
    for (int c = 0; c < span; c += LANES) {
      FLOATS x = LOAD_FLOATS(0, input + c);
#if HAS_RESIDUAL
      x = BOUNDED(x + LOAD_FLOATS(0, residual + c));
#endif
      x = BOUNDED(x * LOAD_FLOATS(0, scale + first + c));
      STORE_FLOATS(BOUNDED(x + LOAD_FLOATS(0, offset + first + c)), 0, output + c);
    }
  }
}

KERNEL(scaled_float)
