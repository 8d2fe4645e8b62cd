// SPDX-License-Identifier: Apache-2.0
// Macros: RIGHT, the right matrices' type where they are of 16 bits or 8, short or char; LANES
// columns, or terms, and TILE_M rows, or TILE_N columns, a work-item; VECTORS of LANES columns of
// floats.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "quantize_wide.clh"
#include "float.clh"
#include "hybrid.clh"
#include "store.clh"

// The first elements of the matrices of result number `batch`. A step is 0 where one matrix is used
// for all.
#define MATRICES(LEFT_TYPE, RIGHT_TYPE, batch)                                                 \
  int b2 = batch % BATCH_2;                                                                    \
  int b1 = batch / BATCH_2 % BATCH_1;                                                          \
  int b0 = batch / BATCH_2 / BATCH_1;                                                          \
  global const LEFT_TYPE* left = (global const LEFT_TYPE*)(arena + LEFT) + b0 * LEFT_BATCH_0 + \
                                 b1 * LEFT_BATCH_1 + b2 * LEFT_BATCH_2;                        \
  global const RIGHT_TYPE* right = (global const RIGHT_TYPE*)(arena + RIGHT_AT) +              \
                                   b0 * RIGHT_BATCH_0 + b1 * RIGHT_BATCH_1 + b2 * RIGHT_BATCH_2

// The row and the column that `element` is the product of.
#define ROW_AND_COLUMN(LEFT_TYPE, RIGHT_TYPE)   \
  int batch = element / N_SIZE / M_SIZE;        \
  MATRICES(LEFT_TYPE, RIGHT_TYPE, batch);       \
  left += element / N_SIZE % M_SIZE * LEFT_ROW; \
  right += element % N_SIZE * RIGHT_COLUMN

#if USES_BATCH_MATMUL_QUANT8
DEFINE_ROUNDING()

// output[b,m,n] = sum over k of (left[b,m,k] - zero) * (right[b,k,n] - zero), requantised, clamped;
// either matrix may be transposed   Source: reference/batch_matmul.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(b*m*n / TILE_ITEMS)
TILE(batch_matmul_quant8) {
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ROW_AND_COLUMN(char, char);
    int sum = 0;
    for (int k = 0; k < K_SIZE; k++)
      sum += (left[k * LEFT_TERM] - LEFT_ZERO) * (right[k * RIGHT_TERM] - RIGHT_ZERO);
    int scaled = LOCAL(requantize)(sum, MULTIPLIER, SHIFT) + OUTPUT_ZERO;
    ((global char*)(arena + OUTPUT))[element] = (char)clamp(scaled, -128, 127);
  }
}

KERNEL(batch_matmul_quant8)
#endif

#if USES_BATCH_MATMUL_QUANT16
#include "wide.clh"

// The same of int16, in sums of 64 bits.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(b*m*n / TILE_ITEMS)
TILE(batch_matmul_quant16) {
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ROW_AND_COLUMN(short, RIGHT);
    int high = 0;
    uint low = 0u;
    for (int k = 0; k < K_SIZE; k++) {
      int part = (int)left[k * LEFT_TERM] * (int)right[k * RIGHT_TERM];
      LOCAL(add_part)(&high, &low, &part);
    }
    int result = LOCAL(requantize_sum)(high, low, MULTIPLIER, SHIFT, 0);
    ((global short*)(arena + OUTPUT))[element] = (short)clamp(result, -32768, 32767);
  }
}

KERNEL(batch_matmul_quant16)
#endif

#if USES_BATCH_MATMUL_FLOAT
// The same of floats.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(b*m*n / TILE_ITEMS)
TILE(batch_matmul_float) {
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ROW_AND_COLUMN(float, float);
    float sum = 0.0f;
    for (int k = 0; k < K_SIZE; k++)
      sum = MULTIPLY_ADD(left[k * LEFT_TERM], right[k * RIGHT_TERM], sum);
    ((global float*)(arena + OUTPUT))[element] = sum;
  }
}

KERNEL(batch_matmul_float)
#endif

#if USES_BATCH_MATMUL_HYBRID
// The same of floats and int8: the left one is what quantize_row.cl makes of its rows, less their
// zero points. The product is scaled back   Source: reference/batch_matmul.h, the hybrid overload
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(b*m*n / TILE_ITEMS)
TILE(batch_matmul_hybrid) {
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ROW_AND_COLUMN(float, char);
    int row = (int)(left - (global const float*)(arena + LEFT)) / K_SIZE;
    int sum = 0;
    for (int k = 0; k < K_SIZE; k++) sum += (int)left[k] * (int)right[k * RIGHT_TERM];
    float row_scale = ((global const float*)(arena + ROW_SCALES))[row];
    ((global float*)(arena + OUTPUT))[element] =
        HYBRID_RESULT((float)sum, row_scale, as_float(RIGHT_SCALE), 0.0f, -INFINITY, INFINITY);
  }
}

