// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar or char; for the vector kernel LANES channels at once.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "store.clh"

#if USES_MEAN_QUANT8
DEFINE_ROUNDING()

// output[n,c] = rescale(sum over h and w of (input[n,h,w,c] - zero)) + zero; the division by h*w is
// in the multiplier   NHWC   Source: reference/reduce.h QuantizedMeanOrSum
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*c / TILE_ITEMS)
TILE(mean_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  for (int i = get_local_id(0); i < TILE_ITEMS; i += get_local_size(0)) {
    int element = tile * TILE_ITEMS + i;
    if (element >= ELEMENTS) break;
    int n = element / DEPTH;
    global const ELEM* source = input + n * PIXELS * DEPTH + element % DEPTH;
    int sum = -PIXELS * INPUT_ZERO;
    for (int p = 0; p < PIXELS; p++) sum += source[p * DEPTH];
    int scaled = LOCAL(requantize)(sum, MULTIPLIER, SHIFT) + OUTPUT_ZERO;
    output[element] = (ELEM)clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(mean_quant8)
#endif

#if USES_MEAN_VECTOR_QUANT8
DEFINE_ROUNDING(LANES)
#define INTS JOIN(int, LANES)
#define LOAD_INTS(from) JOIN(convert_int, LANES)(JOIN(vload, LANES)(0, from))
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)
#define ELEMS JOIN(ELEM, LANES)
DEFINE_STORE(ELEMS)

// The same for LANES channels at a time; the last block of them overlaps the one before.
// tile: TILE_ITEMS blocks, one a work-item; tiles: ceil(blocks / TILE_ITEMS)
TILE(mean_vector_quant8) {
  const int depth = DEPTH;
  const int pixels = PIXELS;
  for (int i = get_local_id(0); i < TILE_ITEMS; i += get_local_size(0)) {
    int item = tile * TILE_ITEMS + i;
    if (item >= ITEMS) break;
    int n = item / BLOCKS;
    int c = min(item % BLOCKS * LANES, depth - LANES);
    global const ELEM* source = (global const ELEM*)(arena + INPUT) + n * pixels * depth + c;
    INTS sum = -pixels * INPUT_ZERO;
    for (int p = 0; p < pixels; p++) sum += LOAD_INTS(source + p * depth);
    INTS multiplier = MULTIPLIER;
    INTS shift = SHIFT;
    INTS low = OUTPUT_MIN;
    INTS high = OUTPUT_MAX;
    INTS scaled = LOCAL(JOIN(requantize, LANES))(sum, multiplier, shift) + OUTPUT_ZERO;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + n * depth + c;
    STORE(ELEMS, TO_ELEMS(clamp(scaled, low, high)), output);
  }
}

KERNEL(mean_vector_quant8)
#endif
