// SPDX-License-Identifier: Apache-2.0
// Macros: see fully_connected_x86.clh and fully_connected_blocks.clh. The instruction
// multiplies uint8 by int8. So with int8 weights a row's values are 128 more than TFLite's, and
// int4 weights are 8 more.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "hybrid.clh"
#define X86_LANES 16
#define IS_SIGNED 1
#include "requantize_x86.clh"

#if USES_FULLY_CONNECTED_VNNI_HYBRID
#define VALUE uchar
#define VALUES 4
#define MOVED 128
#define WEIGHTS_OF_LANES INTS
#define ADD_PRODUCTS(sum, input, weights) ((INTS)__builtin_ia32_vpdpbusd512(sum, input, weights))
#include "fully_connected_x86.clh"

// fully_connected_hybrid for blocks of rows and channels. The last block of channels, or of rows,
// overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_vnni_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run)(arena, constants, params, item);
}

KERNEL(fully_connected_vnni_hybrid)
#endif

#if USES_FULLY_CONNECTED_BLOCKS_VNNI_HYBRID
#define ADD_BYTES(parts, bytes, input) ((INTS)__builtin_ia32_vpdpbusd512(parts, bytes, input))
#include "scales_x86.clh"
#include "fully_connected_blocks.clh"

// fully_connected_blocks_hybrid for blocks of rows and channels. The last block of channels, or of
// rows, overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_blocks_vnni_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run_blocks)(arena, constants, params, item);
}

KERNEL(fully_connected_blocks_vnni_hybrid)
#endif
