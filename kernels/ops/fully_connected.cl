// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' and the weights' type, uchar or char; ROUNDING, see wide.clh; for
// the vector kernel LANES output channels a work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "quantize_wide.clh"
#include "store.clh"
#include "wide.clh"

#if USES_FULLY_CONNECTED_QUANT8
// output[row,o] = sum over i of (input[row,i] - zero) * (weights[o,i] - zero), plus bias, times a
// double and clamped: for scales that no 31-bit multiplier stands for   OI
// Source: reference/fully_connected.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(rows*out_c / TILE_ITEMS)
TILE(fully_connected_quant8) {
  global const int* channel = (global const int*)(constants + CHANNELS);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  int in_c = IN_C;
  int out_c = OUT_C;
  int input_zero = INPUT_ZERO;
  int weight_zero = WEIGHT_ZERO;
  EACH_ITEM (element, tile, ELEMENTS) {
    int o = element % out_c;
    global const ELEM* source = (global const ELEM*)(arena + INPUT) + element / out_c * in_c;
    global const ELEM* weight = (global const ELEM*)(constants + WEIGHTS) + o * in_c;
    int sum = channel[o];
    int c = 0;
    // NOTE: llvmpipe leaves every loop after 65535 rounds, so there are fewer than terms.
    for (; c <= in_c - 8; c += 8) {
      UNROLLED (j, 8) sum += ((int)source[c + j] - input_zero) * ((int)weight[c + j] - weight_zero);
    }
    for (; c < in_c; c++) sum += ((int)source[c] - input_zero) * ((int)weight[c] - weight_zero);
    global const int* scaling = channel + 2 * out_c + o;
    int scaled = LOCAL(requantize_sum)(sum >> 31, as_uint(sum), scaling[0], scaling[out_c],
                                       scaling[2 * out_c]);
    output[element] = (ELEM)clamp(scaled + OUTPUT_ZERO, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(fully_connected_quant8)
#endif

#if USES_FULLY_CONNECTED_VECTOR_QUANT8
#define ELEMS JOIN(ELEM, LANES)
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)
#define LOAD JOIN(vload, LANES)
DEFINE_STORE(ELEMS)

// The same for LANES channels at a time: weights are 16 bit, less their zero point, in pairs along
// the input. The input's zero point is in the bias. The last block of channels overlaps the one
// before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(rows*blocks / TILE_ITEMS)
TILE(fully_connected_vector_quant8) {
  int out_c = OUT_C;
  EACH_ITEM (item, tile, ITEMS) {
    int row = item % ROWS;
    int block = item / ROWS;
    int first = min(block * LANES, out_c - LANES);
    global const ELEM* source = (global const ELEM*)(arena + INPUT) + row * IN_C;
    global const int* weight = (global const int*)(constants + WEIGHTS) + block * (PAIRS * LANES);
    global const int* channel = (global const int*)(constants + CHANNELS) + first;
    WIDE_INTS sum = LOAD(0, channel);
    for (int k = 0; k < PAIRS; k++) {
      WIDE_INTS pair = LOAD(k, weight);
      sum += ((pair << 16) >> 16) * (int)source[2 * k] + (pair >> 16) * (int)source[2 * k + 1];
    }
    WIDE_INTS a = LOAD(0, channel + 2 * out_c);
    WIDE_INTS b = LOAD(0, channel + 3 * out_c);
    WIDE_INTS c = LOAD(0, channel + 4 * out_c);
    WIDE_INTS least = OUTPUT_MIN;
    WIDE_INTS most = OUTPUT_MAX;
    WIDE_INTS scaled =
        LOCAL(requantize_sum)(sum >> 31, JOIN(as_uint, LANES)(sum), a, b, c) + OUTPUT_ZERO;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + row * out_c + first;
    STORE(ELEMS, TO_ELEMS(clamp(scaled, least, most)), output);
  }
}

KERNEL(fully_connected_vector_quant8)
#endif
