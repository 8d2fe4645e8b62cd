// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' and the weights' type where they are of 8 bits, uchar or char;
// ROUNDING of int16, see wide.clh; for the vector kernels LANES channels and TILE_W pixels a
// work-item. Of transpose_conv_blocks ELEM is a type as wide as what moves as one.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "quantize_wide.clh"
#include "float.clh"
#include "store.clh"
#include "taps.clh"

// Window sizes, strides and paddings are those of the convolution that takes the output back to the
// input's size. An output pixel meets every STRIDE-th tap of the window, each with one input pixel.

#if USES_TRANSPOSE_CONV_QUANT8 || USES_TRANSPOSE_CONV_QUANT16 || USES_TRANSPOSE_CONV_FLOAT
// Goes through the taps of output pixel (n, y, x) and channel o: `source` and `weight` are the
// input pixel and the weights of one.
#define EACH_TAP(TYPE, WEIGHT, DO)                                                        \
  int o = element % OUT_C;                                                                \
  int pixel = element / OUT_C;                                                            \
  int x = pixel % OUT_W + PAD_LEFT;                                                       \
  int y = pixel / OUT_W % OUT_H + PAD_TOP;                                                \
  int n = pixel / OUT_W / OUT_H;                                                          \
  EACH_TAP_ALONG(ky, in_y, y, STRIDE_H, KERNEL_H) {                                       \
    if (in_y < 0 || in_y >= IN_H) continue;                                               \
    EACH_TAP_ALONG(kx, in_x, x, STRIDE_W, KERNEL_W) {                                     \
      if (in_x < 0 || in_x >= IN_W) continue;                                             \
      global const TYPE* source =                                                         \
          (global const TYPE*)(arena + INPUT) + ((n * IN_H + in_y) * IN_W + in_x) * in_c; \
      global const WEIGHT* weight = (global const WEIGHT*)(constants + WEIGHTS) +         \
                                    ((o * KERNEL_H + ky) * KERNEL_W + kx) * in_c;         \
      DO                                                                                  \
    }                                                                                     \
  }
#endif

#if USES_TRANSPOSE_CONV_QUANT8
DEFINE_ROUNDING()

