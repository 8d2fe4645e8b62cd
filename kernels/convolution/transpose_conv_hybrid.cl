// SPDX-License-Identifier: Apache-2.0
// Macros: for the vector kernel LANES channels and TILE_W pixels a work-item; ROUNDS_ONCE, see
// hybrid.clh: here of each product.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#ifdef LANES
#define HYBRID_WIDTH LANES
#else
#define HYBRID_WIDTH
#endif
#ifdef FP_FAST_FMAF
#define FUSED MULTIPLY_ADD
#endif
#include "hybrid.clh"

// Window sizes, strides and paddings are those of the convolution that takes the output back to the
// input's size. TFLite spreads one input pixel after the other, so an output pixel meets the taps
// of the window from the last on. Each product is scaled, by the channel and by the picture, and
// added to a float: the order and the roundings are TFLite's.
// Source: reference/transpose_conv.h HybridTransposeConv

// The first and the last input pixel, along one axis, that meet output pixel `at`, which counts
// from before the padding.
#define FIRST_OF(at, kernel, stride) max(0, ((at) - (kernel) + (stride)) / (stride))
#define LAST_OF(at, stride, size) min((size) - 1, (at) / (stride))
#define SCALED_SUM(sum, product, channel_scale, scale) \
  HYBRID_PLUS(sum, (product) * (channel_scale), scale)

#if USES_TRANSPOSE_CONV_HYBRID
// output[n,y,x,o] = bias[o] + the sum of input[n,y',x',i] * weights[o,ky,kx,i] * the scales of
// channel o and picture n, where y' * stride - pad + ky = y and x alike, clamped. The input is what
// quantize_row.cl makes of pictures, less their zero points   NHWC, OHWI
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(transpose_conv_hybrid) {
  global const float* input = (global const float*)(arena + INPUT);
  global const char* weights = (global const char*)(constants + WEIGHTS);
  global const float* channel = (global const float*)(constants + CHANNELS);
  int in_c = IN_C;
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    int o = element % OUT_C;
    int pixel = element / OUT_C;
    int x = pixel % OUT_W + PAD_LEFT;
    int y = pixel / OUT_W % OUT_H + PAD_TOP;
    int n = pixel / OUT_W / OUT_H;
    float scale = ((global const float*)(arena + ROW_SCALES))[n];
    float sum = 0.0f;
    int last_y = LAST_OF(y, STRIDE_H, IN_H);
    int last_x = LAST_OF(x, STRIDE_W, IN_W);
    for (int in_y = FIRST_OF(y, KERNEL_H, STRIDE_H); in_y <= last_y; in_y++) {
      for (int in_x = FIRST_OF(x, KERNEL_W, STRIDE_W); in_x <= last_x; in_x++) {
        int tap = (y - in_y * STRIDE_H) * KERNEL_W + x - in_x * STRIDE_W;
        global const float* source = input + ((n * IN_H + in_y) * IN_W + in_x) * in_c;
        global const char* weight = weights + (o * KERNEL_H * KERNEL_W + tap) * in_c;
        for (int c = 0; c < in_c; c++)
          sum = SCALED_SUM(sum, source[c] * (float)weight[c], channel[o], scale);
      }
    }
    ((global float*)(arena + OUTPUT))[element] = ACTIVATE(sum + channel[OUT_C + o], low, high);
  }
}

KERNEL(transpose_conv_hybrid)
#endif

#if USES_TRANSPOSE_CONV_VECTOR_HYBRID
#define FLOATS JOIN(float, LANES)
#define TO_FLOATS JOIN(convert_float, LANES)

// The same for LANES channels and TILE_W pixels of a row at a time, which lie a stride apart, so
// that each meets the same taps with neighbouring input pixels; one that is outside is zeros kept
// among the constants, times 0, for the picture's scale may be infinite. The last block of channels
// or pixels overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(transpose_conv_vector_hybrid) {
  int block = tile / BLOCK_TILES;
  int first_channel = min(block * LANES, OUT_C - LANES);
  int in_c = IN_C;
  global const float* input = (global const float*)(arena + INPUT);
  global const float* channel = (global const float*)(constants + CHANNELS) + first_channel;
  FLOATS channel_scale = LOAD_FLOATS(0, channel);
  FLOATS bias = LOAD_FLOATS(0, channel + OUT_C);
  FLOAT_BOUNDS(FLOATS);
  EACH_ITEM_OR_NONE (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    int phase = item / ROW_BLOCKS % PHASES;
    int columns = (OUT_W - phase + STRIDE_W - 1) / STRIDE_W;
    int out_x = phase + min(item % ROW_BLOCKS * TILE_W, columns - TILE_W) * STRIDE_W;
    int row = item / ROW_BLOCKS / PHASES;
    int x = out_x + PAD_LEFT;
    int y = row % OUT_H + PAD_TOP;
    int n = row / OUT_H;
    float scale = ((global const float*)(arena + ROW_SCALES))[n];
    FLOATS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = 0.0f;
    int last_y = LAST_OF(y, STRIDE_H, IN_H);
    for (int in_y = FIRST_OF(y, KERNEL_H, STRIDE_H); in_y <= last_y; in_y++) {
      // The taps of all pixels, from the last one on.
      for (int kx = x % STRIDE_W + (KERNEL_W - 1 - x % STRIDE_W) / STRIDE_W * STRIDE_W; kx >= 0;
           kx -= STRIDE_W) {
        if (kx >= KERNEL_W) continue; /* a window narrower than the stride */
        int in_x = (x - kx) / STRIDE_W;
        int tap = (block * KERNEL_H + y - in_y * STRIDE_H) * KERNEL_W + kx;
        global const char* weight = (global const char*)(constants + WEIGHTS) + tap * in_c * LANES;
        global const float* source[TILE_W];
        float scales[TILE_W];
        UNROLLED (p, TILE_W) {
          int is_inside = x >= kx - p * STRIDE_W && in_x + p < IN_W;
          scales[p] = is_inside ? scale : 0.0f;
          source[p] = is_inside ? input + ((n * IN_H + in_y) * IN_W + in_x + p) * in_c
                                : (global const float*)(constants + ZEROS);
        }
        for (int c = 0; c < in_c; c++) {
          FLOATS factor = TO_FLOATS(JOIN(vload, LANES)(c, weight));
          UNROLLED (p, TILE_W)
            sum[p] = SCALED_SUM(sum[p], factor * source[p][c], channel_scale, (FLOATS)(scales[p]));
        }
      }
    }
    global float* output =
        (global float*)(arena + OUTPUT) + (row * OUT_W + out_x) * OUT_C + first_channel;
    UNROLLED (p, TILE_W)
      STORE_FLOATS(ACTIVATE(sum[p] + bias, low, high), 0, output + p * STRIDE_W * OUT_C);
  }
}

KERNEL(transpose_conv_vector_hybrid)
#endif
