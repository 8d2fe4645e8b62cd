// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the activations' type, uchar or char, and IS_SIGNED; C_BLOCKS and P_BLOCKS, how
// many times 16 output channels and 8 output pixels a warp computes at once; SUMS_PIXELS, 1 where
// weights have a zero point; ONCE, 1 where a job is one turn; AHEAD, 1 where besides weights are
// loaded a step ahead, as pixels always are, for few results a warp; SPLITS, 1 where several warps
// share a sum's terms, through SCRATCH_INTS; for any window ALIGNED, 1 where pixels are multiples
// of 16 bytes; those of requantize_word.clh and finish.clh, or of hybrid ones those of hybrid.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "ptx.clh"

#define IS_POINTWISE (USES_CONV_2D_1X1_MMA_QUANT8 || USES_CONV_2D_1X1_MMA_HYBRID)
#define IS_HYBRID (USES_CONV_2D_1X1_MMA_HYBRID || USES_CONV_2D_MMA_HYBRID)
#if IS_HYBRID
#include "hybrid_floats.clh"
#else
#include "requantize_word.clh"
#include "finish.clh"
DEFINE_RESIDUAL(4)
#define RESULT uint
#define OUT uchar
#define RESULT_OF(sum, by, is_float, range, pixel) \
  ((is_float) ? LOCAL(to_word_float)(sum, by, range) : LOCAL(to_word_fixed)(sum, by, range))
#endif

#include "mma_terms.clh"
#include "mma_results.clh"

