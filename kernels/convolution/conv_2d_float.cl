// SPDX-License-Identifier: Apache-2.0
// Macros: for the tiled kernels LANES x VECTORS output channels and TILE_W output pixels a
// work-item; those of finish.clh; IS_ALIGNED, see float.clh: then LANES is 4, of halves 4 or 8, and
// the 1x1 kernel loads as many terms.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "float.clh"
#include "finish.clh"

#if USES_CONV_2D_FLOAT
// output[n,y,x,o] = sum over the in-bounds window of input * weights[o,ky,kx,i], plus bias, clamped
// NHWC, OHWI   Source: reference/conv.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(conv_2d_float) {
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT);
  global const STORED_FLOAT* weights = (global const STORED_FLOAT*)(constants + WEIGHTS);
  global const float* bias = (global const float*)(constants + BIAS);
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT);
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    float sum = BIAS_FIRST(bias[o]);
    EACH_TAP_INSIDE (ky, kx) {
      global const STORED_FLOAT* source = input + ((n * IN_H + in_y) * IN_W + in_x) * IN_C;
      global const STORED_FLOAT* weight = weights + ((o * KERNEL_H + ky) * KERNEL_W + kx) * IN_C;
      for (int c = 0; c < IN_C; c++)
        sum = MULTIPLY_ADD(LOAD_FLOAT(c, source), LOAD_FLOAT(c, weight), sum);
    }
    sum = ACTIVATE(BIAS_LAST(sum, bias[o]), low, high);
    sum = WITH_RESIDUAL_FLOATS(float, sum, LOAD_FLOAT(element, OTHER_AT(STORED_FLOAT, output)));
    STORE_FLOAT(sum, element, output);
  }
}

KERNEL(conv_2d_float)
#endif

#define FLOATS JOIN(float, LANES)
#define REALS JOIN(REAL, LANES)
#define BLOCK (LANES * VECTORS)
// Packed weights lie at multiples of their vectors' size, however many channels there are.
#if HALVES && !HALF_ARITHMETIC
#define REALS_AT(v, weight) JOIN(vloada_half, LANES)(v, weight)
#else
#define REALS_AT(v, weight) (((global const REALS*)(weight))[v])
#endif
// Sums of halves join sums of PART_TERMS, which lose less, and get their bias in floats.
#define BIAS_AT(v) LOAD_WHOLE_FLOATS(0, (global const float*)(constants + BIAS) + channel[v])
#if HALF_ARITHMETIC
#define FIRST_SUM(v) ((REALS)0)
#define WHOLE_SUM(sum, v) (FROM_REALS(sum) + BIAS_AT(v))
#define SUMS part
#define BEGIN_PART             \
  REALS part[TILE_W][VECTORS]; \
  UNROLLED (p, TILE_W)         \
    UNROLLED (v, VECTORS) part[p][v] = 0;
#define END_PART       \
  UNROLLED (p, TILE_W) \
    UNROLLED (v, VECTORS) sum[p][v] += part[p][v];
#else
#define FIRST_SUM(v) BIAS_FIRST(BIAS_AT(v))
#define WHOLE_SUM(sum, v) BIAS_LAST(sum, BIAS_AT(v))
#define SUMS sum
#define BEGIN_PART
#define END_PART
#endif
#define STORE_SUM(p, v, to)                                                                  \
  do {                                                                                       \
    FLOATS value = ACTIVATE(WHOLE_SUM(sum[p][v], v), low, high);                             \
    value = WITH_RESIDUAL_FLOATS(FLOATS, value, LOAD_FLOATS(0, OTHER_AT(STORED_FLOAT, to))); \
    STORE_FLOATS(value, 0, to);                                                              \
  } while (0)

