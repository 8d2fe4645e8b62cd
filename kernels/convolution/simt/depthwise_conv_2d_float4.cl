// SPDX-License-Identifier: Apache-2.0
// Macros: those of words.clh and finish.clh; HAS_PLACES, 1 where weights are made for
// PLACED_OF; for runs TAPS_H and TAPS_W, the window's size, and STEP, by how many pixels it moves
// along a row; for tiles TILE_W, 1 or 2 pixels a work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "words.clh"
#include "finish.clh"

DEFINE_FINISH(4)

#if HAS_PLACES
#define INPUTS_OF PLACED_OF
#else
#define INPUTS_OF FLOATS_OF
#endif

#if USES_DEPTHWISE_CONV_2D_FLOAT4_QUANT8
#define KEPT (TAPS_W > STEP ? TAPS_W - STEP : 0)

// The sums of depthwise_conv_2d_quant8 for a depth multiplier of 1, four channels of RUN
// neighbouring pixels one after the other: what two windows share is loaded once. Weights are
// floats less their zero point. Products and their sums are whole numbers below 2^24, which floats
// hold exactly, so neither the order of additions nor fused ones nor the mode of rounding matters.
// A pixel out of bounds reads zero points kept among the constants. The last run or block of
// channels overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS runs of four channels, channels first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(depthwise_conv_2d_float4_quant8) {
  int items = ITEMS;
  int tile_items = TILE_ITEMS;
  int channel_blocks = CHANNEL_BLOCKS;
  int row_blocks = ROW_BLOCKS;
  int run = RUN;
  int in_h = IN_H;
  int in_w = IN_W;
  int in_c = IN_C;
  int out_h = OUT_H;
  int out_w = OUT_W;
  RESULT_BOUNDS(int4);
  for (int i = get_local_id(0); i < tile_items; i += get_local_size(0)) {
    int item = tile * tile_items + i;
    if (item >= items) break;
    int rest = item / channel_blocks;
    int block = item - rest * channel_blocks;
    int c = IS_PACKED ? block * 4 : min(block * 4, in_c - 4);
    int row = rest / row_blocks;
    int n = row / out_h;
    int y = (row - n * out_h) * STRIDE_H - PAD_TOP;
    int out_x = min((rest - row * row_blocks) * run, out_w - run);
    int x = out_x * STEP - PAD_LEFT;
    global const float4* weight =
        (global const float4*)(constants + WEIGHTS) + block * (TAPS_H * TAPS_W);
    global const uchar* zeros = constants + ZEROS + c;
    global const uchar* line[TAPS_H];
    int bounds[TAPS_H];  // the line's pixels, none where it is out of bounds itself
    float4 factor[TAPS_H][TAPS_W];
    float4 column[TAPS_W][TAPS_H];
    UNROLLED (ky, TAPS_H) {
      int at = y + ky * DILATION_H;
      line[ky] = arena + INPUT + (n * in_h + at) * in_w * in_c + c;
      bounds[ky] = at >= 0 && at < in_h ? in_w : 0;
      UNROLLED (kx, TAPS_W) factor[ky][kx] = weight[ky * TAPS_W + kx];
      UNROLLED (kx, KEPT) {
        int inside = x + kx >= 0 && x + kx < bounds[ky];
        column[STEP + kx][ky] = INPUTS_OF(WORD_AT(inside ? line[ky] + (x + kx) * in_c : zeros));
      }
    }
    global const int4* channel = (global const int4*)(constants + CHANNELS) + block * 3;
    int4 bias = channel[0];
    int4 multiplier = channel[1];
    int4 shift = channel[2];
    global uchar* output = arena + OUTPUT + (row * out_w + out_x) * in_c + c;
    x += KEPT;
    for (int pixel = 0; pixel < run; pixel++) {
      float4 sum = 0.0f;
      UNROLLED (kx, TAPS_W) {
        UNROLLED (ky, TAPS_H) {
          if (kx < KEPT) {
            column[kx][ky] = column[kx + STEP][ky];
          } else {
            int at = x + kx - KEPT;
            int inside = at >= 0 && at < bounds[ky];
            column[kx][ky] = INPUTS_OF(WORD_AT(inside ? line[ky] + at * in_c : zeros));
          }
          sum += column[kx][ky] * factor[ky][kx];
        }
      }
      x += STEP;
      int4 total = convert_int4(sum) + bias;
      STORE_BYTES(FINISHED(4, total, multiplier, shift, output_zero, output), output);
      output += in_c;
    }
  }
}

KERNEL(depthwise_conv_2d_float4_quant8)
#endif

#if USES_DEPTHWISE_CONV_2D_TILED_FLOAT4_QUANT8
#include "windows.clh"

// The same sums for TILE_W pixels one after the other and four channels, tap after tap: few values
// live at a time, so a work-item needs few registers. Of both kernels one is built.
// tile: TILE_ITEMS blocks of pixels x channels, channels first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(depthwise_conv_2d_tiled_float4_quant8) {
  int items = ITEMS;
  int channel_blocks = CHANNEL_BLOCKS;
  int kernel_h = KERNEL_H;
  int kernel_w = KERNEL_W;
  int in_c = IN_C;
  EACH_ITEM (item, tile, items) {
    int rest = item / channel_blocks;
    int block = item - rest * channel_blocks;
    int c = IS_PACKED ? block * 4 : min(block * 4, in_c - 4);
    int pixel = min(rest * TILE_W, PIXELS - TILE_W);
    BEGIN_WINDOWS(pixel);
    float4 sum = 0.0f;
#if TILE_W == 2
    float4 next = 0.0f;
#endif
    global const float4* weight =
        (global const float4*)(constants + WEIGHTS) + block * (kernel_h * kernel_w);
    for (int ky = 0; ky < kernel_h; ky++) {
      for (int kx = 0; kx < kernel_w; kx++) {
        global const ELEM* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        float4 factor = *weight;
        weight++;
        sum = mad(INPUTS_OF(WORD_AT(source[0] + c)), factor, sum);
#if TILE_W == 2
        next = mad(INPUTS_OF(WORD_AT(source[1] + c)), factor, next);
#endif
      }
    }
    global const int4* channel = (global const int4*)(constants + CHANNELS) + block * 3;
    int4 bias = channel[0];
    int4 multiplier = channel[1];
    int4 shift = channel[2];
    RESULT_BOUNDS(int4);
    global uchar* output = arena + OUTPUT + pixel * in_c + c;
    for (int p = 0; p < TILE_W; p++) {
      int4 total = convert_int4(sum) + bias;
      STORE_BYTES(FINISHED(4, total, multiplier, shift, output_zero, output), output);
      output += in_c;
#if TILE_W == 2
      sum = next;
#endif
    }
  }
}

KERNEL(depthwise_conv_2d_tiled_float4_quant8)
#endif
