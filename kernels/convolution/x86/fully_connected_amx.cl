// SPDX-License-Identifier: Apache-2.0
// Macros: see fully_connected_blocks.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "hybrid.clh"
#define IS_SIGNED 1
#include "amx.clh"

// sum[p][v] = a block's products. Of eight weights of a channel four are the low halves of bytes,
// and four the high ones, each 8 more: two rows of a register.
INLINE void LOCAL(sum_block)(INTS (*sum)[VECTORS], const char* input, int pitch, int groups,
                             const INTS* weight, PARAMS params) {
  INTS low_bits = LOCAL(spread)(0x0f0f0f0f);
  CHARS more = (CHARS)LOCAL(spread)(0x08080808);
  CHARS weights[8][VECTORS];
  CLEAR_SUMS;
  for (int group = 0; group < groups; group++) {
    UNROLLED (k, 4) {
      UNROLLED (v, VECTORS) {
        weights[2 * k][v] = (CHARS)(weight[v] & low_bits) - more;
        weights[2 * k + 1][v] = (CHARS)((weight[v] >> 4) & low_bits) - more;
      }
      weight += VECTORS;
    }
    ADD_LOAD(input, pitch, REGISTER_ROWS * pitch, (const char*)weights, 128);
    input += 32;
  }
  KEEP_SUMS(sum[0]);
}

#include "scales_x86.clh"
#include "fully_connected_blocks.clh"

DEFINE_IN_TILES(run_blocks)

// fully_connected_blocks_hybrid for blocks of rows and channels. The last block of channels, or of
// rows, overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_blocks_amx_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run_blocks_in_tiles)(arena, constants, params, item);
}

KERNEL(fully_connected_blocks_amx_hybrid)