// Adds the term of each pixel p, `term_of_p`, times the next weights of the block.
#define ADD_TERM(term_of_p)                                                     \
  {                                                                             \
    REALS factor[VECTORS];                                                      \
    UNROLLED (v, VECTORS) factor[v] = REALS_AT(v, weight);                      \
    weight += BLOCK;                                                            \
    UNROLLED (p, TILE_W) {                                                      \
      REALS a = term_of_p;                                                      \
      UNROLLED (v, VECTORS) SUMS[p][v] = ADD_PRODUCT(factor[v], a, SUMS[p][v]); \
    }                                                                           \
  }

#if USES_CONV_2D_TILED_FLOAT
#if IS_LITERAL && KEEPS_LOOPS
#define UNROLL _Pragma("nounroll")
#elif IS_LITERAL
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

// The same for TILE_W neighbouring pixels x BLOCK channels at a time. A window's pixels of a row
// are one run of inputs, as its weights are, unless it is dilated. Where a window leaves its row,
// each pixel is asked for, and one out of bounds reads zeros kept among the constants. The last
// block of pixels, and a vector of channels that would pass the last one, overlap what lies before
// them and write the same values again: no short stores. IS_LITERAL says that sizes are literals
// and windows small enough to be unrolled, KEEPS_LOOPS that they are not.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(conv_2d_tiled_float) {
  int block = tile / BLOCK_TILES;
  int channel[VECTORS];
  UNROLLED (v, VECTORS) channel[v] = min(block * BLOCK + v * LANES, OUT_C - LANES);
  FLOAT_BOUNDS(FLOATS);
  int in_c = IN_C;
  int step = STRIDE_W * in_c;
  int runs = DILATION_W == 1 ? 1 : KERNEL_W;
  int length = DILATION_W == 1 ? KERNEL_W * in_c : in_c;
  EACH_ITEM_OR_NONE (item, tile % BLOCK_TILES, PIXEL_BLOCKS) {
    int x = min(item % ROW_BLOCKS * TILE_W, OUT_W - TILE_W);
    int rest = item / ROW_BLOCKS;
    int y = rest % OUT_H;
    int n = rest / OUT_H;
    int in_x = x * STRIDE_W - PAD_LEFT;
    int last_x = in_x + (TILE_W - 1) * STRIDE_W + (KERNEL_W - 1) * DILATION_W;
    int is_inside = in_x >= 0 && last_x < IN_W;
    REALS sum[TILE_W][VECTORS];
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) sum[p][v] = FIRST_SUM(v);
    // The window's rows inside: bounds, as `continue` for the others ends llvmpipe of Mesa 26.2.
    int top = y * STRIDE_H - PAD_TOP;
    int first_row = max((DILATION_H - 1 - top) / DILATION_H, 0);
    int end_row = min((IN_H - top + DILATION_H - 1) / DILATION_H, KERNEL_H);
    for (int ky = first_row; ky < end_row; ky++) {
      int in_y = top + ky * DILATION_H;
      global const STORED_FLOAT* weight = (global const STORED_FLOAT*)(constants + WEIGHTS) +
                                          (block * KERNEL_H + ky) * (KERNEL_W * in_c * BLOCK);
      global const STORED_FLOAT* row =
          (global const STORED_FLOAT*)(arena + INPUT) + ((n * IN_H + in_y) * IN_W + in_x) * in_c;
      if (is_inside) {
        for (int r = 0; r < runs; r++) {
          EACH_PART (from, to, length) {
            BEGIN_PART
            UNROLL
            for (int k = from; k < to; k++) ADD_TERM(LOAD_REAL(p * step + k, row))
            END_PART
          }
          row += DILATION_W * in_c;
        }
      } else {
        UNROLL
        for (int kx = 0; kx < KERNEL_W; kx++) {
          global const STORED_FLOAT* source[TILE_W];
          UNROLLED (p, TILE_W) {
            int at_x = in_x + p * STRIDE_W + kx * DILATION_W;
            source[p] = at_x >= 0 && at_x < IN_W ? row + (p * STRIDE_W + kx * DILATION_W) * in_c
                                                 : (global const STORED_FLOAT*)(constants + ZEROS);
          }
          EACH_PART (from, to, in_c) {
            BEGIN_PART
            UNROLL
            for (int k = from; k < to; k++) ADD_TERM(LOAD_REAL(k, source[p]))
            END_PART
          }
        }
      }
    }
    global STORED_FLOAT* output =
        (global STORED_FLOAT*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x) * OUT_C;
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) STORE_SUM(p, v, output + p * OUT_C + channel[v]);
  }
}

