// SPDX-License-Identifier: Apache-2.0
// Macros: ROUNDING, see wide.clh; for the tiled kernel LANES x VECTORS output channels and TILE_W
// output pixels a work-item, and IS_ALIGNED, 1 where its vectors lie at multiples of their size and
// pairs of input channels at multiples of 4 bytes.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "quantize.clh"
#include "quantize_wide.clh"
#include "store.clh"
#include "wide.clh"

#if USES_CONV_2D_QUANT16
// output[n,y,x,o] = sum over the in-bounds window of input * weights[o,ky,kx,i], plus bias,
// requantised and clamped; of groups, each takes GROUP_IN_C of IN_C channels   NHWC, OHWI; int16,
// int8
// Source: integer_ops/conv.h ConvPerChannel, the int16 overload
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(conv_2d_quant16) {
  global const short* input = (global const short*)(arena + INPUT);
  global const char* weights = (global const char*)(constants + WEIGHTS);
  global const int* channel = (global const int*)(constants + CHANNELS);
  global short* output = (global short*)(arena + OUTPUT);
  int in_c = GROUP_IN_C;
  int out_c = OUT_C;
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    int first = o / GROUP_OUT_C * in_c;
    uint low = as_uint(channel[o]);
    int high = channel[out_c + o];
    int part = 0;
    EACH_TAP_INSIDE (ky, kx) {
      global const short* source = input + ((n * IN_H + in_y) * IN_W + in_x) * IN_C + first;
      global const char* weight = weights + ((o * KERNEL_H + ky) * KERNEL_W + kx) * in_c;
      int c = 0;
      // NOTE: llvmpipe leaves every loop after 65535 rounds, so there are fewer than terms. As
      // many fit the 32 bits of a part.
      for (; c <= in_c - 256; c += 256) {
        for (int k = 0; k < 256; k += 16) {
          UNROLLED (j, 16) part += (int)source[c + k + j] * (int)weight[c + k + j];
        }
        LOCAL(add_part)(&high, &low, &part);
      }
      for (; c < in_c; c++) part += (int)source[c] * (int)weight[c];
      LOCAL(add_part)(&high, &low, &part);
    }
    global const int* scaling = channel + 2 * out_c + o;
    int result = LOCAL(requantize_sum)(high, low, scaling[0], scaling[out_c], scaling[2 * out_c]);
    output[element] = (short)clamp(result, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(conv_2d_quant16)
#endif

#if USES_CONV_2D_TILED_QUANT16
#define ELEM short
#include "windows.clh"
#define SHORTS JOIN(short, LANES)
#if IS_ALIGNED
#define LOAD_INTS(i, from) (((global const WIDE_INTS*)(from))[i])
#define STORE_SHORTS(results, to) (*(global SHORTS*)(to) = (results))
#else
#define LOAD_INTS JOIN(vload, LANES)
#define STORE_SHORTS(results, to) STORE(SHORTS, results, to)
#endif
#define TO_SHORTS JOIN(convert_short, LANES)
#define BLOCK (LANES * VECTORS)
#include "pairs.clh"
DEFINE_STORE(SHORTS)

// The same for TILE_W pixels x BLOCK channels at a time: weights are 16 bit, in pairs along the
// input channel. Sums are of 32 bits and go to 64 before they could overflow: after TAPS_A_PART
// taps, or PAIRS_A_PART pairs. A window's pixel out of bounds reads a row of zeros kept among the
// constants. The last block of pixels or channels overlaps the one before it and writes the same
// values again.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(conv_2d_tiled_quant16) {
  int block = tile / BLOCK_TILES;
  int out_c = OUT_C;
  int first_channel = min(block * BLOCK, out_c - BLOCK);
  global const int* channel = (global const int*)(constants + CHANNELS) + first_channel;
  EACH_ITEM_OR_NONE (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    int pixel = min(item * TILE_W, PIXELS - TILE_W);
    BEGIN_WINDOWS(pixel);
    WIDE_INTS part[TILE_W][VECTORS];
    WIDE_INTS high[TILE_W][VECTORS];
    WIDE_UINTS low[TILE_W][VECTORS];
    UNROLLED (p, TILE_W) {
      UNROLLED (v, VECTORS) {
        part[p][v] = 0;
        low[p][v] = JOIN(as_uint, LANES)(LOAD_INTS(v, channel));
        high[p][v] = LOAD_INTS(v, channel + out_c);
      }
    }
    global const int* weight =
        (global const int*)(constants + WEIGHTS) + block * (KERNEL_H * KERNEL_W * PAIRS * BLOCK);
    int taps = 0;
    for (int ky = 0; ky < KERNEL_H; ky++) {
      for (int kx = 0; kx < KERNEL_W; kx++) {
        global const short* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        taps++;
        for (int first = 0; first < PAIRS; first += PAIRS_A_PART) {
          int end = min(first + PAIRS_A_PART, PAIRS);
          for (int k = first; k < end; k++) {
            LOCAL(add_pair)(part, source, k, weight);
            weight += BLOCK;
          }
          if (taps == TAPS_A_PART) {
            if (end == PAIRS) taps = 0;
            UNROLLED (p, TILE_W)
              UNROLLED (v, VECTORS) LOCAL(add_part)(&high[p][v], &low[p][v], &part[p][v]);
          }
        }
      }
    }
    UNROLLED (v, VECTORS) {
      WIDE_INTS a = LOAD_INTS(v, channel + 2 * out_c);
      WIDE_INTS b = LOAD_INTS(v, channel + 3 * out_c);
      WIDE_INTS c = LOAD_INTS(v, channel + 4 * out_c);
      WIDE_INTS least = OUTPUT_MIN;
      WIDE_INTS most = OUTPUT_MAX;
      UNROLLED (p, TILE_W) {
        LOCAL(add_part)(&high[p][v], &low[p][v], &part[p][v]);
        WIDE_INTS result = LOCAL(requantize_sum)(high[p][v], low[p][v], a, b, c);
        global short* output =
            (global short*)(arena + OUTPUT) + (pixel + p) * out_c + first_channel + v * LANES;
        STORE_SHORTS(TO_SHORTS(clamp(result, least, most)), output);
      }
    }
  }
}

KERNEL(conv_2d_tiled_quant16)
#endif
