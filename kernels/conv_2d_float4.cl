// SPDX-License-Identifier: Apache-2.0
// Macros: those of words.clh, requantize4.clh and residual.clh; TILE_W output pixels and VECTORS x
// 4 output channels a work-item; HAS_CHUNKS, 1 where a sum may pass 2^24.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "words.clh"
#include "requantize4.clh"
#include "residual.clh"
#include "windows.clh"

DEFINE_RESIDUAL(4)

#define BLOCK (4 * VECTORS)

// The sums of conv_2d_quant8 for TILE_W pixels x BLOCK channels a work-item, in floats. Products
// and sums of up to CHUNK_WORDS words of four terms are whole numbers below 2^24, which floats hold
// exactly, so neither the order of additions nor fused ones nor the mode of rounding matters;
// longer sums are moved to integers. The last block of pixels or channels overlaps the one before
// it and writes the same values again.
// tile: TILE_ITEMS blocks of pixels x channels, pixels first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(conv_2d_float4_quant8) {
  int items = ITEMS;
  int tile_items = TILE_ITEMS;
  int pixel_blocks = PIXEL_BLOCKS;
  int out_c = OUT_C;
  int kernel_h = KERNEL_H;
  int kernel_w = KERNEL_W;
  int words = WORDS;
  int chunk_words = CHUNK_WORDS;
  float4 weight_zero = WEIGHT_ZERO;
  for (int i = get_local_id(0); i < tile_items; i += get_local_size(0)) {
    int item = tile * tile_items + i;
    if (item >= items) break;
    int block = item / pixel_blocks;
    int pixel = min((item - block * pixel_blocks) * TILE_W, PIXELS - TILE_W);
    int first_channel = min(block * BLOCK, out_c - BLOCK);
    global const int* channel = (global const int*)(constants + CHANNELS) + first_channel;
    int in_x[TILE_W];
    int in_y[TILE_W];
    int in_row[TILE_W];
    LOCAL(begin_windows)(params, pixel, in_x, in_y, in_row);
    int4 total[TILE_W][VECTORS];
    float4 sum[TILE_W][VECTORS];
#pragma unroll
    for (int p = 0; p < TILE_W; p++) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        total[p][v] = vload4(v, channel);
        sum[p][v] = 0.0f;
      }
    }
    global const uint4* weight = (global const uint4*)(constants + WEIGHTS) +
                                 block * (kernel_h * kernel_w * words * VECTORS);
    for (int ky = 0; ky < kernel_h; ky++) {
      for (int kx = 0; kx < kernel_w; kx++) {
        global const ELEM* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        for (int begin = 0; begin < words; begin += chunk_words) {
          int end = min(begin + chunk_words, words);
          for (int word = begin; word < end; word++) {
            float4 factor[VECTORS][4];
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
              uint4 w = weight[v];
              factor[v][0] = FLOATS_OF(w.x) - weight_zero;
              factor[v][1] = FLOATS_OF(w.y) - weight_zero;
              factor[v][2] = FLOATS_OF(w.z) - weight_zero;
              factor[v][3] = FLOATS_OF(w.w) - weight_zero;
            }
            weight += VECTORS;
#pragma unroll
            for (int p = 0; p < TILE_W; p++) {
              float4 a = FLOATS_OF(WORD_AT(source[p] + word * 4));
#pragma unroll
              for (int v = 0; v < VECTORS; v++) {
                sum[p][v] = mad(factor[v][0], (float4)a.x, sum[p][v]);
                sum[p][v] = mad(factor[v][1], (float4)a.y, sum[p][v]);
                sum[p][v] = mad(factor[v][2], (float4)a.z, sum[p][v]);
                sum[p][v] = mad(factor[v][3], (float4)a.w, sum[p][v]);
              }
            }
          }
#if HAS_CHUNKS
#pragma unroll
          for (int p = 0; p < TILE_W; p++) {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
              total[p][v] += convert_int4(sum[p][v]);
              sum[p][v] = 0.0f;
            }
          }
#endif
        }
      }
    }
    int4 low = OUTPUT_MIN;
    int4 high = OUTPUT_MAX;
    int4 output_zero = OUTPUT_ZERO;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      int4 multiplier = vload4(v, channel + out_c);
      int4 shift = vload4(v, channel + 2 * out_c);
#pragma unroll
      for (int p = 0; p < TILE_W; p++) {
        int4 result = total[p][v] + convert_int4(sum[p][v]);
        result = REQUANTIZE4(result, multiplier, shift) + output_zero;
        global uchar* output = arena + OUTPUT + (pixel + p) * out_c + first_channel + 4 * v;
        STORE_BYTES(WITH_RESIDUALS(4, clamp(result, low, high), output), output);
      }
    }
  }
}

KERNEL(conv_2d_float4_quant8)
