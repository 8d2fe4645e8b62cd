// SPDX-License-Identifier: Apache-2.0
// Macros: those of words.clh and finish.clh; TILE_W output pixels and VECTORS x
// 4 output channels a work-item; LOAD_WORDS, 1, 2 or 4 words of inputs that are loaded at once,
// where pixels begin at multiples of them; IS_MATRIX, 1 where output pixel i is made of input pixel
// i alone; HAS_FLOATS, 1 where weights are floats less their zero point, made for PLACED_OF;
// HAS_CHUNKS, 1 where a sum may pass 2^24.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "float.clh"
#include "words.clh"
#include "finish.clh"
#if !IS_MATRIX
#include "windows.clh"
#endif

DEFINE_FINISH(4)

#define BLOCK (4 * VECTORS)

#define EACH_PIXEL(M) JOIN(EACH_, TILE_W)(M)
#define EACH_PIXEL_OF(M, v, i) JOIN(EACH_OF_, TILE_W)(M, v, i)
#define EACH_VECTOR(M) JOIN(EACH_V_, VECTORS)(M)
#define EACH_PIXEL_AND_VECTOR(M) JOIN(EACH_ALL_, VECTORS)(M)
#define EACH_1(M) M(0)
#define EACH_2(M) EACH_1(M) M(1)
#define EACH_4(M) EACH_2(M) M(2) M(3)
#define EACH_V_1(M) M(0)
#define EACH_V_2(M) EACH_V_1(M) M(1)
#define EACH_OF_1(M, v, i) M(0, v, i)
#define EACH_OF_2(M, v, i) EACH_OF_1(M, v, i) M(1, v, i)
#define EACH_OF_4(M, v, i) EACH_OF_2(M, v, i) M(2, v, i) M(3, v, i)
#define EACH_ALL_1(M) EACH_PIXEL_OF(M, 0, 0)
#define EACH_ALL_2(M) EACH_ALL_1(M) EACH_PIXEL_OF(M, 1, 0)
#define EACH_VECTOR_OF(M, i) JOIN(EACH_V_OF_, VECTORS)(M, i)
#define EACH_V_OF_1(M, i) M(0, i)
#define EACH_V_OF_2(M, i) EACH_V_OF_1(M, i) M(1, i)
#define EACH_WORD(M) JOIN(EACH_WORD_, LOAD_WORDS)(M)
#define EACH_WORD_1(M) M(0)
#define EACH_WORD_2(M) EACH_WORD_1(M) M(1)
#define EACH_WORD_4(M) EACH_WORD_2(M) M(2) M(3)

#if LOAD_WORDS == 1
#define LOADED uint
#define LOADED_AT WORD_AT
#define LOADED_WORD(loaded, i) (loaded)
#else
#define LOADED JOIN(uint, LOAD_WORDS)
#define LOADED_AT(address) (*(global const LOADED*)(address))
#define LOADED_WORD(loaded, i) (loaded).JOIN(s, i)
#endif

// The factors of a word's four terms, of four channels each.
#if HAS_FLOATS
#define WEIGHT float4
#define WORD_WEIGHTS 4
// A word's factors begin at a multiple of 64 bytes. Where addresses have 64 bits, a carry costs
// three instructions more than `|`.
#define FACTOR(at, term, part) *(global const float4*)((uintptr_t)(at) | 16 * (term))
#define TERMS_OF PLACED_OF
#else
#define TERMS_OF FLOATS_OF
#define WEIGHT uint4
#define WORD_WEIGHTS 1
#define FACTOR(at, term, part) (FLOATS_OF((at)->part) - weight_zero)
#endif

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
#if !IS_MATRIX
  int kernel_h = KERNEL_H;
  int kernel_w = KERNEL_W;
#endif
  int words = WORDS;
#if HAS_CHUNKS
  int chunk_words = CHUNK_WORDS;
#endif
#if !HAS_FLOATS
  float4 weight_zero = WEIGHT_ZERO;