// A job is some turns of BLOCK_PIXELS x BLOCK_C sums over one part of their terms, and a warp's
// work. A tile has JOBS of them: its blocks, as often as there are parts, both powers of 2.
INLINE void LOCAL(compute)(global uchar* arena, global const uchar* constants, PARAMS params,
                           int tile, local int* scratch) {
  int lane = get_local_id(0) & 31;
  int row = lane >> 2;
  int column = lane & 3;
  int jobs = JOBS;
  int block_bits = BLOCK_BITS;
  int block_n_bits = BLOCK_N_BITS;
  int tiles_n = TILES_N;
#if ONCE
  int turns = 1;
#else
  int turns = TURNS;
#endif
  int input = INPUT;
  int pixels = PIXELS;
  int out_c = OUT_C;
  int padded_c = PADDED_C;
  int steps = STEPS;
  int part_steps = PART_STEPS;
#if IS_POINTWISE
  int3 size = (int3)(0, 0, IN_C);
  uint zeros = 0;
  global const int4* table = 0;
#else
  int3 size = (int3)(IN_H, IN_W * IN_C, IN_C);
#if IS_HYBRID
  uint zeros = (uint)(*(global const int*)(arena + ROW_ZEROS) & 255) * ONES;
#else
  uint zeros = (uint)INPUT_ZEROS;
#endif
  global const int4* table = (global const int4*)(constants + CHUNKS);
#endif
#if IS_HYBRID
  int3 range = (int3)(0, OUTPUT_MIN, OUTPUT_MAX);
#else
  int3 range = (int3)(OUTPUT_ZERO, OUTPUT_MIN, OUTPUT_MAX);
#endif
  global const int* channels = (global const int*)(constants + CHANNELS);
  global const uint4* all_weights = (global const uint4*)(constants + WEIGHTS) + lane;
#if SUMS_PIXELS
  int weight_zero = WEIGHT_ZERO;
#endif
  int tile_m = tile / tiles_n;
  int turn_pixels = BLOCK_PIXELS << (block_bits - block_n_bits);
  int first_pixel = tile_m * turns * turn_pixels;
  int first_c = (tile - tile_m * tiles_n) * (BLOCK_C << block_n_bits);
#if SPLITS
  int parts = PARTS;
  int items = (P_BLOCKS * C_BLOCKS * 32) << block_bits;
  // The first item's scaling is there when its sums are.
  int item_c = first_c + LOCAL(c_of_item)(min((int)get_local_id(0), items - 1), block_n_bits);
  LOCAL(scaling) by = LOCAL(load_scaling)(channels + item_c, padded_c);
#endif

  for (int first_job = 0; first_job < jobs; first_job += get_local_size(0) >> 5) {
    int job = first_job + (get_local_id(0) >> 5);
    int is_mine = job < jobs;
    if (MAY_SKIP(!is_mine)) break;
    job = min(job, jobs - 1);
    int part = job >> block_bits;
    int block = job & ((1 << block_bits) - 1);
    int pixel = first_pixel + (block >> block_n_bits) * BLOCK_PIXELS;
    int c = first_c + (block & ((1 << block_n_bits) - 1)) * BLOCK_C;
    if (MAY_SKIP(c >= out_c)) continue;

    int step = part * part_steps;
    int first_chunk = step * 4 + column;
    int chunk = first_chunk;
    global const uint4* first_weight = all_weights + (c / BLOCK_C * steps + step) * STEP_VECTORS;
    global const uint4* weight = first_weight;
    int place[P_BLOCKS][PLACE_INTS];
    uint next_terms[P_BLOCKS][WORDS];
    uint next_ones[WORDS];
    UNROLLED (p, P_BLOCKS)
      LOCAL(locate)(place[p], min(pixel + p * 8 + row, pixels - 1), input, size, params);
    LOCAL(load_terms)(next_terms, next_ones, place, chunk, size, arena, table, zeros);
    uint weights[C_BLOCKS][PAIRS][4];
    uint terms[P_BLOCKS][WORDS];
    uint ones[WORDS];
#if AHEAD
    LOCAL(load_weights)(weights, weight);
    LOCAL(take)(terms, ones, next_terms, next_ones);
#endif
#if !SPLITS
    int lane_c = c + row * LANE_C;
    LOCAL(scaling) by[C_BLOCKS / 2];
    LOCAL(load_all_scaling)(by, channels + lane_c, padded_c);
#endif

    for (int turn = 0; turn < turns; turn++) {
      if (MAY_SKIP(pixel >= pixels)) break;
      int sum[P_BLOCKS][C_BLOCKS][4];
      int pixel_sum[P_BLOCKS];
      UNROLLED (p, P_BLOCKS) {
        pixel_sum[p] = 0;
        UNROLLED (i, 4) {
#pragma unroll
          for (int u = 0; u < C_BLOCKS; u += 2) {
#if SPLITS
            sum[p][u][i] = sum[p][u + 1][i] = 0;
#else
            sum[p][u][i] = i < 2 ? by[u / 2].bias.x : by[u / 2].bias.y;
            sum[p][u + 1][i] = i < 2 ? by[u / 2].bias.z : by[u / 2].bias.w;
#endif
          }
        }
      }
      int i = 0;
      do {
        // A copy waits for what it copies: where few warps hide that, it comes last.
#if AHEAD
        uint next_weights[C_BLOCKS][PAIRS][4];
#else
        LOCAL(take)(terms, ones, next_terms, next_ones);
        LOCAL(load_weights)(weights, weight);
#endif
        // The next step, or the next turn's first.
        weight += STEP_VECTORS;
        chunk += 4;
        i++;
        if (i == part_steps) {
          weight = first_weight;
          chunk = first_chunk;
          UNROLLED (p, P_BLOCKS)
            LOCAL(locate)(place[p], min(pixel + turn_pixels + p * 8 + row, pixels - 1), input, size,
                          params);
        }
        int is_next = i < part_steps || turn + 1 < turns;
        if (is_next) {
          LOCAL(load_terms)(next_terms, next_ones, place, chunk, size, arena, table, zeros);
#if AHEAD
          LOCAL(load_weights)(next_weights, weight);
#endif
        }
        LOCAL(add_products)(sum, pixel_sum, weights, terms, ones, scratch);
#if AHEAD
        if (is_next) {
          LOCAL(take)(terms, ones, next_terms, next_ones);
          UNROLLED (k, C_BLOCKS * PAIRS * 4)
            weights[k / 4 / PAIRS][k / 4 % PAIRS][k % 4] =
                next_weights[k / 4 / PAIRS][k / 4 % PAIRS][k % 4];
        }
#endif
      } while (i < part_steps);
#if SUMS_PIXELS
      UNROLLED (p, P_BLOCKS) {
        int2 less = weight_zero * LOCAL(sums_of_pixels)(pixel_sum[p], lane, scratch);
        UNROLLED (u, C_BLOCKS)
          UNROLLED (i, 4) sum[p][u][i] -= i & 1 ? less.y : less.x;
      }
#endif
#if SPLITS
      UNROLLED (p, P_BLOCKS) {
        UNROLLED (u, C_BLOCKS) {
          UNROLLED (i, 4)
            if (is_mine)
              scratch[(((job * P_BLOCKS + p) * C_BLOCKS + u) * 4 + i) * 32 + lane] = sum[p][u][i];
        }
      }
#else
      int lane_pixel = pixel + column * 2;
#if !AHEAD
      // Once more, rather than have its registers taken all the time.
      LOCAL(load_all_scaling)(by, channels + lane_c, padded_c);
#endif
      int end = is_mine ? pixels : 0;
      if (LOCAL(is_float)(by[0]))
        LOCAL(store_block)(sum, by, 1, range, lane_pixel, end, lane_c, out_c, arena, params);
      else
        LOCAL(store_block)(sum, by, 0, range, lane_pixel, end, lane_c, out_c, arena, params);
#endif
      pixel += turn_pixels;
    }
  }

#if SPLITS
  barrier(CLK_LOCAL_MEM_FENCE);
  global OUT* output = (global OUT*)(arena + OUTPUT);
  for (int item = get_local_id(0); item < items; item += get_local_size(0)) {
    int i = item >> 5 & 1;
    int p = item / (C_BLOCKS * 32) % P_BLOCKS;
    int block = item / (C_BLOCKS * P_BLOCKS * 32);
    int pixel = first_pixel + (block >> block_n_bits) * BLOCK_PIXELS + p * 8 + column * 2 + i;
    local const int* from = scratch + ((item >> 6) * 8 + i) * 32 + lane;
    int4 sum = by.bias;
    for (int part = 0; part < parts; part++) {
      sum += (int4)(from[0], from[64], from[128], from[192]);
      from += items * 4;
    }
    RESULT result = RESULT_OF(sum, by, LOCAL(is_float)(by), range, pixel);
#if HAS_RESIDUAL
    if (pixel < pixels && item_c < out_c)
      result = WITH_RESIDUAL_WORD(result, output + pixel * out_c + item_c);
#endif
    if (pixel < pixels) LOCAL(store)(result, item_c, out_c, output + pixel * out_c);
    int next = item + get_local_size(0);
    if (next < items) {
      item_c = first_c + LOCAL(c_of_item)(next, block_n_bits);
      by = LOCAL(load_scaling)(channels + item_c, padded_c);
    }
  }
#endif
}

