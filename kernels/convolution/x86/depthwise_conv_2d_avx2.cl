// SPDX-License-Identifier: Apache-2.0
// Macros: those of depthwise_conv_2d_vnni.cl, with 16 for BLOCK_C and no extras: weights and inputs
// are 16 bit.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define X86_LANES 8
#include "requantize_x86.clh"

#define VECTORS 2
#define TAPS 2
#define DOT(sum, input, weight) ((sum) + (INTS)X86(pmaddwd)((SHORTS)(input), (SHORTS)(weight)))

// 16 bytes, at any address.
#if IS_SIGNED
typedef char LOCAL(some_bytes) __attribute__((vector_size(16), aligned(1)));
#else
typedef uchar LOCAL(some_bytes) __attribute__((vector_size(16), aligned(1)));
#endif
#define SOME_BYTES LOCAL(some_bytes)

INLINE void LOCAL(join)(const uchar* const* row, INTS* column) {
  SHORTS a = __builtin_convertvector(*(const SOME_BYTES*)row[0], SHORTS);
  SHORTS b = __builtin_convertvector(*(const SOME_BYTES*)row[1], SHORTS);
  // The unpack instructions, which take half of every 128 bits of both operands in turn.
  column[0] =
      (INTS)__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
  column[1] = (INTS)__builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14,
                                            30, 15, 31);
}

INLINE void LOCAL(store)(const INTS* packed, const INTS* range, uchar* to) {
  SHORTS sums = (SHORTS)packed[0];
#if !IS_PLAIN
  sums = ADD_SATURATED(sums, (SHORTS)range[0]);
#endif
  INTS bytes = (INTS)UCHARS_OF(sums, sums);
  bytes = __builtin_shufflevector(bytes, bytes, 0, 1, 4, 5, 0, 1, 4, 5);
#if !IS_PLAIN
  bytes = (INTS)EACH_MOST((UCHARS)bytes, (UCHARS)range[1]);
  bytes = (INTS)EACH_LEAST((UCHARS)bytes, (UCHARS)range[2]);
#endif
#if IS_SIGNED
  bytes ^= LOCAL(spread)(0x80808080);
#endif
  *(SOME_BYTES*)to = (SOME_BYTES)__builtin_shufflevector(bytes, bytes, 0, 1, 2, 3);
}

#include "depthwise_conv_2d_x86.clh"

// output as in depthwise_conv_2d.cl, for a depth multiplier of 1: see depthwise_conv_2d_x86.clh.
// tile: TILE_ITEMS chunks of ROWS output rows x CHUNK_W pixels x BLOCK_C channels, channels first;
// tiles: ceil(chunks / TILE_ITEMS)
TILE(depthwise_conv_2d_avx2_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(depthwise_conv_2d_avx2_quant8)
