// SPDX-License-Identifier: Apache-2.0
// Macros: see fully_connected_x86.clh and fully_connected_blocks.clh. Of int8 weights rows are
// 16 bit, and weights become so as they are loaded: products of bytes would be summed in 16 bits,
// which are too few. Of int4 weights, which are 0 to 15 here, 32 such products fit.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "hybrid.clh"
#define X86_LANES 8
#define IS_SIGNED 1
#include "requantize_x86.clh"

#if USES_FULLY_CONNECTED_AVX2_HYBRID
#define VALUE short
#define VALUES 2
#define MOVED 0
typedef char LOCAL(pairs) __attribute__((vector_size(2 * X86_LANES)));
#define WEIGHTS_OF_LANES LOCAL(pairs)
#define ADD_PRODUCTS(sum, input, weights) \
  ((sum) + (INTS)X86(pmaddwd)((SHORTS)(input), __builtin_convertvector(weights, SHORTS)))
#include "fully_connected_x86.clh"

// fully_connected_hybrid for blocks of rows and channels. The last block of channels, or of rows,
// overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_avx2_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run)(arena, constants, params, item);
}

KERNEL(fully_connected_avx2_hybrid)
#endif

#if USES_FULLY_CONNECTED_BLOCKS_AVX2_HYBRID
#define PARTS SHORTS
// The empty statement keeps the order of sums: others leave too few registers.
INLINE SHORTS LOCAL(add_bytes)(SHORTS parts, INTS bytes, INTS input) {
  parts += (SHORTS)X86(pmaddubsw)((CHARS)bytes, (CHARS)input);
  __asm__("" : "+x"(parts));
  return parts;
}
#define ADD_BYTES LOCAL(add_bytes)
#define SUM_OF_PARTS(parts) ((INTS)X86(pmaddwd)(parts, (SHORTS)LOCAL(spread)(0x00010001)))
#include "scales_x86.clh"
#include "fully_connected_blocks.clh"

// fully_connected_blocks_hybrid for blocks of rows and channels. The last block of channels, or of
// rows, overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks, rows first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(fully_connected_blocks_avx2_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) LOCAL(run_blocks)(arena, constants, params, item);
}

KERNEL(fully_connected_blocks_avx2_hybrid)
#endif
