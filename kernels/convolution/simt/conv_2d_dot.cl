// SPDX-License-Identifier: Apache-2.0
// Macros: those of words.clh, finish.clh and dot.clh; TILE_W output pixels and
// VECTORS x 4 output channels a work-item; HAS_PIXEL_SUMS, 1 where weights less their zero point
// are no int8.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "words.clh"
#include "finish.clh"
#include "windows.clh"
#include "dot.clh"

DEFINE_FINISH(4)

#define BLOCK (4 * VECTORS)

// Inputs of the type that DOT4 takes: 128 less or more than stored, which the bias makes up for.
#define FLIP (IS_SIGNED == DOT_IS_SIGNED ? 0u : 0x80808080u)

#if TILE_W == 4
#define MOVE_UP(v)       \
  sum[0][v] = sum[1][v]; \
  sum[1][v] = sum[2][v]; \
  sum[2][v] = sum[3][v];
#else
#define MOVE_UP(v)
#endif

// The sums of conv_2d_quant8 for TILE_W pixels x BLOCK channels a work-item, four terms at a time.
// Where what was taken from the weights is not their zero point, the difference times the sum of
// all inputs of a window is added. The last block of pixels or channels overlaps the one before it
// and writes the same values again.
// tile: TILE_ITEMS blocks of pixels x channels, pixels first; tiles: ceil(ITEMS / TILE_ITEMS)
TILE(conv_2d_dot_quant8) {
  int items = ITEMS;
  int tile_items = TILE_ITEMS;
  int pixel_blocks = PIXEL_BLOCKS;
  int out_c = OUT_C;
  int kernel_h = KERNEL_H;
  int kernel_w = KERNEL_W;
  int words = WORDS;
  for (int i = get_local_id(0); i < tile_items; i += get_local_size(0)) {
    int item = tile * tile_items + i;
    if (item >= items) break;
    int block = item / pixel_blocks;
    int pixel = min((item - block * pixel_blocks) * TILE_W, PIXELS - TILE_W);
    int first_channel = min(block * BLOCK, out_c - BLOCK);
    global const int4* channel = (global const int4*)(constants + CHANNELS) + block * (3 * VECTORS);
    BEGIN_WINDOWS(pixel);
    int4 sum[TILE_W][VECTORS];
#if HAS_PIXEL_SUMS
    int pixel_sum[TILE_W];
#endif
    UNROLLED (p, TILE_W) {
#if HAS_PIXEL_SUMS
      pixel_sum[p] = 0;
#endif
      UNROLLED (v, VECTORS) sum[p][v] = channel[v];
    }
    global const uint4* weight = (global const uint4*)(constants + WEIGHTS) +
                                 block * (kernel_h * kernel_w * words * VECTORS);
    for (int ky = 0; ky < kernel_h; ky++) {
      for (int kx = 0; kx < kernel_w; kx++) {
        global const ELEM* source[TILE_W];
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        for (int word = 0; word < words; word++) {
#if HAS_PIXEL_SUMS
          uint ones = word == words - 1 ? LAST_ONES : 0x01010101;
#endif
          uint4 w[VECTORS];
          UNROLLED (v, VECTORS) w[v] = weight[v];
          weight += VECTORS;
          UNROLLED (p, TILE_W) {
            uint a = WORD_AT(source[p] + word * 4) ^ FLIP;
            UNROLLED (v, VECTORS) {
              sum[p][v].x = DOT4(a, w[v].x, sum[p][v].x);
              sum[p][v].y = DOT4(a, w[v].y, sum[p][v].y);
              sum[p][v].z = DOT4(a, w[v].z, sum[p][v].z);
              sum[p][v].w = DOT4(a, w[v].w, sum[p][v].w);
            }
#if HAS_PIXEL_SUMS
            pixel_sum[p] = DOT4(a, ones, pixel_sum[p]);
#endif
          }
        }
      }
    }
#if HAS_PIXEL_SUMS
    int difference = DIFFERENCE;
    UNROLLED (p, TILE_W) {
      int more = pixel_sum[p] * difference;
      UNROLLED (v, VECTORS) sum[p][v] += more;
    }
#endif
    RESULT_BOUNDS(int4);
#define FINISH(v)                                                                          \
  {                                                                                        \
    int4 multiplier = channel[VECTORS + v];                                                \
    int4 shift = channel[2 * VECTORS + v];                                                 \
    global uchar* output = arena + OUTPUT + pixel * out_c + first_channel + 4 * v;         \
    for (int p = 0; p < TILE_W; p++) {                                                     \
      STORE_BYTES(FINISHED(4, sum[0][v], multiplier, shift, output_zero, output), output); \
      output += out_c;                                                                     \
      MOVE_UP(v)                                                                           \
    }                                                                                      \
  }
    // Pixels move to the first place one after the other: no variable can tell a register.
    FINISH(0)
#if VECTORS == 2
    FINISH(1)
#endif
  }
}

KERNEL(conv_2d_dot_quant8)