#endif
  for (int i = get_local_id(0); i < tile_items; i += get_local_size(0)) {
    int item = tile * tile_items + i;
    if (item >= items) break;
    int block = item / pixel_blocks;
    int pixel = min((item - block * pixel_blocks) * TILE_W, PIXELS - TILE_W);
    global const ELEM* source[TILE_W];
#if IS_MATRIX
    int taps = 1;
#define ENTER(p) source[p] = (global const ELEM*)(arena + INPUT) + (pixel + p) * IN_C;
    EACH_PIXEL(ENTER)
#else
    int taps = kernel_h * kernel_w;
    BEGIN_WINDOWS(pixel);
#endif
    float4 sum[TILE_W][VECTORS];
#define CLEAR(p, v, i) sum[p][v] = 0.0f;
    EACH_PIXEL_AND_VECTOR(CLEAR)
#if HAS_CHUNKS
    int4 total[TILE_W][VECTORS];
#define CLEAR_TOTAL(p, v, i) total[p][v] = 0;
    EACH_PIXEL_AND_VECTOR(CLEAR_TOTAL)
#endif
    global const WEIGHT* weight = (global const WEIGHT*)(constants + WEIGHTS) +
                                  block * (taps * words * VECTORS * WORD_WEIGHTS);
#define READ(p)                     \
  inputs[p] = LOADED_AT(source[p]); \
  source[p] += 4 * LOAD_WORDS;
#define ADD(p, v, i)                                    \
  {                                                     \
    float4 a = TERMS_OF(LOADED_WORD(inputs[p], i));     \
    sum[p][v] = mad(factor[0], (float4)a.x, sum[p][v]); \
    sum[p][v] = mad(factor[1], (float4)a.y, sum[p][v]); \
    sum[p][v] = mad(factor[2], (float4)a.z, sum[p][v]); \
    sum[p][v] = mad(factor[3], (float4)a.w, sum[p][v]); \
  }
#define ADD_VECTOR(v, i)                                    \
  {                                                         \
    global const WEIGHT* own = weight + (v) * WORD_WEIGHTS; \
    float4 factor[4];                                       \
    factor[0] = FACTOR(own, 0, x);                          \
    factor[1] = FACTOR(own, 1, y);                          \
    factor[2] = FACTOR(own, 2, z);                          \
    factor[3] = FACTOR(own, 3, w);                          \
    EACH_PIXEL_OF(ADD, v, i)                                \
  }
#define ADD_WORD(i)             \
  EACH_VECTOR_OF(ADD_VECTOR, i) \
  weight += VECTORS * WORD_WEIGHTS;
#define ADD_WORDS(begin, end)                              \
  for (int word = begin; word < end; word += LOAD_WORDS) { \
    LOADED inputs[TILE_W];                                 \
    EACH_PIXEL(READ)                                       \
    EACH_WORD(ADD_WORD)                                    \
  }
#if HAS_CHUNKS
#define MOVE(p, v, i)                     \
  total[p][v] += convert_int4(sum[p][v]); \
  sum[p][v] = 0.0f;
#define ADD_TAP                                              \
  for (int begin = 0; begin < words; begin += chunk_words) { \
    int end = min(begin + chunk_words, words);               \
    ADD_WORDS(begin, end)                                    \
    EACH_PIXEL_AND_VECTOR(MOVE)                              \
  }
#else
#define ADD_TAP ADD_WORDS(0, words)
#endif
#if IS_MATRIX
    ADD_TAP
#else
    for (int ky = 0; ky < kernel_h; ky++) {
      for (int kx = 0; kx < kernel_w; kx++) {
        LOCAL(enter_tap)(arena, constants, params, ky, kx, in_x, in_y, in_row, source);
        ADD_TAP
      }
    }
#endif
    int first_channel = min(block * BLOCK, out_c - BLOCK);
    global const int4* channel = (global const int4*)(constants + CHANNELS) + block * (3 * VECTORS);
    RESULT_BOUNDS(int4);
#if HAS_CHUNKS
#define SUM total
#else
#define SUM sum
#endif
#define NEXT(p, v, i) SUM[p][v] = SUM[(p + 1) % TILE_W][v];
#define FINISH(v)                                                                      \
  {                                                                                    \
    int4 bias = channel[v];                                                            \
    int4 multiplier = channel[VECTORS + v];                                            \
    int4 shift = channel[2 * VECTORS + v];                                             \
    global uchar* output = arena + OUTPUT + pixel * out_c + first_channel + 4 * v;     \
    for (int p = 0; p < TILE_W; p++) {                                                 \
      int4 value = convert_int4(SUM[0][v]) + bias;                                     \
      STORE_BYTES(FINISHED(4, value, multiplier, shift, output_zero, output), output); \
      output += out_c;                                                                 \
      EACH_PIXEL_OF(NEXT, v, 0)                                                        \
    }                                                                                  \
  }
    // Pixels move to the first place one after the other: no variable can tell a register.
    EACH_VECTOR(FINISH)
  }
}

KERNEL(conv_2d_float4_quant8)
