// SPDX-License-Identifier: Apache-2.0
// Macros: IS_LONG, 1 where places are int64; ELEM, the input's type; IS_MIN, 1 for the smallest;
// for all but the plain kernel LANES elements at once; for neighbours IS_ALIGNED, see store.clh.
// The source of all: reference/arg_min_max.h ArgMinMax. As there only what is larger than the best
// so far takes its place: the first of several wins, and a NaN is found only as the first of all.
// Some versions return another index for NaN when the axis is not the last: NAN_GIVES_WAY.
// Where none are kept, TFLite's answer for a row with a NaN depends on the vectors it was built
// with.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "store.clh"

#define INTS JOIN(int, LANES)
#define IS_BETTER(x, best) (IS_MIN ? (x) < (best) : (x) > (best))

#define ELEM_uchar 1
#define ELEM_char 1
#define ELEM_int 1
#define ELEM_float 2
#if JOIN(ELEM_, ELEM) == ELEM_float
#define TAKES_OVER(x, best) (IS_BETTER(x, best) | (gives_way & ((best) != (best)) & ((x) == (x))))
#else
#define TAKES_OVER(x, best) IS_BETTER(x, best)
#endif

// A place is not negative: its high word is 0.
#if IS_LONG
#define PUT(i, place) ((global uint2*)(arena + OUTPUT))[i] = (uint2)((uint)(place), 0u)
#else
#define PUT(i, place) ((global int*)(arena + OUTPUT))[i] = (place)
#endif

#if USES_ARG_MAX
#define TRY(a)                                 \
  do {                                         \
    const int here = (a);                      \
    const ELEM x = source[here * inner];       \
    const int is_better = TAKES_OVER(x, best); \
    place = is_better ? here : place;          \
    best = is_better ? x : best;               \
  } while (0)

// output[o,i] = place of the largest or smallest of input[o,0..length-1,i]
// Eight elements a round; past the end the last one again, which is not better than itself.
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(arg_max) {
  const int inner = INNER;
  const int last = LENGTH - 1;
#if JOIN(ELEM_, ELEM) == ELEM_float
  const int gives_way = -NAN_GIVES_WAY;
#endif
  EACH_ITEM (item, tile, ITEMS) {
    global const ELEM* source =
        (global const ELEM*)(arena + INPUT) + item / inner * (last + 1) * inner + item % inner;
    ELEM best = source[0];
    int place = 0;
    for (int a = 0; a <= last; a += 8) {
      TRY(a);
      TRY(min(a + 1, last));
      TRY(min(a + 2, last));
      TRY(min(a + 3, last));
      TRY(min(a + 4, last));
      TRY(min(a + 5, last));
      TRY(min(a + 6, last));
      TRY(min(a + 7, last));
    }
    PUT(item, place);
  }
}

KERNEL(arg_max)
#endif

#if USES_ARG_MAX_VECTOR || USES_ARG_MAX_ROW
#if JOIN(ELEM_, ELEM) == ELEM_float
#include "float.clh"
#define NUMBER float
#define LOAD(from) LOAD_FLOATS(0, from)
#else
#define NUMBER int
#define LOAD(from) JOIN(convert_int, LANES)(LOAD_LANES(ELEM, LANES, from))
#endif
#define NUMBERS JOIN(NUMBER, LANES)
#endif

#if USES_ARG_MAX_VECTOR
DEFINE_STORE(INTS)

// The same for LANES neighbours that are kept; the last block of them overlaps the one before.
// tile: TILE_ITEMS blocks, one a work-item; tiles: ceil(blocks / TILE_ITEMS)
TILE(arg_max_vector) {
  const int inner = INNER;
  const int length = LENGTH;
#if JOIN(ELEM_, ELEM) == ELEM_float
  const INTS gives_way = -NAN_GIVES_WAY;
#endif
  EACH_ITEM (item, tile, ITEMS) {
    const int outer = item / BLOCKS;
    const int start = min(item % BLOCKS * LANES, inner - LANES);
    global const ELEM* source =
        (global const ELEM*)(arena + INPUT) + outer * length * inner + start;
    NUMBERS best = LOAD(source);
    INTS place = 0;
    for (int a = 1; a < length; a++) {
      source += inner;
      NUMBERS x = LOAD(source);
      INTS here = a;
      INTS is_better = TAKES_OVER(x, best);
      place = is_better ? here : place;
      best = is_better ? x : best;
    }
    global int* output = (global int*)(arena + OUTPUT) + (outer * inner + start) * (1 + IS_LONG);
#if IS_LONG
    INTS words = 0;
    words.even = place.lo;
    STORE(INTS, words, output);
    words.even = place.hi;
    STORE(INTS, words, output + LANES);
#else
    STORE(INTS, place, output);
#endif
  }
}