#if USES_CONV_2D_1X1_MMA_QUANT8
// output = requantised input * weights as in conv_2d.cl, for windows of one pixel. Of input *
// (weight - zero) the zero point's part is summed beside it; the input's zero point is in the bias.
// tile: TURNS times some blocks of pixels x some of channels, TILES_N along the channels
TILE(conv_2d_1x1_mma_quant8) { LOCAL(compute)(arena, constants, params, tile, scratch); }

KERNEL(conv_2d_1x1_mma_quant8)
#endif

#if USES_CONV_2D_MMA_QUANT8
// The same for any window.
// tile: TURNS times some blocks of pixels x some of channels, TILES_N along the channels
TILE(conv_2d_mma_quant8) { LOCAL(compute)(arena, constants, params, tile, scratch); }

KERNEL(conv_2d_mma_quant8)
#endif

#if USES_CONV_2D_1X1_MMA_HYBRID
// conv_2d_hybrid for windows of one pixel; the input is int8   NHWC, OHWI
// tile: TURNS times some blocks of pixels x some of channels, TILES_N along the channels
TILE(conv_2d_1x1_mma_hybrid) { LOCAL(compute)(arena, constants, params, tile, scratch); }

KERNEL(conv_2d_1x1_mma_hybrid)
#endif

#if USES_CONV_2D_MMA_HYBRID
// The same for any window.
// tile: TURNS times some blocks of pixels x some of channels, TILES_N along the channels
TILE(conv_2d_mma_hybrid) { LOCAL(compute)(arena, constants, params, tile, scratch); }

KERNEL(conv_2d_mma_hybrid)
#endif
