// SPDX-License-Identifier: Apache-2.0
// Macros: HAS_MASK; LANES floats a load. For the row kernel ALONE, 1 where a work-group is one
// work-item, TILE_N places of which a work-item finds the scores at a time, and VECTORS of the
// result that a lone one sums up at a time. For the tiled one TILE_M rows, and how many vectors of
// places and of the result it sums up at a time, PLACE_VECTORS and VECTORS.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "attention.clh"
#include "group_row.clh"

// A row's query, the keys and the values of its matrix, and its masks.
#define OF_ROW(row)                                                                            \
  int matrix = (row) / ROWS;                                                                   \
  global const float* query = (global const float*)(arena + QUERIES) + (row) * HEAD;           \
  global const float* keys = (global const float*)(arena + KEYS) + matrix * PLACES * HEAD;     \
  global const float* values = (global const float*)(arena + VALUES) + matrix * PLACES * HEAD; \
  global float* shares = (global float*)(arena + SHARES_OUTPUT) + (row) * PLACES;              \
  global float* output = (global float*)(arena + OUTPUT) + (row) * HEAD

#if HAS_MASK
#define MASK_OF_ROW(row)                                                                       \
  global const float* mask = (global const float*)(arena + MASK) + matrix * MASK_MATRIX_STEP + \
                             ((row) - matrix * ROWS) * MASK_ROW_STEP
#else
#define MASK_OF_ROW(row)
#endif

#if USES_ATTENTION_FLOAT
// output[b,r,:] = sum over p of share[p] * values[b,p,:]; share is the softmax of (SCALE *
// queries[b,r,:] . keys[b,p,:] + mask[b,r,p]) * MASKED_SCALE. What is hidden behind the last place
// that is not has a share of 0, and is not read.
// Source: reference/batch_matmul.h, reference/softmax.h
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(b * r / TILE_ITEMS)
TILE(attention_float) {
  int places = PLACES;
  int head = HEAD;
  float scale = as_float(SCALE);
  EACH_ITEM_OR_NONE (row, tile, ELEMENTS) {
    OF_ROW(row);
    MASK_OF_ROW(row);
    int seen = places;
#if HAS_MASK
    while (seen > 0 && mask[seen - 1] <= HIDDEN) seen--;
    if (seen == 0) seen = places;
#endif
    float highest = -INFINITY;
    for (int place = 0; place < seen; place++) {
      float sum = 0.0f;
      for (int k = 0; k < head; k++) sum = MULTIPLY_ADD(query[k], keys[place * head + k], sum);
      float score = SCORE_AT(sum, place);
      shares[place] = score;
      highest = AT_LEAST(highest, score);
    }
    float total = 0.0f;
    for (int place = 0; place < seen; place++) {
      float e = LOCAL(exp_below_0)(shares[place] - highest);
      shares[place] = e;
      total += e;
    }
    for (int k = 0; k < head; k++) {
      float sum = 0.0f;
      for (int place = 0; place < seen; place++)
        sum = MULTIPLY_ADD(shares[place] / total, values[place * head + k], sum);
      output[k] = sum;
    }
  }
}

KERNEL(attention_float)
#endif

#if USES_ATTENTION_ROW_FLOAT
#if ALONE
#define MEET_IN_MEMORY()
#else
#define MEET_IN_MEMORY() barrier(CLK_GLOBAL_MEM_FENCE)
#endif

// The same for a row: its work-items share the places, then the columns. HEAD is a multiple of
// LANES, PLACES of TILE_N. SCRATCH_INTS: one a work-item for what it found.
// tile: one row; tiles: b * r
TILE(attention_row_float) {
#if ALONE
  float found[1];
#else
  local float* found = (local float*)scratch;
#endif
  int items = STRIDE;
  int head = HEAD;
  int seen = PLACES;
  OF_ROW(tile);
  MASK_OF_ROW(tile);
#if HAS_MASK && ALONE
  seen = min((LOCAL(seen_of)(mask, seen) + TILE_N - 1) / TILE_N * TILE_N, seen);
#elif HAS_MASK
  float last = 0.0f;
  for (int place = FIRST; place < seen; place += items)
    last = mask[place] <= HIDDEN ? last : (float)(place + 1);
  found[FIRST] = last;
  SHARE(found, AT_LEAST);
  for (int i = 0; i < min(items, SHARERS); i++) last = AT_LEAST(last, found[i]);
  MEET();
  if (last > 0.0f) seen = min(((int)last + TILE_N - 1) / TILE_N * TILE_N, seen);
#endif

  float scale = as_float(SCALE);
  float highest = -INFINITY;
  for (int place = FIRST * TILE_N; place < seen; place += items * TILE_N) {
    global const float* key = keys + place * head;
    FLOATS sum[TILE_N];
    UNROLLED (j, TILE_N) sum[j] = 0.0f;
    for (int k = 0; k < head; k += LANES) {
      FLOATS factor = LOAD_FLOATS(0, query + k);
      UNROLLED (j, TILE_N) {
        ASK_FOR(key + (j + PLACES_AHEAD) * head + k);
        sum[j] = MULTIPLY_ADD(LOAD_FLOATS(0, key + j * head + k), factor, sum[j]);
      }
    }
    UNROLLED (j, TILE_N) {
      float score = SCORE_AT(SUM_OF(sum[j]), place + j);
      shares[place + j] = score;
      highest = AT_LEAST(highest, score);
    }
  }
  found[FIRST] = highest;
  SHARE(found, AT_LEAST);
  for (int i = 0; i < min(items, SHARERS); i++) highest = AT_LEAST(highest, found[i]);
  MEET_IN_MEMORY();
  MEET();

  float total = 0.0f;
  int whole = seen / LANES;
  FLOATS total_lanes = 0.0f;
  for (int i = FIRST; i < whole; i += items) {
    FLOATS e = LOCAL(JOIN(exp_below_0, LANES))(LOAD_FLOATS(i, shares) - highest);
    STORE_FLOATS(e, i, shares);
    total_lanes += e;
  }
  total = SUM_OF(total_lanes);
  for (int place = whole * LANES + FIRST; place < seen; place += items) {
    float e = LOCAL(exp_below_0)(shares[place] - highest);
    shares[place] = e;
    total += e;
  }
  found[FIRST] = total;
  SHARE(found, PLUS);
  total = 0.0f;
  for (int i = 0; i < min(items, SHARERS); i++) total += found[i];
  MEET_IN_MEMORY();

#if ALONE
  for (int k = 0; k < head; k += VECTORS * LANES) {
    FLOATS sum[VECTORS];
    UNROLLED (v, VECTORS) sum[v] = 0.0f;
    for (int place = 0; place < seen; place++) {
      global const float* value = values + place * head + k;
      FLOATS share = shares[place];
      UNROLLED (v, VECTORS) ASK_FOR(value + PLACES_AHEAD * head + v * LANES);
      UNROLLED (v, VECTORS) sum[v] = MULTIPLY_ADD(LOAD_FLOATS(v, value), share, sum[v]);
    }
    UNROLLED (v, VECTORS) STORE_FLOATS(sum[v] / total, v, output + k);
  }
#else
  for (int k = FIRST; k < head; k += items) {
    float sum = 0.0f;
    for (int place = 0; place < seen; place++)
      sum = MULTIPLY_ADD(shares[place], values[place * head + k], sum);
    output[k] = sum / total;
  }
#endif
}

