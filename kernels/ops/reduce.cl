// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type; FOLD, what makes one of two: SUM, PROD, MAX or MIN; FINISH, 0
// for the number itself, 1 a quantised mean, 2 times a factor, 3 a quantised sum; FROM_FIRST, 1
// where a largest or smallest begins with the first element, not with START; for all but the plain
// kernel LANES elements at once; for neighbours IS_ALIGNED, see store.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#include "reduce.clh"
#include "store.clh"
#include "quotient.clh"

#define FOLD_SUM(a, x) ((a) + (x))
#define FOLD_PROD(a, x) ((a) * (x))
// A NaN is never larger or smaller.
#define FOLD_MAX(a, x) ((x) > (a) ? (x) : (a))
#define FOLD_MIN(a, x) ((x) < (a) ? (x) : (a))
#define COMBINE(a, x) JOIN(FOLD_, FOLD)(a, x)

#define ELEM_uchar 1
#define ELEM_char 1
#define ELEM_short 1
#define ELEM_int 1
#define ELEM_float 2
#define HAS_FLOATS (JOIN(ELEM_, ELEM) == ELEM_float)
#include "stored.clh"
#if HAS_FLOATS
#define NUMBER float
#if FROM_FIRST
#define START_NUMBER LOAD_FLOAT(0, (global const STORED_ELEM*)(arena + INPUT))
#else
#define START_NUMBER as_float(START)
#endif
#else
#define NUMBER int
#define START_NUMBER START
#endif

#if USES_REDUCE || USES_REDUCE_ROW || USES_REDUCE_SHARED
#if FINISH == 1
DEFINE_ROUNDING()
#elif FINISH == 2
DEFINE_QUOTIENT()
#endif

static ELEM LOCAL(finished)(NUMBER x, PARAMS params) {
#if FINISH == 1
  int scaled = LOCAL(requantize)(x + OFFSET, MULTIPLIER, SHIFT) + OUTPUT_ZERO;
  return (ELEM)clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
#elif FINISH == 2 && IEEE
  return QUOTIENT(x, (float)TERMS);
#elif FINISH == 2
  return x * as_float(FACTOR);
#elif FINISH == 3
  int scaled = (int)round((float)x * as_float(FACTOR) + as_float(BIAS)) + OUTPUT_ZERO;
  return (ELEM)clamp(scaled, OUTPUT_MIN, OUTPUT_MAX);
#else
  return (ELEM)x;
#endif
}
#endif

#if USES_REDUCE
// output[kept] = finished(fold of input[kept, reduced] over all reduced)
// Source: reference/reduce.h ReduceGeneric, Mean, QuantizedMeanOrSum
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(reduce) {
  global const STORED_ELEM* input = (global const STORED_ELEM*)(arena + INPUT);
  global STORED_ELEM* output = (global STORED_ELEM*)(arena + OUTPUT);
  const NUMBER start = START_NUMBER;
  EACH_ITEM (item, tile, ITEMS) {
    NUMBER result = start;
#define TAKE(at) result = COMBINE(result, (NUMBER)LOAD_FLOAT(at, input))
    FOR_EACH_TERM(FIRST_OF(item), TAKE);
    STORE_FLOAT(LOCAL(finished)(result, params), item, output);
  }
}

KERNEL(reduce)
#endif

#if USES_REDUCE_SHARED
#define ALONE 0
#include "group_row.clh"

// The same with several work-items a result, which take turns at the terms of the innermost
// dimension. A group may have any size.
// tile: TILE_ITEMS output elements; tiles: ceil(elements / TILE_ITEMS)
TILE(reduce_shared) {
  global const STORED_ELEM* input = (global const STORED_ELEM*)(arena + INPUT);
  local NUMBER* partial = (local NUMBER*)scratch;
  const NUMBER start = START_NUMBER;
  const int width = min(TILE_ITEMS, STRIDE);
  const int shares = STRIDE / width;
  const int own = FIRST % width;
  const int share = FIRST / width;
  for (int at_once = 0; at_once < TILE_ITEMS; at_once += width) {
    const int item = tile * TILE_ITEMS + at_once + own;
    const int is_used = at_once + own < TILE_ITEMS && item < ITEMS && share < shares;
    NUMBER result = start;
    if (is_used) {
      const int first = FIRST_OF(item) + share * REDUCED_STEP_2;
      const int terms = (REDUCED_2 - share + shares - 1) / shares;
#define TAKE_SHARED(at) result = COMBINE(result, (NUMBER)LOAD_FLOAT(at, input))
      FOR_EACH_TERM_ALONG(first, terms, shares * REDUCED_STEP_2, TAKE_SHARED);
    }
    partial[FIRST] = result;
    MEET();
    if (is_used && share == 0) {
      for (int i = 1; i < shares; i++) result = COMBINE(result, partial[own + i * width]);
      STORE_FLOAT(LOCAL(finished)(result, params), item, (global STORED_ELEM*)(arena + OUTPUT));
    }
    MEET();
  }
}

KERNEL(reduce_shared)
#endif

#if USES_REDUCE_INT64
#include "int64.clh"
#undef FOLD_SUM
#undef FOLD_PROD
#undef FOLD_MAX
#undef FOLD_MIN
#define FOLD_SUM(a, x) LOCAL(add_int64)(a, x)
#define FOLD_PROD(a, x) LOCAL(multiply_int64)(a, x)
#define FOLD_MAX(a, x) (LOCAL(is_less_int64)(a, x) ? (x) : (a))
#define FOLD_MIN(a, x) (LOCAL(is_less_int64)(x, a) ? (x) : (a))

