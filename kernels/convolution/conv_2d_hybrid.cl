// SPDX-License-Identifier: Apache-2.0
// Macros: CHANNEL_FIRST, see hybrid.clh; for the tiled kernel LANES x VECTORS output channels and
// TILE_W output pixels a work-item, and IS_ALIGNED, 1 where its vectors lie at multiples of their
// size and pairs of input channels at multiples of 4 bytes.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "float.clh"
#include "hybrid.clh"

#if USES_CONV_2D_HYBRID
// output[n,y,x,o] = bias[o] + the scales of picture n and channel o times the sum over the
// in-bounds window of input * weights[o,ky,kx,i], clamped; of groups, each takes GROUP_IN_C of IN_C
// channels. The input is what quantize_row.cl makes of pictures, less their zero points
// NHWC, OHWI
// Source: optimized_ops.h HybridConv, reference/conv.h HybridConvPerChannel
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(conv_2d_hybrid) {
  global const short* input = (global const short*)(arena + INPUT);
  global const char* weights = (global const char*)(constants + WEIGHTS);
  global const float* channel = (global const float*)(constants + CHANNELS);
  int in_c = GROUP_IN_C;
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    int first = o / GROUP_OUT_C * in_c;
    int sum = 0;
    EACH_TAP_INSIDE (ky, kx) {
      global const short* source = input + ((n * IN_H + in_y) * IN_W + in_x) * IN_C + first;
      global const char* weight = weights + ((o * KERNEL_H + ky) * KERNEL_W + kx) * in_c;
      int c = 0;
      // NOTE: llvmpipe leaves every loop after 65535 rounds, so there are fewer than terms.
      for (; c <= in_c - 8; c += 8) {
        UNROLLED (j, 8) sum += (int)source[c + j] * (int)weight[c + j];
      }
      for (; c < in_c; c++) sum += (int)source[c] * (int)weight[c];
    }
    float scale = ((global const float*)(arena + ROW_SCALES))[n];
    ((global float*)(arena + OUTPUT))[element] =
        HYBRID_RESULT((float)sum, scale, channel[o], channel[OUT_C + o], low, high);
  }
}

KERNEL(conv_2d_hybrid)
#endif

#if USES_CONV_2D_TILED_HYBRID
#define ELEM short
#include "windows.clh"
#define INTS JOIN(int, LANES)
#define FLOATS JOIN(float, LANES)
#define BLOCK (LANES * VECTORS)
#if IS_ALIGNED
#define LOAD_INTS(i, from) (((global const INTS*)(from))[i])
#else
#define LOAD_INTS JOIN(vload, LANES)
#endif
#include "pairs.clh"

// The same for TILE_W pixels x BLOCK channels at a time: weights are 16 bit, in pairs along the
// input channel. A window's pixel out of bounds reads a row of zeros kept among the constants. The
// last block of pixels or channels overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(conv_2d_tiled_hybrid) {
  int block = tile / BLOCK_TILES;
  int out_c = OUT_C;
  int first_channel = min(block * BLOCK, out_c - BLOCK);
  int picture_pixels = OUT_H * OUT_W;
  global const float* channel = (global const float*)(constants + CHANNELS) + first_channel;
  global const float* scales = (global const float*)(arena + ROW_SCALES);
  FLOAT_BOUNDS(FLOATS);
  EACH_ITEM_OR_NONE (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    int pixel = min(item * TILE_W, PIXELS - TILE_W);
    BEGIN_WINDOWS(pixel);
    INTS sum[TILE_W][VECTORS];
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) sum[p][v] = 0;
    global const int* weight =
        (global const int*)(constants + WEIGHTS) + block * (KERNEL_H * KERNEL_W * PAIRS * BLOCK);
    for (int ky = 0; ky < KERNEL_H; ky++) {
      for (int kx = 0; kx < KERNEL_W; kx++) {
        global const short* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        for (int k = 0; k < PAIRS; k++) {
          LOCAL(add_pair)(sum, source, k, weight);
          weight += BLOCK;
        }
      }
    }
    UNROLLED (v, VECTORS) {
      FLOATS scale = LOAD_FLOATS(v, channel);
      FLOATS bias = LOAD_FLOATS(v, channel + out_c);
      UNROLLED (p, TILE_W) {
        FLOATS picture = scales[(pixel + p) / picture_pixels];
        FLOATS value = JOIN(convert_float, LANES)(sum[p][v]);
        FLOATS result = HYBRID_RESULT(value, picture, scale, bias, low, high);
        STORE_FLOATS(result, v,
                     (global float*)(arena + OUTPUT) + (pixel + p) * out_c + first_channel);
      }
    }
  }
}

KERNEL(conv_2d_tiled_hybrid)
#endif
