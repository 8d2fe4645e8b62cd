// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the type of 8 bits, char or uchar; RIGHT, the right matrices' type beside int16,
// short or char; LANES columns, or terms, and TILE_M rows, or TILE_N columns, a work-item; VECTORS
// of LANES columns of floats; SINGLE_ROUNDING, see quantize.clh; HAS_BIAS, see matrices.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "quantize_wide.clh"
#include "float.clh"
#include "hybrid.clh"
#include "matrices.clh"
#include "store.clh"

#if USES_BATCH_MATMUL_QUANT8
DEFINE_REQUANTIZE()

// output[b,m,n] = sum over k of (left[b,m,k] - zero) * (right[b,k,n] - zero), plus bias[n],
// requantised, clamped; either matrix may be transposed
// Source: reference/batch_matmul.h, integer_ops/fully_connected.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(b*m*n / TILE_ITEMS)
TILE(batch_matmul_quant8) {
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ROW_AND_COLUMN(ELEM, ELEM);
    int sum = BIAS_OF(int, element % N_SIZE);
    for (int k = 0; k < K_SIZE; k++)
      sum += (left[k * LEFT_TERM] - LEFT_ZERO) * (right[k * RIGHT_TERM] - RIGHT_ZERO);
    int scaled = REQUANTIZE()(sum, MULTIPLIER, SHIFT) + OUTPUT_ZERO;
    ((global ELEM*)(arena + OUTPUT))[element] = (ELEM)clamp(scaled, LEAST, MOST);
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
  BOUNDS_OF(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    ROW_AND_COLUMN(float, float);
    float sum = 0.0f;
    for (int k = 0; k < K_SIZE; k++)
      sum = MULTIPLY_ADD(left[k * LEFT_TERM], right[k * RIGHT_TERM], sum);
    sum = FINISHED(sum, BIAS_OF(float, element % N_SIZE));
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

#if USES_BATCH_MATMUL_VECTOR_QUANT8
DEFINE_REQUANTIZE(LANES)
#define INTS JOIN(int, LANES)
#define ELEMS JOIN(ELEM, LANES)
#define TO_INTS JOIN(convert_int, LANES)
#define TO_ELEMS JOIN(convert_, ELEMS)
DEFINE_STORE(ELEMS)

// The same of 8 bits for right matrices whose rows lie as written.
// tile: TILE_ITEMS blocks of TILE_M x LANES; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_vector_quant8) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    ROWS_AND_COLUMNS(ELEM, ELEM, ELEM);
    n = min(n, N_SIZE - LANES);
    right += n;
    output += n;
    int left_zero = LEFT_ZERO;
    int right_zero = RIGHT_ZERO;
    INTS sum[TILE_M];
    UNROLLED (p, TILE_M) sum[p] = BIASES_OF(int, n);
    for (int k = 0; k < K_SIZE; k++) {
      INTS factor = TO_INTS(JOIN(vload, LANES)(0, right + k * right_term)) - right_zero;
      UNROLLED (p, TILE_M) sum[p] += factor * ((int)left[p * left_row + k * left_term] - left_zero);
    }
    INTS multiplier = MULTIPLIER, shift = SHIFT, least = LEAST, most = MOST;
    for (int p = 0; p < TILE_M; p++, output += N_SIZE) {
      INTS scaled = REQUANTIZE(LANES)(sum[0], multiplier, shift) + OUTPUT_ZERO;
      STORE(ELEMS, TO_ELEMS(clamp(scaled, least, most)), output);
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
  BOUNDS_OF(FLOATS);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    ROWS_AND_COLUMNS(float, float, float);
    COLUMNS_FROM(column, VECTORS, n, N_SIZE);
    SUM_PRODUCTS(sum, VECTORS, K_SIZE, left, left_row, left_term, right, right_term, column);
    UNROLLED (p, TILE_M)
      UNROLLED (v, VECTORS) {
        FLOATS result = FINISHED(sum[p][v], BIASES_OF(float, column[v]));
        STORE_FLOATS(result, 0, output + p * N_SIZE + column[v]);
      }
  }
}

KERNEL(batch_matmul_vector_float)
#endif

#if USES_BATCH_MATMUL_ROW_QUANT8 || USES_BATCH_MATMUL_ROW_FLOAT
#include "lane_sum.clh"
#endif

#if USES_BATCH_MATMUL_ROW_QUANT8
DEFINE_REQUANTIZE()
#define INTS JOIN(int, LANES)
#define TO_INTS JOIN(convert_int, LANES)

// The same of 8 bits for matrices whose terms lie side by side: a transposed right one.
// tile: TILE_ITEMS blocks of TILE_N columns; tiles: ceil(blocks / TILE_ITEMS)
TILE(batch_matmul_row_quant8) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    COLUMNS(ELEM);
    int left_zero = LEFT_ZERO;
    int right_zero = RIGHT_ZERO;
    INTS sum[TILE_N];
    UNROLLED (p, TILE_N) sum[p] = 0;
    int k = 0;
    for (; k <= K_SIZE - LANES; k += LANES) {
      INTS factor = TO_INTS(JOIN(vload, LANES)(0, left + k)) - left_zero;
      UNROLLED (p, TILE_N) {
        global const ELEM* column = right + p * right_column + k;
        sum[p] += factor * (TO_INTS(JOIN(vload, LANES)(0, column)) - right_zero);
      }
    }
    int total[TILE_N];
    UNROLLED (p, TILE_N) total[p] = SUM_OF(sum[p]) + BIAS_OF(int, n + p);
    for (; k < K_SIZE; k++)
      UNROLLED (p, TILE_N)
        total[p] += (left[k] - left_zero) * (right[p * right_column + k] - right_zero);
    for (int p = 0; p < TILE_N; p++) {
      int scaled = REQUANTIZE()(total[0], MULTIPLIER, SHIFT) + OUTPUT_ZERO;
      output[p] = (ELEM)clamp(scaled, LEAST, MOST);
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
  BOUNDS_OF(float);
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
      output[p] = FINISHED(total, BIAS_OF(float, n + p));
      NEXT_TO_FIRST(sum, TILE_N);
    }
  }
}

KERNEL(batch_matmul_row_float)
#endif