// The same of integers of 64 bits; FINISH 1 divides their sum by TERMS, rounded toward zero.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(reduce_int64) {
  global const uint2* input = (global const uint2*)(arena + INPUT);
  EACH_ITEM (item, tile, ITEMS) {
    uint2 result = (uint2)((uint)START_LOW, (uint)START_HIGH);
#define TAKE_INT64(at)           \
  do {                           \
    const uint2 x = input[at];   \
    result = COMBINE(result, x); \
  } while (0)
    FOR_EACH_TERM(FIRST_OF(item), TAKE_INT64);
#if FINISH == 1
    uint2 rest;
    result = LOCAL(divide_int64)(result, (uint2)((uint)TERMS, 0u), &rest);
#endif
    ((global uint2*)(arena + OUTPUT))[item] = result;
  }
}

KERNEL(reduce_int64)
#endif

#if USES_REDUCE_VECTOR || USES_REDUCE_ROW
#define NUMBERS JOIN(NUMBER, LANES)
#if HAS_FLOATS
#define LOAD(from) LOAD_FLOATS(0, from)
#else
#define LOAD(from) JOIN(convert_int, LANES)(LOAD_LANES(ELEM, LANES, from))
#endif
#endif

#if USES_REDUCE_VECTOR
#if HAS_FLOATS
#define STORE_RESULTS(value, to) STORE_FLOATS(value, 0, to)
#else
#define ELEMS JOIN(ELEM, LANES)
#define STORE_RESULTS(value, to) STORE(ELEMS, JOIN(convert_, ELEMS)(value), to)
DEFINE_STORE(ELEMS)
#endif
#if FINISH == 1
DEFINE_ROUNDING(LANES)
#elif FINISH == 2
DEFINE_QUOTIENT(LANES)
#elif FINISH == 3
#define FLOATS JOIN(float, LANES)
#endif

// The same for LANES neighbours that are kept; the last block of them overlaps the one before.
// tile: TILE_ITEMS blocks, one a work-item; tiles: ceil(blocks / TILE_ITEMS)
TILE(reduce_vector) {
  global const STORED_ELEM* input = (global const STORED_ELEM*)(arena + INPUT);
  const NUMBERS start = START_NUMBER;
  EACH_ITEM (item, tile, ITEMS) {
    item = item / BLOCKS * KEPT_2 + min(item % BLOCKS * LANES, KEPT_2 - LANES);
    NUMBERS result = start;
#define TAKE_VECTOR(at)             \
  do {                              \
    NUMBERS x = LOAD(input + (at)); \
    result = COMBINE(result, x);    \
  } while (0)
    FOR_EACH_TERM(FIRST_OF(item), TAKE_VECTOR);
#if FINISH == 1 || FINISH == 3
    const NUMBERS low = OUTPUT_MIN;
    const NUMBERS high = OUTPUT_MAX;
#endif
#if FINISH == 1
    const NUMBERS multiplier = MULTIPLIER;
    const NUMBERS shift = SHIFT;
    result = LOCAL(JOIN(requantize, LANES))(result + OFFSET, multiplier, shift) + OUTPUT_ZERO;
    result = clamp(result, low, high);
#elif FINISH == 2 && IEEE
    const NUMBERS terms = (float)TERMS;
    result = QUOTIENT(result, terms);
#elif FINISH == 2
    result *= as_float(FACTOR);
#elif FINISH == 3
    const FLOATS scaled = JOIN(convert_float, LANES)(result) * as_float(FACTOR) + as_float(BIAS);
    result = clamp(JOIN(convert_int, LANES)(round(scaled)) + OUTPUT_ZERO, low, high);
#endif
    STORE_RESULTS(result, (global STORED_ELEM*)(arena + OUTPUT) + item);
  }
}

KERNEL(reduce_vector)
#endif

#if USES_REDUCE_ROW
// Halves of a vector until one number is left.
#define OF_4(v) COMBINE(COMBINE((v).s0, (v).s1), COMBINE((v).s2, (v).s3))
static NUMBER LOCAL(of_all)(NUMBERS v) {
#if LANES == 16
  JOIN(NUMBER, 8) v8 = COMBINE(v.lo, v.hi);
#elif LANES == 8
  JOIN(NUMBER, 8) v8 = v;
#endif
#if LANES >= 8
  JOIN(NUMBER, 4) v4 = COMBINE(v8.lo, v8.hi);
#else
  JOIN(NUMBER, 4) v4 = v;
#endif
  JOIN(NUMBER, 2) v2 = COMBINE(v4.lo, v4.hi);
  return COMBINE(v2.x, v2.y);
}

// The same along dimensions of which the innermost is dense: LANES of its elements at once, what is
// left of it one by one.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(reduce_row) {
  const NUMBER start = START_NUMBER;
  const int along = REDUCED_2;
  EACH_ITEM (item, tile, ITEMS) {
    global const STORED_ELEM* first = (global const STORED_ELEM*)(arena + INPUT) + FIRST_OF(item);
    NUMBERS results = start;
    NUMBER rest = start;
    for (int a = 0; a < REDUCED_0; a++) {
      for (int b = 0; b < REDUCED_1; b++) {
        global const STORED_ELEM* row = first + a * REDUCED_STEP_0 + b * REDUCED_STEP_1;
        int at = 0;
        for (; at <= along - LANES; at += LANES) {
          NUMBERS x = LOAD(row + at);
          results = COMBINE(results, x);
        }
        for (; at < along; at++) rest = COMBINE(rest, (NUMBER)LOAD_FLOAT(at, row));
      }
    }
    rest = COMBINE(rest, LOCAL(of_all)(results));
    STORE_FLOAT(LOCAL(finished)(rest, params), item, (global STORED_ELEM*)(arena + OUTPUT));
  }
}

KERNEL(reduce_row)
#endif
