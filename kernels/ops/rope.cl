// SPDX-License-Identifier: Apache-2.0
// Macro: LANES pairs an item, 1 or a vector's.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float_lanes.clh"

// A pair is an element of a row's first half and the one of its second half. It turns by an angle:
// output = first * cos - second * sin, and second * cos + first * sin. ANGLE_ROWS rows of angles
// are taken again and again.   Source: the nodes apart: reference/mul.h, sub.h, add.h
// tile: TILE_ITEMS items of LANES pairs; tiles: ceil(rows * HALF / LANES / TILE_ITEMS)
TILE(rope_float) {
  int size = HALF;
  int items = size / LANES;
  EACH_ITEM_OR_NONE (item, tile, ELEMENTS) {
    int row = item / items;
    int at = (item - row * items) * LANES;
    int angle = row % ANGLE_ROWS * size + at;
    global const float* input = (global const float*)(arena + INPUT) + row * 2 * size + at;
    global float* output = (global float*)(arena + OUTPUT) + row * 2 * size + at;
    FLOATS cosine = LOAD_FLOATS(0, (global const float*)(arena + COSINES) + angle);
    FLOATS sine = LOAD_FLOATS(0, (global const float*)(arena + SINES) + angle);
    FLOATS one = LOAD_FLOATS(0, input);
    FLOATS two = LOAD_FLOATS(0, input + size);
    FLOATS less = BOUNDED(one * cosine) - BOUNDED(two * sine);
    FLOATS more = BOUNDED(two * cosine) + BOUNDED(one * sine);
    STORE_FLOATS(BOUNDED(less), 0, output);
    STORE_FLOATS(BOUNDED(more), 0, output + size);
  }
}

KERNEL(rope_float)
