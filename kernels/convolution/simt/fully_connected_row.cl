// SPDX-License-Identifier: Apache-2.0
// Few rows of quantised floats times weights: a work-group has one row and the weights of CHANNELS
// channels, which its work-items share along the row.
// Macros: one of dot.clh, whose bytes are signed on both sides; those of hybrid.clh; HAS_SHIFTS,
// see fully_connected.cl.
#pragma OPENCL FP_CONTRACT OFF
#define ALONE 0
#include "kernel.clh"
#include "float.clh"
#if USES_FULLY_CONNECTED_ROW_HYBRID
#define HYBRID_WIDTH 4
#else
#define HYBRID_WIDTH
#endif
#include "hybrid.clh"
#include "dot.clh"
#include "group_row.clh"

#define CHANNELS 4

#if USES_FULLY_CONNECTED_ROW_HYBRID
#define TO_FLOATS convert_float4
#define TO_INTS convert_int4

// The same as fully_connected_hybrid. Rows of weights are filled up with zeros to whole words. The
// last block of channels overlaps the one before it and writes the same values again.
// SCRATCH_INTS: CHANNELS a work-item for what it found.
// tile: a row and CHANNELS channels, channels first; tiles: rows * ceil(out_c / CHANNELS)
TILE(fully_connected_row_hybrid) {
  int items = STRIDE;
  int out_c = OUT_C;
  int words = WORDS;
  int blocks = CHANNEL_BLOCKS;
  int row = tile / blocks;
  int first = min((tile - row * blocks) * CHANNELS, out_c - CHANNELS);
  global const uint* input = (global const uint*)(arena + INPUT) + row * (PITCH / 4);
  global const uint* weight = (global const uint*)(constants + WEIGHTS) + first * words;
  int sums[CHANNELS];
  UNROLLED (c, CHANNELS) sums[c] = 0;
  for (int k = FIRST; k < words; k += items) {
    uint value = input[k];
    UNROLLED (c, CHANNELS) sums[c] = DOT4(value, weight[c * words + k], sums[c]);
  }
  UNROLLED (c, CHANNELS) scratch[FIRST * CHANNELS + c] = sums[c];
  MEET();
  if (FIRST < SHARERS) {
    for (int i = FIRST + SHARERS; i < items; i += SHARERS) {
      UNROLLED (c, CHANNELS) scratch[FIRST * CHANNELS + c] += scratch[i * CHANNELS + c];
    }
  }
  MEET();
  if (FIRST == 0) {
    int4 sum = 0;
    for (int i = 0; i < min(items, SHARERS); i++) sum += vload4(i, scratch);
    global const int* channel = (global const int*)(constants + CHANNEL_ROWS) + first;
    int4 weight_sum = vload4(0, channel);
    float4 scale = vload4(0, (global const float*)channel + out_c);
    float4 bias = vload4(0, (global const float*)channel + 2 * out_c);
    int4 zero = ((global const int*)(arena + ROW_ZEROS))[row];
    float4 row_scale = ((global const float*)(arena + ROW_SCALES))[row];
    float4 low = as_float(OUTPUT_MIN);
    float4 high = as_float(OUTPUT_MAX);
    float4 value = HYBRID_SUM(TO_FLOATS, TO_INTS, sum, weight_sum, zero);
    float4 result = HYBRID_RESULT(value, row_scale, scale, bias, low, high);
    vstore4(result, 0, (global float*)(arena + OUTPUT) + row * out_c + first);
  }
  MEET();
}

KERNEL(fully_connected_row_hybrid)
#endif

#if USES_FULLY_CONNECTED_ROW_BLOCKS_HYBRID
// A block's sum is scaled by the work-item that has it, unless that and adding are rounded once.
#if ROUNDS_ONCE
#define OF_BLOCK(sum, at) (sum)
#define WITH_BLOCK(total, sum, at) HYBRID_PLUS(total, sum, scales[at])
#else
#define OF_BLOCK(sum, at) ((sum) * scales[at])
#define WITH_BLOCK(total, scaled, at) ((total) + (scaled))
#endif

// The same as fully_connected_blocks_hybrid: a work-item has whole blocks, whose floats one of them
// adds up in TFLite's order. A weight is 8 more; a word has four of them low, the next four high.
// SCRATCH_INTS: CHANNELS a block for its floats.
// tile: a row and CHANNELS channels, channels first; tiles: rows * ceil(out_c / CHANNELS)
TILE(fully_connected_row_blocks_hybrid) {
  local float* found = (local float*)scratch;
  int items = STRIDE;
  int out_c = OUT_C;
  int blocks = BLOCKS;
  int groups = GROUPS;
  int channel_blocks = CHANNEL_BLOCKS;
  int row = tile / channel_blocks;
  int first = min((tile - row * channel_blocks) * CHANNELS, out_c - CHANNELS);
  global const uint* input = (global const uint*)(arena + INPUT) + row * (PITCH / 4);
  global const uint* weights =
      (global const uint*)(constants + WEIGHTS) + first * blocks * groups * 4;
  global const float* scales = (global const float*)(constants + SCALES) + first * blocks;
  for (int block = FIRST; block < blocks; block += items) {
    int sums[CHANNELS];
    UNROLLED (c, CHANNELS) sums[c] = 0;
    int too_much = 0;
    // Half of a group at a time, so that few registers hold it.
    for (int at = 2 * block * groups; at < 2 * (block + 1) * groups; at++) {
      uint4 value = vload4(at, input);
      too_much = DOT4(value.x, 0x08080808u, DOT4(value.y, 0x08080808u, too_much));
      too_much = DOT4(value.z, 0x08080808u, DOT4(value.w, 0x08080808u, too_much));
      UNROLLED (c, CHANNELS) {
        uint2 pairs = vload2(2 * c * blocks * groups + at, weights);
        uint2 one = pairs & 0x0f0f0f0fu;
        uint2 two = (pairs >> 4) & 0x0f0f0f0fu;
        sums[c] = DOT4(value.x, one.x, DOT4(value.y, two.x, sums[c]));
        sums[c] = DOT4(value.z, one.y, DOT4(value.w, two.y, sums[c]));
      }
    }
    UNROLLED (c, CHANNELS)
      found[block * CHANNELS + c] = OF_BLOCK((float)(sums[c] - too_much), c * blocks + block);
  }
  MEET();
  for (int c = FIRST; c < CHANNELS; c += items) {
    float total = 0.0f;
    for (int block = 0; block < blocks; block++)
      total = WITH_BLOCK(total, found[block * CHANNELS + c], c * blocks + block);
    global const float* channel = (global const float*)(constants + CHANNEL_ROWS) + first + c;
    float zero = (float)((global const int*)(arena + ROW_ZEROS))[row];
    float row_scale = ((global const float*)(arena + ROW_SCALES))[row];
    float result = HYBRID_MINUS(total, zero, channel[0]) * row_scale + channel[out_c];
#if HAS_SHIFTS
    global const float* sums = (global const float*)(arena + SUMS) + row * blocks;
    global const float* shifts = (global const float*)(constants + SHIFTS) + (first + c) * blocks;
    float more = 0.0f;
    for (int block = 0; block < blocks; block++) more += sums[block] * shifts[block];
    result += more;
#endif
    ((global float*)(arena + OUTPUT))[row * out_c + first + c] = result;
  }
  MEET();
}

KERNEL(fully_connected_row_blocks_hybrid)
#endif
