// SPDX-License-Identifier: Apache-2.0
// Macros: TILE_W rows x 2 vectors of 8 channels are a block; those of hybrid.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "hybrid.clh"
#define X86_LANES 8
#define IS_SIGNED 1
#include "requantize_x86.clh"

#define VECTORS 2
#define BLOCK (VECTORS * X86_LANES)
#define PAIRS_OF(input, weight) ((INTS)X86(pmaddwd)((SHORTS)(input), (SHORTS)(weight)))
typedef float LOCAL(near_floats) __attribute__((vector_size(4 * X86_LANES), aligned(4)));
#define NEAR_FLOATS LOCAL(near_floats)
#define TO_FLOATS(x) __builtin_convertvector(x, FLOATS)
#define TO_INTS(x) __builtin_convertvector(x, INTS)

INLINE FLOATS LOCAL(spread_float)(float x) { return (FLOATS){x, x, x, x, x, x, x, x}; }

// A block: TILE_W rows of shorts times the channels' weights, two of each a step.
OUTLINE void LOCAL(run)(global uchar* arena, global const uchar* constants, PARAMS params,
                        int item) {
  int out_c = OUT_C, pitch = PITCH, pairs = PAIRS, row_blocks = ROW_BLOCKS;
  int block = item / row_blocks;
  int row = EACH_LEAST((item - block * row_blocks) * TILE_W, ROWS - TILE_W);
  int first = EACH_LEAST(block * BLOCK, out_c - BLOCK);
  const short* input = PLAIN_POINTER(const short, arena + INPUT) + row * pitch;
  const INTS* weight = PLAIN_POINTER(const INTS, constants + WEIGHTS) + block * pairs * VECTORS;
  const int* channel = PLAIN_POINTER(const int, constants + CHANNELS) + first;
  const int* zeros = PLAIN_POINTER(const int, arena + ROW_ZEROS) + row;
  const float* scales = PLAIN_POINTER(const float, arena + ROW_SCALES) + row;
  float* output = PLAIN_POINTER(float, arena + OUTPUT) + row * out_c + first;
  INTS sum[TILE_W][VECTORS];
  UNROLLED (p, TILE_W)
    UNROLLED (v, VECTORS) sum[p][v] = LOCAL(spread)(0);
  for (int k = 0; k < pairs; k++) {
    UNROLLED (p, TILE_W) {
      INTS pair = LOCAL(spread)(*(const ANY_INT*)(input + p * pitch + 2 * k));
      UNROLLED (v, VECTORS) sum[p][v] += PAIRS_OF(pair, weight[v]);
    }
    weight += VECTORS;
  }
  FLOATS low = LOCAL(spread_float)(as_float(OUTPUT_MIN));
  FLOATS high = LOCAL(spread_float)(as_float(OUTPUT_MAX));
  UNROLLED (v, VECTORS) {
    const int* own = channel + v * X86_LANES;
    INTS weight_sum = *(const NEAR_INTS*)own;
    FLOATS scale = (FLOATS) * (const NEAR_INTS*)(own + out_c);
    FLOATS bias = (FLOATS) * (const NEAR_INTS*)(own + 2 * out_c);
    UNROLLED (p, TILE_W) {
      INTS zero = LOCAL(spread)(zeros[p]);
      FLOATS value = HYBRID_SUM(TO_FLOATS, TO_INTS, sum[p][v], weight_sum, zero);
      FLOATS row_scale = LOCAL(spread_float)(scales[p]);
      FLOATS result = HYBRID_RESULT(value, row_scale, scale, bias, low, high);
      *(NEAR_FLOATS*)(output + p * out_c + v * X86_LANES) = result;
    }
  }
}

// fully_connected_hybrid for blocks of rows and channels; rows and weights are 16 bit, in
// pairs along the input. The last block of channels, or of rows, overlaps the one before it and
// writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_avx2_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run)(arena, constants, params, item);
}

KERNEL(fully_connected_avx2_hybrid)
