// SPDX-License-Identifier: Apache-2.0
// Macros: those of words.clh and finish.clh; TILE_W, 4, 8 or 16 output pixels
// and VECTORS x 4 output channels a work-item; IS_MATRIX, 1 for windows of one pixel, side by side;
// HAS_WEIGHT_ZERO, 0 where the weights' zero point is 0 in int8.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "words.clh"
#include "finish.clh"

DEFINE_FINISH(4)

#define BLOCK (4 * VECTORS)

// A word of each pixel, in local memory, which lies at a multiple of 4 bytes.
typedef JOIN(uint, TILE_W) LOCAL(pixel_words) __attribute__((aligned(4)));

// Adds four terms of a pixel times their weights, for all channels of the block.
#define ADD_WORD(p, word)                                                                         \
  do {                                                                                            \
    int4 a0 = BYTE_OF(word, 0);                                                                   \
    int4 a1 = BYTE_OF(word, 1);                                                                   \
    int4 a2 = BYTE_OF(word, 2);                                                                   \
    int4 a3 = BYTE_OF(word, 3);                                                                   \
    for (int v = 0; v < VECTORS; v++)                                                             \
      sum[p][v] += factor[v][0] * a0 + factor[v][1] * a1 + factor[v][2] * a2 + factor[v][3] * a3; \
  } while (0)