// output[n,y,x,o] = sum of (input[n,y',x',i] - zero) * (weights[o,ky,kx,i] - zero) where
// y' * stride - pad + ky = y and x alike, plus bias, requantised and clamped   NHWC, OHWI
// Source: reference/transpose_conv.h, integer_ops/transpose_conv.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(transpose_conv_quant8) {
  global const int* channel = (global const int*)(constants + CHANNELS);
  int in_c = IN_C;
  int input_zero = INPUT_ZERO;
  int weight_zero = WEIGHT_ZERO;
  EACH_ITEM (element, tile, ELEMENTS) {
    int sum = 0;
    // NOTE: llvmpipe leaves every loop after 65535 rounds, so there are fewer than terms.
    EACH_TAP(ELEM, ELEM, {
      int c = 0;
      for (; c <= in_c - 8; c += 8)
        UNROLLED (j, 8)
          sum += ((int)source[c + j] - input_zero) * ((int)weight[c + j] - weight_zero);
      for (; c < in_c; c++) sum += ((int)source[c] - input_zero) * ((int)weight[c] - weight_zero);
    })
    sum += channel[o];
    int scaled = LOCAL(requantize)(sum, channel[OUT_C + o], channel[2 * OUT_C + o]) + OUTPUT_ZERO;
    ((global ELEM*)(arena + OUTPUT))[element] = (ELEM)clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(transpose_conv_quant8)
#endif

#if USES_TRANSPOSE_CONV_QUANT16
#include "wide.clh"

// The same of int16 with weights of int8, in sums of 64 bits.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(transpose_conv_quant16) {
  global const int* channel = (global const int*)(constants + CHANNELS);
  int in_c = IN_C;
  EACH_ITEM (element, tile, ELEMENTS) {
    uint low = 0u;
    int high = 0;
    int part = 0;
    EACH_TAP(short, char, {
      int c = 0;
      for (; c <= in_c - 256; c += 256) {  // as many fit 32 bits
        for (int k = 0; k < 256; k += 16) {
          UNROLLED (j, 16) part += (int)source[c + k + j] * (int)weight[c + k + j];
        }
        LOCAL(add_part)(&high, &low, &part);
      }
      for (; c < in_c; c++) part += (int)source[c] * (int)weight[c];
      LOCAL(add_part)(&high, &low, &part);
    })
    uint bias = as_uint(channel[o]);
    uint total = low + bias;
#if ROUNDING != ROUNDING_TWICE
    high += channel[OUT_C + o] + as_int(LOCAL(carry_of)(low, bias, total));
#endif
    global const int* scaling = channel + 2 * OUT_C + o;
    int result = LOCAL(requantize_sum)(high, total, scaling[0], scaling[OUT_C], scaling[2 * OUT_C]);
    ((global short*)(arena + OUTPUT))[element] = (short)clamp(result, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(transpose_conv_quant16)
#endif

#if USES_TRANSPOSE_CONV_FLOAT
// The same of floats.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(transpose_conv_float) {
  FLOAT_BOUNDS(float);
  int in_c = IN_C;
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    float sum = 0.0f;
    EACH_TAP(float, float, {
      for (int c = 0; c < in_c; c++) sum = MULTIPLY_ADD(source[c], weight[c], sum);
    })
    sum += ((global const float*)(constants + BIAS))[o];
    ((global float*)(arena + OUTPUT))[element] = ACTIVATE(sum, low, high);
  }
}

KERNEL(transpose_conv_float)
#endif

#if USES_TRANSPOSE_CONV_VECTOR_QUANT8 || USES_TRANSPOSE_CONV_VECTOR_FLOAT
#define LOAD_INTS JOIN(vload, LANES)
#define INTS JOIN(int, LANES)

// TILE_W output pixels that lie a stride apart, so that each meets the same taps with neighbouring
// input pixels.
#define PIXELS_OF(item)                                                             \
  int phase = item / ROW_BLOCKS % PHASES;                                           \
  int columns = (OUT_W - phase + STRIDE_W - 1) / STRIDE_W;                          \
  int out_x = phase + min(item % ROW_BLOCKS * TILE_W, columns - TILE_W) * STRIDE_W; \
  int row = item / ROW_BLOCKS / PHASES;                                             \
  int x = out_x + PAD_LEFT;                                                         \
  int y = row % OUT_H + PAD_TOP;                                                    \
  int n = row / OUT_H

// Goes through their taps; an input pixel out of bounds reads zeros kept among the constants.
// `WIDTH`: words of weights a tap and channel.
#define EACH_VECTOR_TAP(TYPE, WIDTH, DO)                                                           \
  EACH_TAP_ALONG(ky, in_y, y, STRIDE_H, KERNEL_H) {                                                \
    if (in_y < 0 || in_y >= IN_H) continue;                                                        \
    EACH_TAP_ALONG(kx, in_x, x, STRIDE_W, KERNEL_W) {                                              \
      global const TYPE* source[TILE_W];                                                           \
      UNROLLED (p, TILE_W) {                                                                       \
        int inside = in_x + p >= 0 && in_x + p < IN_W;                                             \
        global const TYPE* input = (global const TYPE*)(arena + INPUT);                            \
        source[p] = inside ? input + ((n * IN_H + in_y) * IN_W + in_x + p) * IN_C                  \
                           : (global const TYPE*)(constants + ZEROS);                              \
      }                                                                                            \
      int tap = (block * KERNEL_H + ky) * KERNEL_W + kx;                                           \
      global const int* weight = (global const int*)(constants + WEIGHTS) + tap * (WIDTH * LANES); \
      DO                                                                                           \
    }                                                                                              \
  }
#endif

#if USES_TRANSPOSE_CONV_VECTOR_QUANT8
DEFINE_ROUNDING(LANES)
#define ELEMS JOIN(ELEM, LANES)
#define TO_ELEMS JOIN(JOIN(convert_, ELEM), LANES)
DEFINE_STORE(ELEMS)

// The first one for LANES channels and TILE_W pixels of a row at a time: weights are 16 bit, less
// their zero point, in pairs along the input channel. The last block of channels or pixels overlaps
// the one before it and writes the same values again.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(transpose_conv_vector_quant8) {
  int block = tile / BLOCK_TILES;
  int first_channel = min(block * LANES, OUT_C - LANES);
  global const int* channel = (global const int*)(constants + CHANNELS) + first_channel;
  int pairs = PAIRS;
  int zero = INPUT_ZERO;
  EACH_ITEM (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    PIXELS_OF(item);
    INTS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = LOAD_INTS(0, channel);
    EACH_VECTOR_TAP(ELEM, pairs, {
      for (int k = 0; k < pairs; k++) {
        INTS pair = LOAD_INTS(k, weight);
        INTS even = (pair << 16) >> 16;
        INTS odd = pair >> 16;
        UNROLLED (p, TILE_W) {
          INTS a = (int)source[p][2 * k] - zero;
          INTS b = (int)source[p][2 * k + 1] - zero;
          sum[p] += even * a + odd * b;
        }
      }
    })
    INTS multiplier = LOAD_INTS(0, channel + OUT_C);
    INTS shift = LOAD_INTS(0, channel + 2 * OUT_C);
    INTS least = OUTPUT_MIN;
    INTS most = OUTPUT_MAX;
    global ELEM* output =
        (global ELEM*)(arena + OUTPUT) + (row * OUT_W + out_x) * OUT_C + first_channel;
    for (int p = 0; p < TILE_W; p++, output += STRIDE_W * OUT_C) {
      INTS scaled = LOCAL(JOIN(requantize, LANES))(sum[0], multiplier, shift) + OUTPUT_ZERO;
      STORE(ELEMS, TO_ELEMS(clamp(scaled, least, most)), output);
      NEXT_TO_FIRST(sum, TILE_W);
    }
  }
}

