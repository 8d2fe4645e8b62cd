// SPDX-License-Identifier: Apache-2.0
// Macros: for all kernels but the plain one LANES channels and TILE_W output pixels of a row a
// work-item, and IS_ALIGNED, see float.clh; for the 3x3 kernel HOP, the stride along a row; for the
// columns kernel ASKS_AHEAD, 1 where it asks for the inputs of blocks of channels that follow.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "float.clh"

#if USES_DEPTHWISE_CONV_2D_FLOAT
// output[n,y,x,o] = sum over the in-bounds window of input[..,o / depth_multiplier] *
// weights[ky,kx,o], plus bias, clamped   NHWC, 1HWO
// Source: reference/depthwiseconv_float.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(depthwise_conv_2d_float) {
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT);
  global const STORED_FLOAT* weights = (global const STORED_FLOAT*)(constants + WEIGHTS);
  global const float* bias = (global const float*)(constants + BIAS);
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT);
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    float sum = BIAS_FIRST(bias[o]);
    EACH_TAP_INSIDE (ky, kx) {
      int place = ((n * IN_H + in_y) * IN_W + in_x) * IN_C + o / DEPTH_MULTIPLIER;
      float weight = LOAD_FLOAT((ky * KERNEL_W + kx) * OUT_C + o, weights);
      sum = MULTIPLY_ADD(LOAD_FLOAT(place, input), weight, sum);
    }
    STORE_FLOAT(ACTIVATE(BIAS_LAST(sum, bias[o]), low, high), element, output);
  }
}

KERNEL(depthwise_conv_2d_float)
#endif

#define FLOATS JOIN(float, LANES)
// A window's few products of a channel are added as REALs, see float.clh.
#define REALS JOIN(REAL, LANES)
#define LOAD_BIAS(c) TO_REALS(LOAD_WHOLE_FLOATS(0, (global const float*)(constants + BIAS) + (c)))

#if USES_DEPTHWISE_CONV_2D_VECTOR_FLOAT
// The same for a depth multiplier of 1, LANES channels and TILE_W neighbouring pixels at a time. A
// pixel out of bounds reads zeros kept among the constants. The last block of pixels or channels
// overlaps the one before it and writes the same values again: no short stores.
// tile: TILE_ITEMS blocks of LANES channels x TILE_W pixels, channels first; tiles:
// ceil(blocks / TILE_ITEMS)
TILE(depthwise_conv_2d_vector_float) {
  int out_c = OUT_C;
  FLOAT_BOUNDS(FLOATS);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_BLOCK(item, out_c);
    REALS bias = LOAD_BIAS(c);
    REALS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = BIAS_FIRST(bias);
    for (int ky = 0; ky < KERNEL_H; ky++) {
      int in_y = y * STRIDE_H - PAD_TOP + ky * DILATION_H;
      if (in_y < 0 || in_y >= IN_H) continue;
      global const STORED_FLOAT* row =
          (global const STORED_FLOAT*)(arena + INPUT) + (n * IN_H + in_y) * IN_W * out_c + c;
      global const STORED_FLOAT* weight =
          (global const STORED_FLOAT*)(constants + WEIGHTS) + ky * KERNEL_W * out_c + c;
      for (int kx = 0; kx < KERNEL_W; kx++) {
        REALS factor = LOAD_REALS(0, weight);
        weight += out_c;
        UNROLLED (p, TILE_W) {
          int in_x = (x + p) * STRIDE_W - PAD_LEFT + kx * DILATION_W;
          global const STORED_FLOAT* source = in_x >= 0 && in_x < IN_W
                                                  ? row + in_x * out_c
                                                  : (global const STORED_FLOAT*)(constants + ZEROS);
          sum[p] = ADD_PRODUCT(LOAD_REALS(0, source), factor, sum[p]);
        }
      }
    }
    global STORED_FLOAT* output =
        (global STORED_FLOAT*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x) * out_c + c;
    UNROLLED (p, TILE_W)
      STORE_FLOATS(ACTIVATE(FROM_REALS(BIAS_LAST(sum[p], bias)), low, high), 0, output + p * out_c);
  }
}

