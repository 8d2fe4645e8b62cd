// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' and the weights' type, uchar or char; ROUNDING, see wide.clh; for
// the plain kernel of 8 bits WEIGHTS_IN, constants, or arena where they are computed; for the
// vector kernels LANES output channels a work-item, of hybrid ones by TILE_W rows; HAS_SHIFTS, of
// weights in blocks, 1 where each block has a shift, too; those of hybrid.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#if USES_FULLY_CONNECTED_QUANT8 || USES_FULLY_CONNECTED_VECTOR_QUANT8
#include "quantize.clh"
#include "quantize_wide.clh"
#include "store.clh"
#include "wide.clh"
#else
#include "float.clh"
#ifdef LANES
#define HYBRID_WIDTH LANES
#else
#define HYBRID_WIDTH
#endif
#include "hybrid.clh"
#endif

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
    global const ELEM* weight = (global const ELEM*)(WEIGHTS_IN + WEIGHTS) + o * in_c;
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

#if USES_FULLY_CONNECTED_HYBRID
// output[row,o] = bias[o] + (sum over i of (values[row,i] - zeros[row]) * weights[o,i]) *
// (scales[row] * scales[o]), clamped: rows as quantize_row.cl leaves them   OI
// Source: tensor_utils.cc MatrixBatchVectorMultiplyAccumulate, fully_connected.cc EvalHybrid
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(rows*out_c / TILE_ITEMS)
TILE(fully_connected_hybrid) {
  global const int* weight_sums = (global const int*)(constants + CHANNELS);
  int in_c = IN_C;
  int out_c = OUT_C;
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    int row = element / out_c;
    int o = element - row * out_c;
    global const char* source = (global const char*)(arena + INPUT) + row * PITCH;
    global const char* weight = (global const char*)(constants + WEIGHTS) + o * in_c;
    int sum = 0;
    int c = 0;
    for (; c <= in_c - 8; c += 8) {
      UNROLLED (j, 8) sum += (int)source[c + j] * (int)weight[c + j];
    }
    for (; c < in_c; c++) sum += (int)source[c] * (int)weight[c];
    int zero = ((global const int*)(arena + ROW_ZEROS))[row];
    float value = HYBRID_SUM(convert_float, convert_int, sum, weight_sums[o], zero);
    float row_scale = ((global const float*)(arena + ROW_SCALES))[row];
    global const float* channel = (global const float*)(weight_sums + out_c) + o;
    ((global float*)(arena + OUTPUT))[element] =
        HYBRID_RESULT(value, row_scale, channel[0], channel[out_c], low, high);
  }
}

KERNEL(fully_connected_hybrid)
#endif

#if USES_FULLY_CONNECTED_VECTOR_HYBRID
#define INTS JOIN(int, LANES)
#define FLOATS JOIN(float, LANES)
#define LOAD JOIN(vload, LANES)
#define TO_FLOATS JOIN(convert_float, LANES)
#define TO_INTS JOIN(convert_int, LANES)

// The same for LANES channels of TILE_W rows at a time: weights are 16 bit, in pairs along the
// input. The last block of channels, or of rows, overlaps the one before it and writes the same
// values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_vector_hybrid) {
  int out_c = OUT_C;
  int pitch = PITCH;
  FLOAT_BOUNDS(FLOATS);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    int block = item / ROW_BLOCKS;
    int row = min((item - block * ROW_BLOCKS) * TILE_W, ROWS - TILE_W);
    int first = min(block * LANES, out_c - LANES);
    global const char* source = (global const char*)(arena + INPUT) + row * pitch;
    global const int* weight = (global const int*)(constants + WEIGHTS) + block * (PAIRS * LANES);
    INTS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = 0;
    for (int k = 0; k < PAIRS; k++) {
      INTS pair = LOAD(k, weight);
      INTS even = (pair << 16) >> 16;
      INTS odd = pair >> 16;
      UNROLLED (p, TILE_W)
        sum[p] += even * (int)source[p * pitch + 2 * k] + odd * (int)source[p * pitch + 2 * k + 1];
    }
    global const int* channel = (global const int*)(constants + CHANNELS) + first;
    INTS weight_sum = LOAD(0, channel);
    FLOATS scale = LOAD_FLOATS(0, (global const float*)channel + out_c);
    FLOATS bias = LOAD_FLOATS(0, (global const float*)channel + 2 * out_c);
    UNROLLED (p, TILE_W) {
      INTS zero = ((global const int*)(arena + ROW_ZEROS))[row + p];
      FLOATS row_scale = ((global const float*)(arena + ROW_SCALES))[row + p];
      FLOATS value = HYBRID_SUM(TO_FLOATS, TO_INTS, sum[p], weight_sum, zero);
      FLOATS result = HYBRID_RESULT(value, row_scale, scale, bias, low, high);
      STORE_FLOATS(result, 0, (global float*)(arena + OUTPUT) + (row + p) * out_c + first);
    }
  }
}

KERNEL(fully_connected_vector_hybrid)
#endif