KERNEL(attention_row_float)
#endif

#if USES_ATTENTION_TILED_FLOAT
#include "product_tile.clh"
// The same for TILE_M rows of a matrix at a time, with the keys turned: (b, HEAD, PLACES). The rows
// take the places up to the last that one of them sees. What a tile finds of its rows stays in one
// part of memory, PITCH floats a row, PLACES filled up to whole vectors. Blocks that would pass an
// end overlap those before.
// tile: TILE_ITEMS blocks of rows; tiles: ceil(b * ROW_BLOCKS / TILE_ITEMS)
TILE(attention_tiled_float) {
  int rows = ROWS;
  int places = PLACES;
  int head = HEAD;
  int pitch = PITCH;
  float scale = as_float(SCALE);
  global float* shares = (global float*)(arena + SHARES_OUTPUT) + tile * (TILE_M * pitch);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    int matrix = item / ROW_BLOCKS;
    int row = min(item % ROW_BLOCKS * TILE_M, rows - TILE_M) + matrix * rows;
    global const float* query = (global const float*)(arena + QUERIES) + row * head;
    global const float* keys = (global const float*)(arena + KEYS) + matrix * places * head;
    global const float* values = (global const float*)(arena + VALUES) + matrix * places * head;
    global float* output = (global float*)(arena + OUTPUT) + row * head;
    MASK_OF_ROW(row);
    int seen = places;
#if HAS_MASK
    seen = 0;
    for (int p = 0; p < TILE_M; p++)
      seen = max(seen, LOCAL(seen_of)(mask + p * MASK_ROW_STEP, places));
#endif
    int seen_pitch = (seen + LANES - 1) / LANES * LANES;
    FLOATS highest[TILE_M];
    UNROLLED (p, TILE_M) {
      highest[p] = -INFINITY;
      STORE_FLOATS(highest[p], 0, shares + (p + 1) * pitch - LANES);
    }
    for (int place = 0; place < seen; place += PLACE_VECTORS * LANES) {
      COLUMNS_FROM(column, PLACE_VECTORS, place, places);
      SUM_PRODUCTS(sum, PLACE_VECTORS, head, query, head, 1, keys, places, column);
      UNROLLED (p, TILE_M)
        UNROLLED (v, PLACE_VECTORS) {
          FLOATS score =
              SCORE(sum[p][v], LOAD_FLOATS(0, mask + p * MASK_ROW_STEP + column[v]), LANES);
          STORE_FLOATS(score, 0, shares + p * pitch + column[v]);
          highest[p] = AT_LEAST(highest[p], score);
        }
    }
    FLOATS total[TILE_M];
    UNROLLED (p, TILE_M) {
      float lane[LANES];
      STORE_FLOATS_TO(private, highest[p], 0, lane);
      float most = lane[0];
      UNROLLED (i, LANES) most = AT_LEAST(most, lane[i]);
      total[p] = 0.0f;
      for (int place = 0; place < seen_pitch; place += LANES) {
        global float* share = shares + p * pitch + place;
        FLOATS e = LOCAL(JOIN(exp_below_0, LANES))(LOAD_FLOATS(0, share) - most);
        STORE_FLOATS(e, 0, share);
        total[p] += e;
      }
    }
    for (int k = 0; k < head; k += VECTORS * LANES) {
      COLUMNS_FROM(column, VECTORS, k, head);
      SUM_PRODUCTS(sum, VECTORS, seen, shares, pitch, 1, values, head, column);
      UNROLLED (p, TILE_M)
        UNROLLED (v, VECTORS) {
          STORE_FLOATS(sum[p][v] / SUM_OF(total[p]), 0, output + p * head + column[v]);
        }
    }
  }
}

KERNEL(attention_tiled_float)
#endif