KERNEL(depthwise_conv_2d_vector_float)
#endif

#if USES_DEPTHWISE_CONV_2D_3X3_FLOAT
// The same for windows of 3x3 that leave a row by one pixel at most: of all pixels of a block, only
// its first and its last can be out of bounds.
// tile: TILE_ITEMS blocks of LANES channels x TILE_W pixels, channels first; tiles:
// ceil(blocks / TILE_ITEMS)
TILE(depthwise_conv_2d_3x3_float) {
  int out_c = OUT_C;
  FLOAT_BOUNDS(FLOATS);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_BLOCK(item, out_c);
    int in_x = x * HOP - PAD_LEFT;
    int is_first_inside = in_x >= 0;
    int is_last_inside = in_x + (TILE_W - 1) * HOP + 2 < IN_W;
    global const STORED_FLOAT* zeros = (global const STORED_FLOAT*)(constants + ZEROS);
    REALS bias = LOAD_BIAS(c);
    REALS sum[TILE_W];
    UNROLLED (p, TILE_W) sum[p] = BIAS_FIRST(bias);
    for (int ky = 0; ky < 3; ky++) {
      int in_y = y * STRIDE_H - PAD_TOP + ky * DILATION_H;
      if (in_y < 0 || in_y >= IN_H) continue;
      global const STORED_FLOAT* row = (global const STORED_FLOAT*)(arena + INPUT) +
                                       ((n * IN_H + in_y) * IN_W + in_x) * out_c + c;
      global const STORED_FLOAT* first = is_first_inside ? row : zeros;
      global const STORED_FLOAT* last =
          is_last_inside ? row + ((TILE_W - 1) * HOP + 2) * out_c : zeros;
      global const STORED_FLOAT* weight =
          (global const STORED_FLOAT*)(constants + WEIGHTS) + ky * 3 * out_c + c;
      UNROLLED (kx, 3) {
        REALS factor = LOAD_REALS(0, weight + kx * out_c);
        UNROLLED (p, TILE_W) {
          global const STORED_FLOAT* source = row + (p * HOP + kx) * out_c;
          if (p == 0 && kx == 0) source = first;
          if (p == TILE_W - 1 && kx == 2) source = last;
          sum[p] = ADD_PRODUCT(LOAD_REALS(0, source), factor, sum[p]);
        }
      }
    }
    global STORED_FLOAT* output =
        (global STORED_FLOAT*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x) * out_c + c;
    UNROLLED (p, TILE_W)
      STORE_FLOATS(ACTIVATE(FROM_REALS(BIAS_LAST(sum[p], bias)), low, high), 0, output + p * out_c);
  }
}

KERNEL(depthwise_conv_2d_3x3_float)
#endif

#if USES_DEPTHWISE_CONV_2D_COLUMNS_FLOAT
// Adds what input j of a row gives to sums of a row of outputs, of whose windows it is in row ky.
#define ADD_INPUT(sum, ky)                                                  \
  UNROLLED (kx, 3) {                                                        \
    if (j >= kx && j - kx < TILE_W)                                         \
      sum[j - kx] = ADD_PRODUCT(input, factor[(ky) * 3 + kx], sum[j - kx]); \
  }
// Does so for a row's inputs, if the row is inside, and goes on to the next row.
#define EACH_INPUT(additions)                              \
  if (in_y >= 0 && in_y < in_h) {                          \
    UNROLLED (j, TILE_W + 2) {                             \
      global const STORED_FLOAT* source = row + j * out_c; \
      if (j == 0) source = first;                          \
      if (j == TILE_W + 1) source = last;                  \
      if (ASKS_AHEAD) ASK_FOR(source + 4 * LANES);         \
      REALS input = LOAD_REALS(0, source);                 \
      additions                                            \
    }                                                      \
  }                                                        \
  in_y++;                                                  \
  row += in_step;                                          \
  first += first_step;                                     \
  last += last_step;