KERNEL(conv_2d_tiled_float)
#endif

#if USES_CONV_2D_1X1_FLOAT
// The same for windows of one pixel and strides of 1: input and output pixels are alike, and the
// inputs of a block lie side by side. Where BY_PIXELS is defined, tiles go by pixels first, so that
// a core that takes some in order keeps their inputs; else by channels, so that it keeps weights.
// Where ASKS_AHEAD is, a block of pixels asks for a part of the weights of the next block of
// channels: memory brings them while the core computes.
// tile: TILE_ITEMS pixel blocks of one channel block; tiles: ceil(pixel blocks / TILE_ITEMS) *
// channel blocks
TILE(conv_2d_1x1_float) {
#if BY_PIXELS
  int block = tile % BLOCKS;
  int part = tile / BLOCKS;
#else
  int block = tile / BLOCK_TILES;
  int part = tile % BLOCK_TILES;
#endif
  int channel[VECTORS];
  UNROLLED (v, VECTORS) channel[v] = min(block * BLOCK + v * LANES, OUT_C - LANES);
  global const STORED_FLOAT* weights =
      (global const STORED_FLOAT*)(constants + WEIGHTS) + block * (IN_C * BLOCK);
  FLOAT_BOUNDS(FLOATS);
  int in_c = IN_C;
  int out_c = OUT_C;
  EACH_ITEM_OR_NONE (item, part, PIXEL_BLOCKS) {
    int pixel = min(item * TILE_W, PIXELS - TILE_W);
    global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT) + pixel * in_c;
    REALS sum[TILE_W][VECTORS];
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) sum[p][v] = FIRST_SUM(v);
    global const STORED_FLOAT* weight = weights;
#if IS_ALIGNED
    global const STORED_FLOAT* source[TILE_W];
    UNROLLED (p, TILE_W) source[p] = input + p * in_c;
    EACH_PART (from, to, in_c) {
      BEGIN_PART
      for (int k = from; k < to; k += LANES) {
        REALS terms[TILE_W];
        UNROLLED (p, TILE_W) {
          terms[p] = LOAD_REALS(0, source[p]);
          source[p] += LANES;
        }
        ADD_TERM(terms[p].s0)
        ADD_TERM(terms[p].s1)
        ADD_TERM(terms[p].s2)
        ADD_TERM(terms[p].s3)
#if LANES == 8
        ADD_TERM(terms[p].s4)
        ADD_TERM(terms[p].s5)
        ADD_TERM(terms[p].s6)
        ADD_TERM(terms[p].s7)
#endif
      }
      END_PART
    }
#else
#if ASKS_AHEAD
    // For each term a cache's line, of 16 floats. The first few blocks of pixels ask for all; the
    // others for what is there already.
    global const STORED_FLOAT* next = weights;
    if (item < (BLOCK + 15) / 16 && block + 1 < BLOCKS) next += in_c * BLOCK + item * (in_c * 16);
#endif
    EACH_PART (from, to, in_c) {
      BEGIN_PART
      for (int k = from; k < to; k++) {
#if ASKS_AHEAD
        ASK_FOR(next);
        next += 16;
#endif
        ADD_TERM(LOAD_REAL(p * in_c + k, input))
      }
      END_PART
    }
#endif
    global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + pixel * out_c;
    UNROLLED (p, TILE_W)
      UNROLLED (v, VECTORS) STORE_SUM(p, v, output + p * out_c + channel[v]);
  }
}

KERNEL(conv_2d_1x1_float)
#endif
