// SPDX-License-Identifier: Apache-2.0
// Macros: VECTORS of LANES channels x TILE_W pixels a work-item; IS_NARROW, 1 where there are fewer
// channels than LANES, which is 4 then.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"

#define FLOATS JOIN(float, LANES)

// transpose_conv_float for blocks of pixels that meet the same taps: neighbours in a grid of one
// output pixel in each stride, whichever rows they lie in. Weights are loaded once for TILE_W
// pixels x VECTORS vectors of channels. The last block of pixels or channels overlaps the one
// before it and writes the same values again. Grids are numbered row by row by where they begin.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(transpose_conv_tiled_float) {
  int block = tile / BLOCK_TILES;
  int in_c = IN_C, in_w = IN_W, in_h = IN_H, out_c = OUT_C;
  FLOAT_BOUNDS(FLOATS);
  global const float* input = (global const float*)(arena + INPUT);
  EACH_ITEM_OR_NONE (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    int phase = item / PHASE_BLOCKS;
    int first_y = phase / PHASES_W, first_x = phase % PHASES_W;
    int rows = (OUT_H - first_y + STRIDE_H - 1) / STRIDE_H;
    int columns = (OUT_W - first_x + STRIDE_W - 1) / STRIDE_W;
    int pixel = min(item % PHASE_BLOCKS * TILE_W, BATCH * rows * columns - TILE_W);
    // The first tap of each pixel: its place in the input, and the pixel's in the output.
    int in_y[TILE_W], in_x[TILE_W], out[TILE_W];
    int picture[TILE_W];
    UNROLLED (p, TILE_W) {
      int y = (pixel + p) / columns, x = (pixel + p) % columns;
      int n = y / rows;
      y -= n * rows;
      in_y[p] = y + (first_y + PAD_TOP) / STRIDE_H;
      in_x[p] = x + (first_x + PAD_LEFT) / STRIDE_W;
      picture[p] = n * in_h;
      out[p] = ((n * OUT_H + first_y + y * STRIDE_H) * OUT_W + first_x + x * STRIDE_W) * out_c;
    }
    FLOATS sum[TILE_W][VECTORS];
    UNROLLED (v, VECTORS) {
      int c = IS_NARROW ? 0 : min((block * VECTORS + v) * LANES, out_c - LANES);
      FLOATS bias = LOAD_FLOATS(0, (global const float*)(constants + BIAS) + c);
      UNROLLED (p, TILE_W) sum[p][v] = bias;
    }
    int up = 0;
    for (int ky = (first_y + PAD_TOP) % STRIDE_H; ky < KERNEL_H; ky += STRIDE_H, up++) {
      int left = 0;
      for (int kx = (first_x + PAD_LEFT) % STRIDE_W; kx < KERNEL_W; kx += STRIDE_W, left++) {
        global const float* source[TILE_W];
        UNROLLED (p, TILE_W) {
          int y = in_y[p] - up, x = in_x[p] - left;
          int inside = y >= 0 && y < in_h && x >= 0 && x < in_w;
          source[p] = inside ? input + ((picture[p] + y) * in_w + x) * in_c
                             : (global const float*)(constants + ZEROS);
        }
        int tap = (block * KERNEL_H + ky) * KERNEL_W + kx;
        global const float* weight =
            (global const float*)(constants + WEIGHTS) + tap * in_c * (VECTORS * LANES);
        for (int k = 0; k < in_c; k++) {
          FLOATS factor[VECTORS];
          UNROLLED (v, VECTORS) factor[v] = LOAD_FLOATS(k * VECTORS + v, weight);
          UNROLLED (p, TILE_W) {
            FLOATS a = source[p][k];
            UNROLLED (v, VECTORS) sum[p][v] = MULTIPLY_ADD(factor[v], a, sum[p][v]);
          }
        }
      }
    }
    UNROLLED (p, TILE_W) {
      UNROLLED (v, VECTORS) {
        global float* output = (global float*)(arena + OUTPUT) + out[p];
        FLOATS result = ACTIVATE(sum[p][v], low, high);
#if IS_NARROW
        output[0] = result.s0;
        if (out_c > 1) output[1] = result.s1;
        if (out_c > 2) output[2] = result.s2;
#else
        int c = min((block * VECTORS + v) * LANES, out_c - LANES);
        STORE_FLOATS(result, 0, output + c);
#endif
      }
    }
  }
}

KERNEL(transpose_conv_tiled_float)
