// SPDX-License-Identifier: Apache-2.0
// A step of an RNN.
// Macros: IS_TANH, the function of what is summed, else it is clamped.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#define MATH_TANH IS_TANH
#include "float.clh"
#if IS_TANH
#include "math.clh"
#define FUNCTION(x) LOCAL(tanh_float)(x)
#else
#define FUNCTION(x) ACTIVATE(x, low, high)
#endif
#define SUMS_FLOATS USES_RNN_FLOAT
#define SUMS_HYBRID USES_RNN_HYBRID
#include "recurrent.clh"

#if USES_RNN_FLOAT
// output[b,u] = function(bias[u] + weights[u] * input[b] + recurrent[u] * hidden[b])
// Source: kernel_utils.cc RnnBatchStep
// tile: TILE_ITEMS units of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(rnn_float) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE(item, WIDTH, float);
    const float bias = ((global const float*)(constants + BIAS))[own];
    const float sum =
        LOCAL(float_sum)(input, weights, OWN_DEPTH, DEPTH, hidden, recurrent, WIDTH, bias);
    GIVE(float, item, row, own, FUNCTION(sum));
  }
}

KERNEL(rnn_float)
#endif

#if USES_RNN_HYBRID
// As rnn_float, of rows that became int8, and int8 weights with one scale.
// Source: kernel_utils.cc RnnBatchStep
// tile: TILE_ITEMS units of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(rnn_hybrid) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE(item, WIDTH, char);
    const float bias = ((global const float*)(constants + BIAS))[own];
    global const int* numbers = (global const int*)(constants + NUMBERS) + own * 4;
    const float sum = HYBRID_SUM_OF(row, bias, numbers);
    GIVE(float, item, row, own, FUNCTION(sum));
  }
}

KERNEL(rnn_hybrid)
#endif