// Also asks for where the next block of channels goes: another core may have read it last.
#define STORE_ROW(sum)                                                                             \
  UNROLLED (p, TILE_W) {                                                                           \
    STORE_FLOATS(ACTIVATE(FROM_REALS(BIAS_LAST(sum[p], bias)), low, high), 0, output + p * out_c); \
    ASK_TO_WRITE(output + p * out_c + LANES);                                                      \
  }                                                                                                \
  output += out_step;

// The same for windows of 3x3, strides of 1 and groups of one work-item. A block goes down the rows
// of a band with the sums of three rows of outputs, and loads each input once. Blocks of channels
// follow each other, so that caches see them coming.
// tile: PART_BLOCKS blocks of channels in BAND_ROWS rows; tiles: pictures * BANDS * PARTS
TILE(depthwise_conv_2d_columns_float) {
  int out_c = OUT_C;
  int in_h = IN_H;
  int in_step = IN_W * out_c;
  int out_step = OUT_W * out_c;
  FLOAT_BOUNDS(FLOATS);
  int part = tile % PARTS;
  int band = tile / PARTS % BANDS;
  int n = tile / PARTS / BANDS;
  int y = band * BAND_ROWS;
  int rows = min(BAND_ROWS, OUT_H - y);
  int blocks = min(PART_BLOCKS, CHANNEL_BLOCKS - part * PART_BLOCKS);
  for (int i = get_local_id(0); i < blocks * ROW_BLOCKS; i += get_local_size(0)) {
    int c = min((part * PART_BLOCKS + i % blocks) * LANES, out_c - LANES);
    int x = min(i / blocks * TILE_W, OUT_W - TILE_W);
    int in_x = x - PAD_LEFT;
    int in_y = y - PAD_TOP;
    int is_first_inside = in_x >= 0;
    int is_last_inside = in_x + TILE_W + 1 < IN_W;
    int first_step = is_first_inside ? in_step : 0;
    int last_step = is_last_inside ? in_step : 0;
    global const STORED_FLOAT* zeros = (global const STORED_FLOAT*)(constants + ZEROS);
    global const STORED_FLOAT* row =
        (global const STORED_FLOAT*)(arena + INPUT) + ((n * in_h + in_y) * IN_W + in_x) * out_c + c;
    global const STORED_FLOAT* first = is_first_inside ? row : zeros;
    global const STORED_FLOAT* last = is_last_inside ? row + (TILE_W + 1) * out_c : zeros;
    global STORED_FLOAT* output =
        (global STORED_FLOAT*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x) * out_c + c;
    REALS bias = LOAD_BIAS(c);
    REALS factor[9];
    UNROLLED (k, 9)
      factor[k] = LOAD_REALS(0, (global const STORED_FLOAT*)(constants + WEIGHTS) + k * out_c + c);
    // Rows of outputs whose windows end, are halfway and begin with the row of inputs.
    REALS above[TILE_W];
    REALS here[TILE_W];
    REALS below[TILE_W];
    UNROLLED (p, TILE_W) above[p] = here[p] = BIAS_FIRST(bias);
    EACH_INPUT(ADD_INPUT(above, 0))
    EACH_INPUT(ADD_INPUT(above, 1) ADD_INPUT(here, 0))
    for (int r = 1; r < rows; r++) {
      UNROLLED (p, TILE_W) below[p] = BIAS_FIRST(bias);
      EACH_INPUT(ADD_INPUT(above, 2) ADD_INPUT(here, 1) ADD_INPUT(below, 0))
      STORE_ROW(above)
      UNROLLED (p, TILE_W) {
        above[p] = here[p];
        here[p] = below[p];
      }
    }
    EACH_INPUT(ADD_INPUT(above, 2))
    STORE_ROW(above)
  }
}

KERNEL(depthwise_conv_2d_columns_float)
#endif
