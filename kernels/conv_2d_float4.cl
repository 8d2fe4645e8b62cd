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

#define EACH_PIXEL(M) JOIN(EACH_, TILE_W)(M)
#define EACH_PIXEL_OF(M, v) JOIN(EACH_OF_, TILE_W)(M, v)
#define EACH_VECTOR(M) JOIN(EACH_V_, VECTORS)(M)
#define EACH_PIXEL_AND_VECTOR(M) JOIN(EACH_ALL_, VECTORS)(M)
#define EACH_1(M) M(0)
#define EACH_2(M) EACH_1(M) M(1)
#define EACH_4(M) EACH_2(M) M(2) M(3)
#define EACH_V_1(M) M(0)
#define EACH_V_2(M) EACH_V_1(M) M(1)
#define EACH_OF_1(M, v) M(0, v)
#define EACH_OF_2(M, v) EACH_OF_1(M, v) M(1, v)
#define EACH_OF_4(M, v) EACH_OF_2(M, v) M(2, v) M(3, v)
#define EACH_ALL_1(M) EACH_PIXEL_OF(M, 0)
#define EACH_ALL_2(M) EACH_ALL_1(M) EACH_PIXEL_OF(M, 1)

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
    float4 sum[TILE_W][VECTORS];
#define CLEAR(p, v) sum[p][v] = 0.0f;
    EACH_PIXEL_AND_VECTOR(CLEAR)
#if HAS_CHUNKS
    int4 total[TILE_W][VECTORS];
#define CLEAR_TOTAL(p, v) total[p][v] = 0;
    EACH_PIXEL_AND_VECTOR(CLEAR_TOTAL)
#endif
    global const uint4* weight = (global const uint4*)(constants + WEIGHTS) +
                                 block * (kernel_h * kernel_w * words * VECTORS);
    for (int ky = 0; ky < kernel_h; ky++) {
      for (int kx = 0; kx < kernel_w; kx++) {
        global const ELEM* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        for (int begin = 0; begin < words; begin += chunk_words) {
          int end = min(begin + chunk_words, words);
          for (int word = begin; word < end; word++) {
            uint inputs[TILE_W];
#define READ(p) inputs[p] = WORD_AT(source[p] + word * 4);
            EACH_PIXEL(READ)
#define ADD(p, v)                                       \
  {                                                     \
    float4 a = FLOATS_OF(inputs[p]);                    \
    sum[p][v] = mad(factor[0], (float4)a.x, sum[p][v]); \
    sum[p][v] = mad(factor[1], (float4)a.y, sum[p][v]); \
    sum[p][v] = mad(factor[2], (float4)a.z, sum[p][v]); \
    sum[p][v] = mad(factor[3], (float4)a.w, sum[p][v]); \
  }
#define ADD_VECTOR(v)                         \
  {                                           \
    uint4 w = weight[v];                      \
    float4 factor[4];                         \
    factor[0] = FLOATS_OF(w.x) - weight_zero; \
    factor[1] = FLOATS_OF(w.y) - weight_zero; \
    factor[2] = FLOATS_OF(w.z) - weight_zero; \
    factor[3] = FLOATS_OF(w.w) - weight_zero; \
    EACH_PIXEL_OF(ADD, v)                     \
  }
            EACH_VECTOR(ADD_VECTOR)
            weight += VECTORS;
          }
#if HAS_CHUNKS
#define MOVE(p, v)                        \
  total[p][v] += convert_int4(sum[p][v]); \
  sum[p][v] = 0.0f;
          EACH_PIXEL_AND_VECTOR(MOVE)
#endif
        }
      }
    }
    int4 low = OUTPUT_MIN;
    int4 high = OUTPUT_MAX;
    int4 output_zero = OUTPUT_ZERO;
#if HAS_CHUNKS
#define SUM total
#else
#define SUM sum
#endif
#define NEXT(p, v) SUM[p][v] = SUM[(p + 1) % TILE_W][v];
#define FINISH(v)                                                                  \
  {                                                                                \
    int4 bias = vload4(v, channel);                                                \
    int4 multiplier = vload4(v, channel + out_c);                                  \
    int4 shift = vload4(v, channel + 2 * out_c);                                   \
    global uchar* output = arena + OUTPUT + pixel * out_c + first_channel + 4 * v; \
    for (int p = 0; p < TILE_W; p++) {                                             \
      int4 result = convert_int4(SUM[0][v]) + bias;                                \
      result = REQUANTIZE4(result, multiplier, shift) + output_zero;               \
      STORE_BYTES(WITH_RESIDUALS(4, clamp(result, low, high), output), output);    \
      output += out_c;                                                             \
      EACH_PIXEL_OF(NEXT, v)                                                       \
    }                                                                              \
  }
    // Pixels move to the first place one after the other: no variable can tell a register.
    EACH_VECTOR(FINISH)
  }
}

KERNEL(conv_2d_float4_quant8)