KERNEL(batch_matmul_hybrid)
#endif

#if USES_BATCH_MATMUL_VECTOR_QUANT8 || USES_BATCH_MATMUL_VECTOR_FLOAT || \
    USES_BATCH_MATMUL_VECTOR_HYBRID
// TILE_M rows of an item, and the first of its columns; the last rows overlap those before.
#define ROWS_AND_COLUMNS(LEFT_TYPE, RIGHT_TYPE, TYPE)     \
  int m = min(item % M_BLOCKS * TILE_M, M_SIZE - TILE_M); \
  int n = item / M_BLOCKS % N_BLOCKS * (LANES * VECTORS); \
  int batch = item / M_BLOCKS / N_BLOCKS;                 \
  MATRICES(LEFT_TYPE, RIGHT_TYPE, batch);                 \
  left += m * LEFT_ROW;                                   \
  int left_row = LEFT_ROW;                                \
  int left_term = LEFT_TERM;                              \
  int right_term = RIGHT_TERM;                            \
  global TYPE* output = (global TYPE*)(arena + OUTPUT) + (batch * M_SIZE + m) * N_SIZE
#endif

#if USES_BATCH_MATMUL_VECTOR_QUANT8
DEFINE_ROUNDING(LANES)
#define INTS JOIN(int, LANES)
#define CHARS JOIN(char, LANES)
#define TO_INTS JOIN(convert_int, LANES)
#define TO_CHARS JOIN(convert_char, LANES)
DEFINE_STORE(CHARS)

// The same of 8 bits for right matrices whose rows lie as written.
// tile: TILE_ITEMS blocks of TILE_M x LANES; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_vector_quant8) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    ROWS_AND_COLUMNS(char, char, char);
    n = min(n, N_SIZE - LANES);
    right += n;
    output += n;
    int left_zero = LEFT_ZERO;
    int right_zero = RIGHT_ZERO;
    INTS sum[TILE_M];
    UNROLLED (p, TILE_M) sum[p] = 0;
    for (int k = 0; k < K_SIZE; k++) {
      INTS factor = TO_INTS(JOIN(vload, LANES)(0, right + k * right_term)) - right_zero;
      UNROLLED (p, TILE_M) sum[p] += factor * ((int)left[p * left_row + k * left_term] - left_zero);
    }
    INTS multiplier = MULTIPLIER, shift = SHIFT, least = -128, most = 127;
    for (int p = 0; p < TILE_M; p++, output += N_SIZE) {
      INTS scaled = LOCAL(JOIN(requantize, LANES))(sum[0], multiplier, shift) + OUTPUT_ZERO;
      STORE(CHARS, TO_CHARS(clamp(scaled, least, most)), output);
      NEXT_TO_FIRST(sum, TILE_M);
    }
  }
}

KERNEL(batch_matmul_vector_quant8)
#endif

#if USES_BATCH_MATMUL_VECTOR_FLOAT || USES_BATCH_MATMUL_ROW_FLOAT || USES_BATCH_MATMUL_VECTOR_HYBRID
#define FLOATS JOIN(float, LANES)
#endif

#if USES_BATCH_MATMUL_VECTOR_HYBRID
#define INTS JOIN(int, LANES)
#define LOAD_FACTORS(from) JOIN(convert_float, LANES)(JOIN(vload, LANES)(0, from))
#define EXACT_TERMS 512  // of 255 by 128 at most, whose sum a float holds
#include "product_tile.clh"

// The same of floats and int8 for right matrices whose rows lie as written.
// tile: TILE_ITEMS blocks of TILE_M rows x VECTORS x LANES; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_vector_hybrid) {
  FLOATS right_scale = as_float(RIGHT_SCALE);
  FLOATS bias = 0.0f, low = -INFINITY, high = INFINITY;
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    ROWS_AND_COLUMNS(float, char, float);
    COLUMNS_FROM(column, VECTORS, n, N_SIZE);
    int row = (int)(left - (global const float*)(arena + LEFT)) / K_SIZE;
    INTS whole[TILE_M][VECTORS];
    UNROLLED (p, TILE_M)
      UNROLLED (v, VECTORS) whole[p][v] = 0;
    for (int first = 0; first < K_SIZE; first += EXACT_TERMS) {
      int terms = min(K_SIZE - first, EXACT_TERMS);
      SUM_PRODUCTS(sum, VECTORS, terms, left, left_row, left_term, right, right_term, column);
      UNROLLED (p, TILE_M)
        UNROLLED (v, VECTORS) whole[p][v] += JOIN(convert_int, LANES)(sum[p][v]);
      left += EXACT_TERMS * left_term;
      right += EXACT_TERMS * right_term;
    }
    UNROLLED (p, TILE_M) {
      FLOATS row_scale = ((global const float*)(arena + ROW_SCALES))[row + p];
      UNROLLED (v, VECTORS) {
        FLOATS value = JOIN(convert_float, LANES)(whole[p][v]);
        FLOATS result = HYBRID_RESULT(value, row_scale, right_scale, bias, low, high);
        STORE_FLOATS(result, 0, output + p * N_SIZE + column[v]);
      }
    }
  }
}

