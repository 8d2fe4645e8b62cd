// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' type, uchar or char, and IS_SIGNED; TAPS_H, TAPS_W, STEP_H and
// STEP_W, the window's size and strides; TILE_W output pixels of a row at once; those of
// requantize_word.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "ptx.clh"
#include "requantize_word.clh"

#define COLUMNS ((TILE_W - 1) * STEP_W + TAPS_W)
#define SLOTS ((TAPS_H + 1) / 2)  // pairs of a window's rows; the last may be one row
#define NEW_ROWS (STEP_H < TAPS_H ? STEP_H : TAPS_H)  // of a window that the one above it has not

// A row's words, zero points where it or a column is out of bounds.
static void LOCAL(load_row)(uint row[COLUMNS], global const uchar* source, int is_row, int first_x,
                            int in_w, int pixel_bytes, uint zeros) {
  UNROLLED (column, COLUMNS) {
    row[column] = zeros;
    if (is_row && (uint)(first_x + column) < (uint)in_w)
      row[column] = *(global const uint*)(source + column * pixel_bytes);
  }
}

// output as in depthwise_conv_2d.cl for a depth multiplier of 1 and channels in fours, which are a
// word. A dot product takes a channel's bytes of two rows, zipped, and their two 16-bit weights
// less their zero point: exact, without unpacking. Items go down TILE_H rows and load the next
// window's new rows ahead. The input's zero point is in the bias; a word out of bounds holds zero
// points. The last blocks of a row and of rows overlap the ones before, and items beyond the last
// do its work again: no short stores.
// tile: TILE_ITEMS blocks of 4 channels x TILE_W x TILE_H pixels, channels first; tiles:
// ceil(blocks / TILE_ITEMS)
TILE(depthwise_conv_2d_dp4a_quant8) {
  int blocks = CHANNEL_BLOCKS;
  int row_blocks = ROW_BLOCKS;
  int column_blocks = COLUMN_BLOCKS;
  int items = ITEMS;
  int tile_items = TILE_ITEMS;
  int tile_h = TILE_H;
  int in_h = IN_H;
  int in_w = IN_W;
  int out_h = OUT_H;
  int out_w = OUT_W;
  int dilation_h = DILATION_H;
  int pad_top = PAD_TOP;
  int pad_left = PAD_LEFT;
  uint zeros = (uint)INPUT_ZEROS;
  int3 range = (int3)(OUTPUT_ZERO, OUTPUT_MIN, OUTPUT_MAX);
  global const uchar* input = arena + INPUT;
  global uint* output = (global uint*)(arena + OUTPUT);
  global const int* channels = (global const int*)(constants + CHANNELS);
  global const int4* weights = (global const int4*)(constants + WEIGHTS);
  int pixel_bytes = blocks * 4;
  int row_bytes = in_w * pixel_bytes;
  for (int i = get_local_id(0); i < tile_items; i += get_local_size(0)) {
    int item = min(tile * tile_items + i, items - 1);
    int rest = item / blocks;
    int block = item - rest * blocks;
    int column_block = rest / row_blocks;
    int x = min((rest - column_block * row_blocks) * TILE_W, out_w - TILE_W);
    int n = column_block / column_blocks;
    int y = min((column_block - n * column_blocks) * tile_h, out_h - tile_h);
    int in_y = y * STEP_H - pad_top;
    int in_x = x * STEP_W - pad_left;
    global const uchar* source =
        input + (n * in_h + in_y) * row_bytes + in_x * pixel_bytes + block * 4;
    global uint* to = output + ((n * out_h + y) * out_w + x) * blocks + block;
    LOCAL(scaling) by = LOCAL(load_scaling)(channels + block * 4, blocks * 4);
    uint rows[TAPS_H][COLUMNS];
    UNROLLED (r, TAPS_H)
      LOCAL(load_row)(rows[r], source + r * dilation_h * row_bytes,
                      (uint)(in_y + r * dilation_h) < (uint)in_h, in_x, in_w, pixel_bytes, zeros);
    int4 weight[SLOTS * TAPS_W];
    UNROLLED (k, SLOTS * TAPS_W) weight[k] = weights[k * blocks + block];

    for (int left = tile_h;;) {
      uint ahead[NEW_ROWS][COLUMNS];
      in_y += STEP_H;
      source += STEP_H * row_bytes;
      if (left > 1) {
        UNROLLED (r, NEW_ROWS) {
          int below = TAPS_H - NEW_ROWS + r;
          LOCAL(load_row)(ahead[r], source + below * row_bytes, (uint)(in_y + below) < (uint)in_h,
                          in_x, in_w, pixel_bytes, zeros);
        }
      }
      int sum[TILE_W][4];
      UNROLLED (p, TILE_W) vstore4(by.bias, 0, sum[p]);
      UNROLLED (slot, SLOTS) {
        // A single row's second weights are 0.
        int below = 2 * slot + 1 < TAPS_H ? 2 * slot + 1 : 2 * slot;
        uint low[COLUMNS];
        uint high[COLUMNS];
        UNROLLED (column, COLUMNS) {
          low[column] = LOCAL(zip_low)(rows[2 * slot][column], rows[below][column]);
          high[column] = LOCAL(zip_high)(rows[2 * slot][column], rows[below][column]);
        }
        UNROLLED (kx, TAPS_W) {
          int4 factor = weight[slot * TAPS_W + kx];
          UNROLLED (p, TILE_W) {
            int column = p * STEP_W + kx;
            sum[p][0] = LOCAL(dp2a_low)(factor.x, low[column], sum[p][0]);
            sum[p][1] = LOCAL(dp2a_high)(factor.y, low[column], sum[p][1]);
            sum[p][2] = LOCAL(dp2a_low)(factor.z, high[column], sum[p][2]);
            sum[p][3] = LOCAL(dp2a_high)(factor.w, high[column], sum[p][3]);
          }
        }
      }
      if (LOCAL(is_float)(by)) {
        UNROLLED (p, TILE_W) to[p * blocks] = LOCAL(to_word_float)(vload4(0, sum[p]), by, range);
      } else {
        UNROLLED (p, TILE_W) to[p * blocks] = LOCAL(to_word_fixed)(vload4(0, sum[p]), by, range);
      }
      left--;
      if (left == 0) break;
      to += out_w * blocks;
      UNROLLED (r, TAPS_H) {
        UNROLLED (column, COLUMNS)
          rows[r][column] = r + STEP_H < TAPS_H ? rows[r + STEP_H < TAPS_H ? r + STEP_H : r][column]
                                                : ahead[r - (TAPS_H - NEW_ROWS)][column];
      }
    }
  }
}

KERNEL(depthwise_conv_2d_dp4a_quant8)
