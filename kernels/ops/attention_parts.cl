// SPDX-License-Identifier: Apache-2.0
// Macros: HAS_MASK; LANES floats a load; PARTS, which share the places of a matrix; TILE_M, all its
// rows; TILE_N places of which the scores are found at a time, and VECTORS of the result that are
// summed up at a time. A work-group is one work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "attention.clh"

// What a part of the places makes of a row: HEAD sums of values, the highest score, and the total
// of the shares that were summed up, exp(score - highest).
#define PART_OF(row, part) (FOUND + ((row) * PARTS + (part)) * (head + 2))

#if USES_ATTENTION_PARTS_FLOAT
#define FOUND ((global float*)(arena + FOUND_OUTPUT))

// attention_float for all rows of a matrix and a part of the places that they see: keys and values
// pass once. PLACES is a multiple of TILE_N, HEAD of VECTORS * LANES.
// tile: a part of a matrix's places; tiles: b * PARTS
TILE(attention_parts_float) {
  int places = PLACES;
  int head = HEAD;
  int matrix = tile / PARTS, part = tile - matrix * PARTS, first = matrix * TILE_M;
  global const float* query = (global const float*)(arena + QUERIES) + first * head;
  global const float* keys = (global const float*)(arena + KEYS) + matrix * places * head;
  global const float* values = (global const float*)(arena + VALUES) + matrix * places * head;
  global float* shares = (global float*)(arena + SHARES_OUTPUT) + first * places;
  int seen = places;
#if HAS_MASK
  global const float* masks = (global const float*)(arena + MASK) + matrix * MASK_MATRIX_STEP;
  seen = LOCAL(seen_of)(masks, places);
  for (int r = 1; r < TILE_M; r++)
    seen = max(seen, LOCAL(seen_of)(masks + r * MASK_ROW_STEP, places));
#endif
  int blocks = (seen + TILE_N - 1) / TILE_N;
  int begin = blocks * part / PARTS * TILE_N, end = blocks * (part + 1) / PARTS * TILE_N;

  float scale = as_float(SCALE);
  float highest[TILE_M];
  UNROLLED (r, TILE_M) highest[r] = -INFINITY;
  for (int place = begin; place < end; place += TILE_N) {
    global const float* key = keys + place * head;
    FLOATS sum[TILE_M][TILE_N];
    UNROLLED (r, TILE_M)
      UNROLLED (j, TILE_N) sum[r][j] = 0.0f;
    for (int k = 0; k < head; k += LANES) {
      UNROLLED (j, TILE_N) {
        ASK_FOR(key + (j + PLACES_AHEAD) * head + k);
        FLOATS factor = LOAD_FLOATS(0, key + j * head + k);
        UNROLLED (r, TILE_M)
          sum[r][j] = MULTIPLY_ADD(factor, LOAD_FLOATS(0, query + r * head + k), sum[r][j]);
      }
    }
    UNROLLED (r, TILE_M) {
#if HAS_MASK
      global const float* mask = masks + r * MASK_ROW_STEP;
#endif
      UNROLLED (j, TILE_N) {
        float score = SCORE_AT(SUM_OF(sum[r][j]), place + j);
        shares[r * places + place + j] = score;
        highest[r] = AT_LEAST(highest[r], score);
      }
    }
  }

  for (int r = 0; r < TILE_M; r++) {
    global float* share = shares + r * places;
    // Where a mask of -infinity hides the whole part, no share is above 0.
    float from = highest[r] > -INFINITY ? highest[r] : 0.0f;
    FLOATS total = 0.0f;
    int place = begin;
    for (; place <= end - LANES; place += LANES) {
      FLOATS e = LOCAL(JOIN(exp_below_0, LANES))(LOAD_FLOATS(0, share + place) - from);
      STORE_FLOATS(e, 0, share + place);
      total += e;
    }
    float rest = SUM_OF(total);
    for (; place < end; place++) {
      float e = LOCAL(exp_below_0)(share[place] - from);
      share[place] = e;
      rest += e;
    }
    global float* found = PART_OF(first + r, part);
    found[head] = highest[r];
    found[head + 1] = rest;
  }

  for (int k = 0; k < head; k += VECTORS * LANES) {
    FLOATS sum[TILE_M][VECTORS];
    UNROLLED (r, TILE_M)
      UNROLLED (v, VECTORS) sum[r][v] = 0.0f;
    for (int place = begin; place < end; place++) {
      global const float* value = values + place * head + k;
      UNROLLED (v, VECTORS) {
        ASK_FOR(value + PLACES_AHEAD * head + v * LANES);
        FLOATS factor = LOAD_FLOATS(v, value);
        UNROLLED (r, TILE_M) {
          FLOATS share = shares[r * places + place];
          sum[r][v] = MULTIPLY_ADD(factor, share, sum[r][v]);
        }
      }
    }
    UNROLLED (r, TILE_M)
      UNROLLED (v, VECTORS) STORE_FLOATS(sum[r][v], v, PART_OF(first + r, part) + k);
  }
}

KERNEL(attention_parts_float)
#endif

#if USES_ATTENTION_PARTS_MERGED_FLOAT
#define FOUND ((global const float*)(arena + FOUND_INPUT))

// What attention_parts_float made of the parts as one: output = sum of w[part] * sums[part] over
// sum of w[part] * totals[part], where w is exp(highest[part] - highest of all).
// tile: one row; tiles: b * r
TILE(attention_parts_merged_float) {
  int head = HEAD;
  float highest = -INFINITY;
  UNROLLED (part, PARTS) highest = AT_LEAST(highest, PART_OF(tile, part)[head]);
  float weight[PARTS];
  float total = 0.0f;
  UNROLLED (part, PARTS) {
    global const float* found = PART_OF(tile, part);
    weight[part] = found[head] > -INFINITY ? LOCAL(exp_below_0)(found[head] - highest) : 0.0f;
    total += weight[part] * found[head + 1];
  }
  global float* output = (global float*)(arena + OUTPUT) + tile * head;
  for (int k = 0; k < head; k += LANES) {
    FLOATS sum = 0.0f;
    UNROLLED (part, PARTS) sum += LOAD_FLOATS(0, PART_OF(tile, part) + k) * (FLOATS)weight[part];
    STORE_FLOATS(sum / total, 0, output + k);
  }
}

KERNEL(attention_parts_merged_float)
#endif