#if USES_FULLY_CONNECTED_BLOCKS_HYBRID
// output[row,o] = (sum over blocks b, one after the other, of float(sum over i in b of
// values[row,i] * weights[o,i]) * scales[o,b] - zeros[row] * offsets[o]) * row_scales[row] +
// bias[o]: rows as quantize_row.cl leaves them, weights of 4 bits, the first of two low   OI
// With shifts of the blocks' weights: plus the sum over b of sums[row,b] * shifts[o,b].
// Source: fully_connected.cc of ai-edge-litert
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(rows*out_c / TILE_ITEMS)
TILE(fully_connected_blocks_hybrid) {
  int out_c = OUT_C;
  int blocks = BLOCKS;
  int block_pairs = BLOCK_PAIRS;
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    int row = element / out_c;
    int o = element - row * out_c;
    global const char* source = (global const char*)(arena + INPUT) + row * PITCH;
    global const char* weight =
        (global const char*)(constants + WEIGHTS) + o * (blocks * block_pairs);
    global const float* scale = (global const float*)(constants + SCALES) + o * blocks;
#if HAS_SHIFTS
    global const float* sums = (global const float*)(arena + SUMS) + row * blocks;
    global const float* shifts = (global const float*)(constants + SHIFTS) + o * blocks;
    float more = 0.0f;
#endif
    float total = 0.0f;
    for (int block = 0; block < blocks; block++) {
      int sum = 0;
      for (int k = 0; k < block_pairs; k++) {
        int pair = weight[k];
        sum += ((pair << 28) >> 28) * (int)source[2 * k] + (pair >> 4) * (int)source[2 * k + 1];
      }
      total = HYBRID_PLUS(total, (float)sum, scale[block]);
#if HAS_SHIFTS
      more += sums[block] * shifts[block];
#endif
      weight += block_pairs;
      source += 2 * block_pairs;
    }
    global const float* channel = (global const float*)(constants + CHANNELS) + o;
    float zero = (float)((global const int*)(arena + ROW_ZEROS))[row];
    float row_scale = ((global const float*)(arena + ROW_SCALES))[row];
    float result = HYBRID_MINUS(total, zero, channel[0]) * row_scale + channel[out_c];
#if HAS_SHIFTS
    result += more;
#endif
    ((global float*)(arena + OUTPUT))[element] = result;
  }
}

KERNEL(fully_connected_blocks_hybrid)
#endif

#if USES_FULLY_CONNECTED_VECTOR_BLOCKS_HYBRID
#define INTS JOIN(int, LANES)
#define FLOATS JOIN(float, LANES)
#define TO_FLOATS JOIN(convert_float, LANES)
#define TO_INTS JOIN(convert_int, LANES)

// The same for LANES channels of TILE_W rows at a time: their pairs of weights, and their scales,
// lie side by side. The last block of channels, or of rows, overlaps the one before it and writes
// the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_vector_blocks_hybrid) {
  int out_c = OUT_C;
  int pitch = PITCH;
  int blocks = BLOCKS;
  int block_pairs = BLOCK_PAIRS;
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    int channels = item / ROW_BLOCKS;
    int row = min((item - channels * ROW_BLOCKS) * TILE_W, ROWS - TILE_W);
    int first = min(channels * LANES, out_c - LANES);
    global const char* source = (global const char*)(arena + INPUT) + row * pitch;
    global const char* weight =
        (global const char*)(constants + WEIGHTS) + channels * (blocks * block_pairs * LANES);
    global const float* scales =
        (global const float*)(constants + SCALES) + channels * (blocks * LANES);
#if HAS_SHIFTS
    global const float* sums = (global const float*)(arena + SUMS) + row * blocks;
    global const float* shifts =
        (global const float*)(constants + SHIFTS) + channels * (blocks * LANES);
    FLOATS more[TILE_W];
    UNROLLED (p, TILE_W) more[p] = 0.0f;
#endif
    FLOATS total[TILE_W];
    UNROLLED (p, TILE_W) total[p] = 0.0f;
    for (int block = 0; block < blocks; block++) {
      INTS sum[TILE_W];
      UNROLLED (p, TILE_W) sum[p] = 0;
      for (int k = 0; k < block_pairs; k++) {
        INTS pair = TO_INTS(JOIN(vload, LANES)(k, weight));
        INTS even = (pair << 28) >> 28;
        INTS odd = pair >> 4;
        UNROLLED (p, TILE_W) {
          global const char* both = source + p * pitch + 2 * k;
          sum[p] += even * (int)both[0] + odd * (int)both[1];
        }
      }
      FLOATS scale = LOAD_FLOATS(block, scales);
      UNROLLED (p, TILE_W) total[p] = HYBRID_PLUS(total[p], TO_FLOATS(sum[p]), scale);
#if HAS_SHIFTS
      FLOATS shift = LOAD_FLOATS(block, shifts);
      UNROLLED (p, TILE_W) more[p] += shift * sums[p * blocks + block];
#endif
      weight += block_pairs * LANES;
      source += 2 * block_pairs;
    }
    global const float* channel = (global const float*)(constants + CHANNELS) + first;
    FLOATS offset = LOAD_FLOATS(0, channel);
    FLOATS bias = LOAD_FLOATS(0, channel + out_c);
    UNROLLED (p, TILE_W) {
      FLOATS zero = (float)((global const int*)(arena + ROW_ZEROS))[row + p];
      float row_scale = ((global const float*)(arena + ROW_SCALES))[row + p];
      FLOATS result = HYBRID_MINUS(total[p], zero, offset) * row_scale + bias;
#if HAS_SHIFTS
      result += more[p];
#endif
      STORE_FLOATS(result, 0, (global float*)(arena + OUTPUT) + (row + p) * out_c + first);
    }
  }
}

KERNEL(fully_connected_vector_blocks_hybrid)
#endif
