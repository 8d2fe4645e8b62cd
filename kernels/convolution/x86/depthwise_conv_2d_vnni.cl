// SPDX-License-Identifier: Apache-2.0
// Macros: BLOCK_C channels at once, 64 or 32; IS_SIGNED, 1 for int8 activations; HAS_EXTRA, 1 where
// a weight less its zero point is beyond int8; IS_PLAIN, 1 where the output's zero point and bounds
// are the ends of its type; TAPS_W, STEP_W and GAP_W, the kernel's width, stride and dilation in a
// row; TILE_W output pixels at once; COLUMNS, how many may be gathered;
// ROWS_A_BLOCK, see depthwise_conv_2d_x86.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#define X86_LANES (BLOCK_C / 4)
#define X86_TARGET "avx512vnni,avx512vl,avx512f,avx512bw,avx512dq"
#include "requantize_x86.clh"

#define VECTORS 4
#define TAPS 4
#define DOT(sum, input, weight) ((INTS)X86(vpdpbusd)(sum, input, weight))

// Lanes of the unpack instructions, which take half of every 128 bits of both operands in turn.
#define PAIR(i, size) (i), (i) + (size)
#define PAIRS_4(i, size) \
  PAIR(i, size), PAIR((i) + 1, size), PAIR((i) + 2, size), PAIR((i) + 3, size)
#define BYTE_PAIRS(i) PAIRS_4(i, BLOCK_C), PAIRS_4((i) + 4, BLOCK_C)
#define SHORT_PAIRS(i) PAIRS_4(i, BLOCK_C / 2)
#if BLOCK_C == 64
#define EACH_PIECE(pairs, i, size) \
  pairs(i), pairs((i) + (size)), pairs((i) + 2 * (size)), pairs((i) + 3 * (size))
#else
#define EACH_PIECE(pairs, i, size) pairs(i), pairs((i) + (size))
#endif

INLINE INTS LOCAL(load)(const uchar* from) {
  INTS bytes = *(const NEAR_INTS*)from;
#if IS_SIGNED
  bytes ^= LOCAL(spread)(0x80808080);  // plus 128: DOT takes unsigned bytes
#endif
  return bytes;
}

INLINE void LOCAL(join)(const uchar* const* row, INTS* column) {
  CHARS a = (CHARS)LOCAL(load)(row[0]);
  CHARS b = (CHARS)LOCAL(load)(row[1]);
  CHARS c = (CHARS)LOCAL(load)(row[2]);
  CHARS d = (CHARS)LOCAL(load)(row[3]);
  SHORTS ab0 = (SHORTS)__builtin_shufflevector(a, b, EACH_PIECE(BYTE_PAIRS, 0, 16));
  SHORTS ab1 = (SHORTS)__builtin_shufflevector(a, b, EACH_PIECE(BYTE_PAIRS, 8, 16));
  SHORTS cd0 = (SHORTS)__builtin_shufflevector(c, d, EACH_PIECE(BYTE_PAIRS, 0, 16));
  SHORTS cd1 = (SHORTS)__builtin_shufflevector(c, d, EACH_PIECE(BYTE_PAIRS, 8, 16));
  column[0] = (INTS)__builtin_shufflevector(ab0, cd0, EACH_PIECE(SHORT_PAIRS, 0, 8));
  column[1] = (INTS)__builtin_shufflevector(ab0, cd0, EACH_PIECE(SHORT_PAIRS, 4, 8));
  column[2] = (INTS)__builtin_shufflevector(ab1, cd1, EACH_PIECE(SHORT_PAIRS, 0, 8));
  column[3] = (INTS)__builtin_shufflevector(ab1, cd1, EACH_PIECE(SHORT_PAIRS, 4, 8));
}

INLINE void LOCAL(store)(const INTS* packed, const INTS* range, uchar* to) {
#if IS_PLAIN
  UCHARS bytes = UCHARS_OF((SHORTS)packed[0], (SHORTS)packed[1]);
#else
  SHORTS low = ADD_SATURATED((SHORTS)packed[0], (SHORTS)range[0]);
  SHORTS high = ADD_SATURATED((SHORTS)packed[1], (SHORTS)range[0]);
  UCHARS bytes = EACH_MOST(UCHARS_OF(low, high), (UCHARS)range[1]);
  bytes = EACH_LEAST(bytes, (UCHARS)range[2]);
#endif
#if IS_SIGNED
  *(NEAR_INTS*)to = (INTS)bytes ^ LOCAL(spread)(0x80808080);
#else
  *(NEAR_INTS*)to = (INTS)bytes;
#endif
}

#include "depthwise_conv_2d_x86.clh"

// output as in depthwise_conv_2d.cl, for a depth multiplier of 1: see depthwise_conv_2d_x86.clh.
// tile: TILE_ITEMS chunks of ROWS output rows x CHUNK_W pixels x BLOCK_C channels, channels first;
// tiles: ceil(chunks / TILE_ITEMS)
TILE(depthwise_conv_2d_vnni_quant8) { LOCAL(run)(arena, constants, params, tile); }

KERNEL(depthwise_conv_2d_vnni_quant8)