// The sums of conv_2d_quant8 for TILE_W pixels x BLOCK channels a work-item. The pixels' windows
// are first put into local memory, as words of four terms, the TILE_W pixels' next to each other,
// so that one load of a wide vector brings a word of each: for devices on which loads are dear
// whatever their width. The last tile of pixels overlaps the one before it and writes the same
// values again.
// NOTE: llvmpipe keeps what is used after a barrier in registers only where no loop is around both.
// tile: TILE_W pixels x TILE_ITEMS blocks of channels; tiles: ceil(n*out_h*out_w / TILE_W) *
// CHANNEL_GROUPS, those of the same pixels next to each other
TILE(conv_2d_staged_quant8) {
  int channel_groups = CHANNEL_GROUPS;
  int pixel_tile = tile / channel_groups;
  int group = tile - pixel_tile * channel_groups;
  int first_pixel = min(pixel_tile * TILE_W, PIXELS - TILE_W);
  int words = WORDS;
  int in_c = IN_C;
  global const uchar* input = arena + INPUT;
  int id = get_local_id(0);
  int size = get_local_size(0);
#if IS_MATRIX
  for (int i = id; i < words * TILE_W; i += size) {
    int pixel = first_pixel + (i & (TILE_W - 1));
    scratch[i] = WORD_AT(input + pixel * in_c + i / TILE_W * 4);
  }
#else
  // The first byte of the pixel that each tap of each window reads, or -1.
  local int* places = scratch + STEPS * TILE_W;
  int kernel_h = KERNEL_H;
  int kernel_w = KERNEL_W;
  int in_h = IN_H;
  int in_w = IN_W;
  for (int i = id; i < TILE_W; i += size) {
    int row = (first_pixel + i) / OUT_W;
    int n = row / OUT_H;
    int first_x = (first_pixel + i - row * OUT_W) * STRIDE_W - PAD_LEFT;
    int y = (row - n * OUT_H) * STRIDE_H - PAD_TOP;
    int at = i;
    for (int ky = 0; ky < kernel_h; ky++) {
      int x = first_x;
      for (int kx = 0; kx < kernel_w; kx++) {
        int inside = x >= 0 && x < in_w && y >= 0 && y < in_h;
        places[at] = inside ? ((n * in_h + y) * in_w + x) * in_c : -1;
        at += TILE_W;
        x += DILATION_W;
      }
      y += DILATION_H;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  int zeros = (INPUT_ZERO & 255) * 0x01010101;
  for (int tap = 0; tap < kernel_h * kernel_w; tap++) {
    for (int i = id; i < words * TILE_W; i += size) {
      int place = places[tap * TILE_W + (i & (TILE_W - 1))];
      int loaded = WORD_AT(input + max(place, 0) + i / TILE_W * 4);
      scratch[tap * words * TILE_W + i] = place < 0 ? zeros : loaded;
    }
  }
#endif
  barrier(CLK_LOCAL_MEM_FENCE);
  int tile_items = TILE_ITEMS;
  int steps = STEPS;
  int out_c = OUT_C;
  int weight_zero = (ELEM)WEIGHT_ZERO;  // known to be small, it leaves small products
  RESULT_BOUNDS(int4);
  for (int item = id; item < tile_items; item += size) {
    global const uint4* weight =
        (global const uint4*)(constants + WEIGHTS) + (group * steps * tile_items + item) * VECTORS;
    int4 sum[TILE_W][VECTORS];
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) sum[p][v] = 0;
    for (int step = 0; step < steps; step++) {
      JOIN(uint, TILE_W) a = *(local const LOCAL(pixel_words)*)(scratch + step * TILE_W);
      int4 factor[VECTORS][4];
      UNROLLED (v, VECTORS) {
        uint4 w = weight[v];
        factor[v][0] = (int4)(BYTE_OF(w.x, 0), BYTE_OF(w.x, 1), BYTE_OF(w.x, 2), BYTE_OF(w.x, 3));
        factor[v][1] = (int4)(BYTE_OF(w.y, 0), BYTE_OF(w.y, 1), BYTE_OF(w.y, 2), BYTE_OF(w.y, 3));
        factor[v][2] = (int4)(BYTE_OF(w.z, 0), BYTE_OF(w.z, 1), BYTE_OF(w.z, 2), BYTE_OF(w.z, 3));
        factor[v][3] = (int4)(BYTE_OF(w.w, 0), BYTE_OF(w.w, 1), BYTE_OF(w.w, 2), BYTE_OF(w.w, 3));
#if HAS_WEIGHT_ZERO
        for (int t = 0; t < 4; t++) factor[v][t] -= weight_zero;
#endif
      }
      weight += tile_items * VECTORS;
      ADD_WORD(0, a.s0);
      ADD_WORD(1, a.s1);
      ADD_WORD(2, a.s2);
      ADD_WORD(3, a.s3);
#if TILE_W > 4
      ADD_WORD(4, a.s4);
      ADD_WORD(5, a.s5);
      ADD_WORD(6, a.s6);
      ADD_WORD(7, a.s7);
#endif
#if TILE_W > 8
      ADD_WORD(8, a.s8);
      ADD_WORD(9, a.s9);
      ADD_WORD(10, a.sa);
      ADD_WORD(11, a.sb);
      ADD_WORD(12, a.sc);
      ADD_WORD(13, a.sd);
      ADD_WORD(14, a.se);
      ADD_WORD(15, a.sf);
#endif
    }
    int first_channel = min((group * tile_items + item) * BLOCK, out_c - BLOCK);
    global const int* channel = (global const int*)(constants + CHANNELS) + first_channel;
    global uchar* output = arena + OUTPUT + first_pixel * out_c + first_channel;
    int4 bias[VECTORS];
    int4 multiplier[VECTORS];
    int4 shift[VECTORS];
    UNROLLED (v, VECTORS) {
      bias[v] = vload4(v, channel);
      multiplier[v] = vload4(v, channel + out_c);
      shift[v] = vload4(v, channel + 2 * out_c);
    }
    // Once for all pixels: code has its price, too, where each launch loads it.
#pragma unroll 1
    for (int p = 0; p < TILE_W; p++) {
      UNROLLED (v, VECTORS) {
        int4 total = sum[0][v];
#pragma unroll
        for (int other = 1; other < TILE_W; other++) total = p == other ? sum[other][v] : total;
        int4 result =
            FINISHED(4, total + bias[v], multiplier[v], shift[v], output_zero, output + 4 * v);
        STORE_BYTES(result, output + 4 * v);
      }
      output += out_c;
    }
  }
}

KERNEL(conv_2d_staged_quant8)
