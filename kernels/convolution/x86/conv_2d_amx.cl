// SPDX-License-Identifier: Apache-2.0
// Macros: IS_SIGNED, 1 for int8 activations, 0 for uint8; VECTORS, 2, of 16 channels a block;
// PANEL_BYTES for a block's windows; ROWS_A_BLOCK and FIXED, see conv_2d_x86.clh; of hybrid ones
// those of hybrid.clh. Hybrid ones take quantised floats as int8.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "amx.clh"

#define ALWAYS_GATHERS 0
#define VALUE_BYTES 1
#include "conv_2d_avx512.clh"

// held[p][v] = bias, or 0, + the sum over a window of bytes times weights, for a block.
INLINE void LOCAL(multiply)(const uchar* rows, int pitch, int jump, const uchar* weights,
                            const INTS* bias, INTS* held, PARAMS params) {
  int row_bytes = 4 * ROW_STEPS, window_rows = ROWS, below = REGISTER_ROWS * pitch;
  if (bias) {
    LOAD("tmm0", bias, 0);
    LOAD("tmm1", bias + 1, 0);
    LOAD("tmm2", bias, 0);
    LOAD("tmm3", bias + 1, 0);
  } else {
    CLEAR_SUMS;
  }
  for (int y = 0; y < window_rows; y++) {
    for (int k = 0; k < row_bytes; k += 64) {
      ADD_LOAD(rows, pitch, below, weights, 128);
      rows += 64;
      weights += 2048;
    }
    rows += jump;
  }
  KEEP_SUMS(held);
}

#if USES_CONV_2D_AMX_QUANT8
#include "conv_2d_x86.clh"

#if !IS_SIGNED
// corrections[p], the same in all lanes = the sum of a window's bytes times what the weights' zero
// point is above 128: int8 weights, 128 less than as stored, make that too much. RAMP has that
// factor as weights of one vector of channels.
INLINE void LOCAL(correct)(const uchar* rows, int pitch, int jump, global const uchar* constants,
                           PARAMS params, INTS* corrections) {
  const uchar* ramp = PLAIN_POINTER(const uchar, constants + RAMP);
  int row_bytes = 4 * ROW_STEPS, window_rows = ROWS, below = REGISTER_ROWS * pitch;
  CLEAR("tmm0");
  CLEAR("tmm2");
  for (int y = 0; y < window_rows; y++) {
    for (int k = 0; k < row_bytes; k += 64) {
      LOAD("tmm6", ramp, 64);
      LOAD("tmm4", rows, pitch);
      ADD_PRODUCTS("tmm0", "tmm4", "tmm6");
      LOAD("tmm5", rows + below, pitch);
      ADD_PRODUCTS("tmm2", "tmm5", "tmm6");
      rows += 64;
      ramp += 1024;
    }
    rows += jump;
  }
  KEEP("tmm0", corrections, 64);
  KEEP("tmm2", corrections + REGISTER_ROWS, 64);
}
#endif

// A tile: for each of its blocks of pixels, all of its blocks of channels.
OUTLINE void LOCAL(run)(global uchar* arena, global const uchar* constants, PARAMS params,
                        int tile) {
  const uchar* input = PLAIN_POINTER(const uchar, arena + INPUT);
  uchar* output = PLAIN_POINTER(uchar, arena + OUTPUT);
  const INTS* channels = PLAIN_POINTER(const INTS, constants + CHANNELS);
  const uchar* weights = PLAIN_POINTER(const uchar, constants + WEIGHTS);
  const uchar* zeros = PLAIN_POINTER(const uchar, constants + ZEROS);
  uchar panel[PANEL_BYTES] __attribute__((aligned(64)));
  INTS held[MOST_ROWS * VECTORS], corrections[MOST_ROWS];
  int last_block = LAST_BLOCK, first_channels = FIRST_CHANNELS, last_channels = LAST_CHANNELS;
  int out_c = OUT_C, is_centred = IS_CENTRED, is_corrected = IS_CORRECTED, tile_w = TILE_W;
  int block_bytes = ROWS * ROW_STEPS * 4 * VECTORS * X86_LANES;
  for (int block = FIRST_BLOCK; block < last_block; block++) {
    int pixel = EACH_LEAST(block * tile_w, PIXELS - tile_w);
    int pitch, jump;
    const uchar* rows = LOCAL(windows)(input, zeros, params, pixel, panel, &pitch, &jump);
#if !IS_SIGNED
    if (is_corrected) LOCAL(correct)(rows, pitch, jump, constants, params, corrections);
#endif
    for (int c = first_channels; c < last_channels; c++) {
      const INTS* channel = channels + c * ROWS_A_BLOCK;
      LOCAL(multiply)(rows, pitch, jump, weights + c * block_bytes, &BIAS(0), held, params);
      uchar* to = output + pixel * out_c + c * VECTORS * X86_LANES;
      int size = out_c - c * VECTORS * X86_LANES;
      for (int strip = 0; strip < tile_w; strip += STRIP_W, to += STRIP_W * out_c) {
        INTS sum[STRIP_W][VECTORS];
        EACH_SUM(sum[p][v] = held[(strip + p) * VECTORS + v])
#if !IS_SIGNED
        if (is_corrected) EACH_SUM(sum[p][v] -= corrections[strip + p])
#endif
        LOCAL(finish)(sum, channel, to, size, is_centred, params);
      }
    }
  }
}

DEFINE_IN_TILES(run)

// output[n,y,x,o] = sum over the window of (input - zero) * (weights[o,ky,kx,i] - zero), plus bias,
// requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_amx_quant8) { LOCAL(run_in_tiles)(arena, constants, params, tile); }

KERNEL(conv_2d_amx_quant8)
#endif

#if USES_CONV_2D_AMX_HYBRID
// sum[p][v] = a window's bytes times weights.
INLINE void LOCAL(add_products)(INTS (*sum)[VECTORS], const uchar* rows, int pitch, int jump,
                                global const uchar* constants, PARAMS params, int c) {
  const uchar* weights = PLAIN_POINTER(const uchar, constants + WEIGHTS);
  int block_bytes = ROWS * ROW_STEPS * 4 * VECTORS * X86_LANES;
  LOCAL(multiply)(rows, pitch, jump, weights + c * block_bytes, 0, sum[0], params);
}

#include "hybrid.clh"
#define MOVED 0
#include "conv_2d_panel_hybrid.clh"

DEFINE_IN_TILES(run)

// conv_2d_hybrid for blocks of pixels and channels; the input is int8   NHWC, OHWI
// tile: a group of pixel blocks x a group of channel blocks; tiles: PIXEL_GROUPS * CHANNEL_GROUPS
TILE(conv_2d_amx_hybrid) { LOCAL(run_in_tiles)(arena, constants, params, tile); }

KERNEL(conv_2d_amx_hybrid)
#endif