KERNEL(batch_matmul_vector_hybrid)
#endif

#if USES_BATCH_MATMUL_VECTOR_FLOAT
#include "product_tile.clh"

// The same of floats for right matrices whose rows lie as written.
// tile: TILE_ITEMS blocks of TILE_M rows x VECTORS x LANES; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_vector_float) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    ROWS_AND_COLUMNS(float, float, float);
    COLUMNS_FROM(column, VECTORS, n, N_SIZE);
    SUM_PRODUCTS(sum, VECTORS, K_SIZE, left, left_row, left_term, right, right_term, column);
    UNROLLED (p, TILE_M)
      UNROLLED (v, VECTORS) STORE_FLOATS(sum[p][v], 0, output + p * N_SIZE + column[v]);
  }
}

KERNEL(batch_matmul_vector_float)
#endif

#if USES_BATCH_MATMUL_ROW_QUANT8 || USES_BATCH_MATMUL_ROW_FLOAT
#include "lane_sum.clh"

// TILE_N columns of one row, of an item; the last ones overlap those before.
#define COLUMNS(TYPE)                                     \
  int n = min(item % N_BLOCKS * TILE_N, N_SIZE - TILE_N); \
  int m = item / N_BLOCKS % M_SIZE;                       \
  int batch = item / N_BLOCKS / M_SIZE;                   \
  MATRICES(TYPE, TYPE, batch);                            \
  left += m * LEFT_ROW;                                   \
  right += n * RIGHT_COLUMN;                              \
  int right_column = RIGHT_COLUMN;                        \
  global TYPE* output = (global TYPE*)(arena + OUTPUT) + (batch * M_SIZE + m) * N_SIZE + n
#endif

#if USES_BATCH_MATMUL_ROW_QUANT8
DEFINE_ROUNDING()
#define INTS JOIN(int, LANES)
#define TO_INTS JOIN(convert_int, LANES)

// The same of 8 bits for matrices whose terms lie side by side: a transposed right one.
// tile: TILE_ITEMS blocks of TILE_N columns; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_row_quant8) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    COLUMNS(char);
    int left_zero = LEFT_ZERO;
    int right_zero = RIGHT_ZERO;
    INTS sum[TILE_N];
    UNROLLED (p, TILE_N) sum[p] = 0;
    int k = 0;
    for (; k <= K_SIZE - LANES; k += LANES) {
      INTS factor = TO_INTS(JOIN(vload, LANES)(0, left + k)) - left_zero;
      UNROLLED (p, TILE_N) {
        global const char* column = right + p * right_column + k;
        sum[p] += factor * (TO_INTS(JOIN(vload, LANES)(0, column)) - right_zero);
      }
    }
    int total[TILE_N];
    UNROLLED (p, TILE_N) total[p] = SUM_OF(sum[p]);
    for (; k < K_SIZE; k++)
      UNROLLED (p, TILE_N)
        total[p] += (left[k] - left_zero) * (right[p * right_column + k] - right_zero);
    for (int p = 0; p < TILE_N; p++) {
      int scaled = LOCAL(requantize)(total[0], MULTIPLIER, SHIFT) + OUTPUT_ZERO;
      output[p] = (char)clamp(scaled, -128, 127);
      NEXT_TO_FIRST(total, TILE_N);
    }
  }
}

KERNEL(batch_matmul_row_quant8)
#endif

#if USES_BATCH_MATMUL_ROW_FLOAT
// The same of floats for matrices whose terms lie side by side: a transposed right one.
// tile: TILE_ITEMS blocks of TILE_N columns; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_row_float) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    COLUMNS(float);
    FLOATS sum[TILE_N];
    UNROLLED (p, TILE_N) sum[p] = 0.0f;
    int k = 0;
    for (; k <= K_SIZE - LANES; k += LANES) {
      FLOATS factor = LOAD_FLOATS(0, left + k);
      UNROLLED (p, TILE_N) {
        FLOATS column = LOAD_FLOATS(0, right + p * right_column + k);
        sum[p] = MULTIPLY_ADD(factor, column, sum[p]);
      }
    }
    for (int p = 0; p < TILE_N; p++, right += right_column) {
      float total = SUM_OF(sum[0]);
      for (int j = k; j < K_SIZE; j++) total = MULTIPLY_ADD(left[j], right[j], total);
      output[p] = total;
      NEXT_TO_FIRST(sum, TILE_N);
    }
  }
}

KERNEL(batch_matmul_row_float)
#endif
