// SPDX-License-Identifier: Apache-2.0
// Macros: see fully_connected_blocks.clh; those of hybrid.clh and of neon.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define IS_SIGNED 1
#define ARM_TARGET "dotprod"
#include "neon.clh"
#include "hybrid.clh"

INLINE int4 LOCAL(add_bytes)(int4 parts, int4 bytes, int4 input) {
  ADD_DOT(parts, bytes, input);
  return parts;
}

#define PARTS int4
#define ADD_BYTES(parts, bytes, input) LOCAL(add_bytes)(parts, bytes, input)
#define SUM_OF_PARTS(parts) (parts)
#define SCALE ushort  // a half
#define LOAD_SCALES(address) LOCAL(of_halves)(*(const NEAR_INT2*)(address))
#include "fully_connected_blocks.clh"

// fully_connected_blocks_hybrid for blocks of rows and channels. The last block of channels, or of
// rows, overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_blocks_dotprod_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run_blocks)(arena, constants, params, item);
}

KERNEL(fully_connected_blocks_dotprod_hybrid)