KERNEL(arg_max_vector)
#endif

#define COUNT_4(type) (JOIN(type, 4))(0, 1, 2, 3)
#define COUNT_8(type) (JOIN(type, 8))(0, 1, 2, 3, 4, 5, 6, 7)
#define COUNT_16(type) (JOIN(type, 16))(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define COUNT(type) JOIN(COUNT_, LANES)(type)

#if USES_ARG_MAX_ROW
// Halves of a vector until one number is left.
#define HALVES_4(f, v) f(f((v).s0, (v).s1), f((v).s2, (v).s3))
#define HALVES_8(f, v) f(HALVES_4(f, (v).lo), HALVES_4(f, (v).hi))
#define HALVES_16(f, v) f(HALVES_8(f, (v).lo), HALVES_8(f, (v).hi))
#define OF_ALL(f, v) JOIN(HALVES_, LANES)(f, v)

static NUMBER LOCAL(better)(NUMBER a, NUMBER b) { return IS_BETTER(b, a) ? b : a; }

// The same along the last axis, LANES elements of a row at once; the last of them overlap those
// before. Every lane begins with the row's first element, so that only a NaN there stays.
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(arg_max_row) {
  const int length = LENGTH;
  const INTS lane = COUNT(int);
  const INTS none = length;
  EACH_ITEM (item, tile, ITEMS) {
    global const ELEM* source = (global const ELEM*)(arena + INPUT) + item * length;
    NUMBERS best = (NUMBER)source[0];
    INTS place = 0;
    for (int block = 0; block < length; block += LANES) {
      const int a = min(block, length - LANES);
      NUMBERS x = LOAD(source + a);
      INTS is_better = IS_BETTER(x, best);
      place = is_better ? lane + a : place;
      best = is_better ? x : best;
    }
    NUMBERS found = OF_ALL(LOCAL(better), best);
    INTS is_worse = IS_BETTER(found, best);
    place = is_worse ? none : place;
    PUT(item, OF_ALL(min, place));
  }
}

KERNEL(arg_max_row)
#endif

#if USES_ARG_MAX_ROW_QUANT8
#define KEYS JOIN(ushort, LANES)
#define TO_KEYS JOIN(convert_ushort, LANES)

// The same for rows of at most 256 bytes, one at a time: the largest of keys made of a byte above
// and 255 - its place below, which an exclusive or puts in the order wanted.
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(arg_max_row_quant8) {
  const int length = LENGTH;
  const int end = min(TILE_ITEMS, ITEMS - tile * TILE_ITEMS);
  const KEYS lane = (ushort)255 - COUNT(ushort);
  const KEYS flip = (ushort)(FLIP << 8);
  global const uchar* source = arena + INPUT + tile * TILE_ITEMS * length;
  for (int i = get_local_id(0); i < end; i += get_local_size(0)) {
    KEYS best = 0;
    for (int block = 0; block < length; block += LANES) {
      const int a = min(block, length - LANES);
      KEYS key = TO_KEYS(JOIN(vload, LANES)(0, source + i * length + a));
      best = max(best, ((key << (ushort)8) ^ flip) | (lane - (ushort)a));
    }
#if LANES == 16
    ushort8 best8 = max(best.lo, best.hi);
#elif LANES == 8
    ushort8 best8 = best;
#endif
#if LANES >= 8
    ushort4 best4 = max(best8.lo, best8.hi);
#else
    ushort4 best4 = best;
#endif
    ushort2 best2 = max(best4.lo, best4.hi);
    PUT(tile * TILE_ITEMS + i, 255 - (max(best2.x, best2.y) & 255));
  }
}

KERNEL(arg_max_row_quant8)
#endif
