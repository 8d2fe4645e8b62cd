// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' type, uchar or char; WEIGHT, the stored weights' type;
// SINGLE_ROUNDING, see quantize.clh; those of finish.clh; for the tiled kernel LANES x VECTORS
// output channels and TILE_W output pixels a work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "quantize.clh"
#include "float.clh"
#include "finish.clh"

#if USES_CONV_2D_QUANT8
DEFINE_FINISH()

// output[n,y,x,o] = sum over the in-bounds window of (input - zero) * (weights[o,ky,kx,i] - zero),
// plus bias, requantised and clamped   NHWC, OHWI   Source: reference/conv.h, integer_ops/conv.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(conv_2d_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global const WEIGHT* weights = (global const WEIGHT*)(constants + WEIGHTS);
  global const int* channel = (global const int*)(constants + CHANNELS);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  int in_c = IN_C;
  int input_zero = INPUT_ZERO;
  int weight_zero = WEIGHT_ZERO;
  EACH_ITEM (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    int sum = channel[o];
    EACH_TAP_INSIDE (ky, kx) {
      global const ELEM* source = input + ((n * IN_H + in_y) * IN_W + in_x) * in_c;
      global const WEIGHT* weight = weights + ((o * KERNEL_H + ky) * KERNEL_W + kx) * in_c;
      int c = 0;
      // NOTE: llvmpipe leaves every loop after 65535 rounds, so there are fewer than terms.
      for (; c <= in_c - 8; c += 8)
        UNROLLED (j, 8)
          sum += ((int)source[c + j] - input_zero) * ((int)weight[c + j] - weight_zero);
      for (; c < in_c; c++) sum += ((int)source[c] - input_zero) * ((int)weight[c] - weight_zero);
    }
    int scaled = REQUANTIZE()(sum, channel[OUT_C + o], channel[2 * OUT_C + o]) + OUTPUT_ZERO;
    int result = clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
    output[element] = (ELEM)WITH_RESIDUAL(result, output + element);
  }
}

KERNEL(conv_2d_quant8)
#endif

#if USES_CONV_2D_TILED_QUANT8
DEFINE_FINISH(LANES)
#include "windows.clh"
#define INTS JOIN(int, LANES)
#define LOAD_INTS JOIN(vload, LANES)
#define STORE_ELEMS JOIN(vstore, LANES)
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)
#define BLOCK (LANES * VECTORS)
#include "pairs.clh"

// The same sums for TILE_W pixels x BLOCK channels at a time: weights are 16 bit, less their zero
// point, in pairs along the input channel, so that a product pair is two 16-bit multiplications.
// The input's zero point is in the bias; a window's pixel out of bounds reads a row of zero points
// kept among the constants, which makes every tap alike. The last block of pixels or channels
// overlaps the one before it and writes the same values again: no short stores.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(conv_2d_tiled_quant8) {
  int block = tile / BLOCK_TILES;
  int first_channel = min(block * BLOCK, OUT_C - BLOCK);
  global const int* channel = (global const int*)(constants + CHANNELS) + first_channel;
  EACH_ITEM (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    int pixel = min(item * TILE_W, PIXELS - TILE_W);
    BEGIN_WINDOWS(pixel);
    INTS sum[TILE_W][VECTORS];
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) sum[p][v] = LOAD_INTS(v, channel);
    global const int* weight =
        (global const int*)(constants + WEIGHTS) + block * (KERNEL_H * KERNEL_W * PAIRS * BLOCK);
    for (int ky = 0; ky < KERNEL_H; ky++) {
      for (int kx = 0; kx < KERNEL_W; kx++) {
        global const ELEM* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        for (int k = 0; k < PAIRS; k++) {
          LOCAL(add_pair)(sum, source, k, weight);
          weight += BLOCK;
        }
      }
    }
    UNROLLED (v, VECTORS) {
      INTS multiplier = LOAD_INTS(v, channel + OUT_C);
      INTS shift = LOAD_INTS(v, channel + 2 * OUT_C);
      INTS low = OUTPUT_MIN;
      INTS high = OUTPUT_MAX;
      UNROLLED (p, TILE_W) {
        INTS scaled = REQUANTIZE(LANES)(sum[p][v], multiplier, shift) + OUTPUT_ZERO;
        global ELEM* output = (global ELEM*)(arena + OUTPUT) + (pixel + p) * OUT_C + first_channel;
        INTS result = WITH_RESIDUALS(LANES, clamp(scaled, low, high), output + v * LANES);
        STORE_ELEMS(TO_ELEMS(result), v, output);
      }
    }
  }
}

KERNEL(conv_2d_tiled_quant8)
#endif