KERNEL(transpose_conv_vector_quant8)
#endif

#if USES_TRANSPOSE_CONV_VECTOR_FLOAT
#define FLOATS JOIN(float, LANES)

// The same of floats.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(transpose_conv_vector_float) {
  int block = tile / BLOCK_TILES;
  int first_channel = min(block * LANES, OUT_C - LANES);
  int in_c = IN_C;
  FLOAT_BOUNDS(FLOATS);
  FLOATS bias = LOAD_FLOATS(0, (global const float*)(constants + BIAS) + first_channel);
  EACH_ITEM_OR_NONE (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    PIXELS_OF(item);
    FLOATS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = BIAS_FIRST(bias);
    EACH_VECTOR_TAP(float, in_c, {
      for (int k = 0; k < in_c; k++) {
        FLOATS factor = LOAD_FLOATS(k, (global const float*)weight);
        UNROLLED (p, TILE_W) {
          FLOATS a = source[p][k];
          sum[p] = MULTIPLY_ADD(factor, a, sum[p]);
        }
      }
    })
    global float* output =
        (global float*)(arena + OUTPUT) + (row * OUT_W + out_x) * OUT_C + first_channel;
    UNROLLED (p, TILE_W)
      STORE_FLOATS(ACTIVATE(BIAS_LAST(sum[p], bias), low, high), 0, output + p * STRIDE_W * OUT_C);
  }
}

KERNEL(transpose_conv_vector_float)
#endif

#if USES_TRANSPOSE_CONV_BLOCKS
// output[n,y,x,o] = input[n,y'/stride_h,x'/stride_w,y'%stride_h,x'%stride_w,o] where y' = y + skip
// and x' alike: pixels out of their blocks, moved in ELEMs, of which a pixel has PIXEL
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*pixel / TILE_ITEMS)
TILE(transpose_conv_blocks) {
  EACH_ITEM (element, tile, ELEMENTS) {
    int x = element / PIXEL % OUT_W + SKIP_LEFT;
    int row = element / PIXEL / OUT_W;
    int y = row % OUT_H + SKIP_TOP;
    int block = (row / OUT_H * BLOCKS_H + y / STRIDE_H) * BLOCKS_W + x / STRIDE_W;
    int place = (block * STRIDE_H + y % STRIDE_H) * STRIDE_W + x % STRIDE_W;
    ((global ELEM*)(arena + OUTPUT))[element] =
        ((global const ELEM*)(arena + INPUT))[place * PIXEL + element % PIXEL];
  }
}

KERNEL(transpose_conv_blocks)
#endif

#if USES_TRANSPOSE_CONV_ROW_BLOCKS
DEFINE_STORE(uchar16)

// The same row by row, of PIXEL bytes a pixel: those of a block that share a row are neighbours.
// tile: TILE_ITEMS output rows, one a work-item; tiles: ceil(n*out_h / TILE_ITEMS)
TILE(transpose_conv_row_blocks) {
  const int near = STRIDE_W * PIXEL;
  const int pitch = STRIDE_H * near;
  const int bytes = OUT_W * PIXEL;
  EACH_ITEM (row, tile, ROWS) {
    int y = row % OUT_H + SKIP_TOP;
    int block_row = row / OUT_H * BLOCKS_H + y / STRIDE_H;
    int skip = SKIP_LEFT * PIXEL;
    global const uchar* from =
        arena + INPUT + block_row * BLOCKS_W * pitch + y % STRIDE_H * near + skip;
    global uchar* to = arena + OUTPUT + row * bytes;
    int left = bytes;
    for (int count = near - skip; left > 0; count = near) {
      count = min(count, left);
      // The 16 bytes may pass the block, but not the row: the next block's are written after them.
      int at = 0;
      for (; at < count && at + 16 <= left; at += 16)
        STORE(uchar16, vload16(0, from + at), to + at);
      for (; at < count; at++) to[at] = from[at];
      from += count + pitch - near;
      to += count;
      left -= count;
    }
  }
}

KERNEL(transpose_conv_row_blocks)
#endif
