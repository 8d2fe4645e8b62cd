// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type; LANES channels at once, 1 for scalars; IS_FLOAT, 1 for sums of
// floats (uint8, float32), 0 for fixed point with 10 fraction bits (int8, int16); IS_SHORT, 1 where
// all weights are multiples of 1/16, so that sums of 8-bit values are exact in 16 bits; for vectors
// IS_ALIGNED, see store.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "store.clh"

#define ELEM_uchar 1
#define ELEM_char 2
#define ELEM_short 3
#define ELEM_float 4
#define TYPE JOIN(ELEM_, ELEM)
#define HAS_FLOATS (TYPE == ELEM_float)
#include "stored.clh"

#if LANES > 1
#define VECTOR(type) JOIN(type, LANES)
#define CONVERT(type) JOIN(convert_, JOIN(type, LANES))
#if TYPE == ELEM_float
#define LOAD(from) LOAD_FLOATS(0, from)
#define STORE_RESULT(value, to) STORE_FLOATS(value, 0, to)
#else
#define ELEMS VECTOR(ELEM)
DEFINE_STORE(ELEMS)
#define LOAD(from) LOAD_LANES(ELEM, LANES, from)
#define STORE_RESULT(value, to) STORE(ELEMS, CONVERT(ELEM)(value), to)
#endif
#else
#define VECTOR(type) type
#define CONVERT(type) JOIN(convert_, type)
#define LOAD(from) LOAD_FLOAT(0, from)
#define STORE_RESULT(value, to) STORE_FLOAT(CONVERT(ELEM)(value), 0, to)
#endif

// A column of two pixels, each times its row's weight: two numbers where sums of floats must be
// made in TFLite's order, else their sum.
#if IS_FLOAT
typedef struct {
  VECTOR(float) top;
  VECTOR(float) bottom;
} LOCAL(column);
#define WEIGHT(bits) as_float(bits)
#elif !IS_SHORT
typedef VECTOR(int) LOCAL(column);
#define WEIGHT(bits) (bits)
#elif TYPE == ELEM_uchar
typedef VECTOR(ushort) LOCAL(column);
#define WEIGHT(bits) ((ushort)(bits))
#else
typedef VECTOR(short) LOCAL(column);
#define WEIGHT(bits) ((short)(bits))
#endif

static LOCAL(column)
    LOCAL(mixed)(global const STORED_ELEM* top, global const STORED_ELEM* bottom, int4 row) {
#if IS_FLOAT
  LOCAL(column) both;
  both.top = CONVERT(float)(LOAD(top)) * WEIGHT(row.s2);
  both.bottom = CONVERT(float)(LOAD(bottom)) * WEIGHT(row.s3);
  return both;
#elif !IS_SHORT
  return CONVERT(int)(LOAD(top)) * row.s2 + CONVERT(int)(LOAD(bottom)) * row.s3;
#elif TYPE == ELEM_uchar
  return CONVERT(ushort)(LOAD(top)) * WEIGHT(row.s2) +
         CONVERT(ushort)(LOAD(bottom)) * WEIGHT(row.s3);
#else
  return CONVERT(short)(LOAD(top)) * WEIGHT(row.s2) + CONVERT(short)(LOAD(bottom)) * WEIGHT(row.s3);
#endif
}

static void LOCAL(blend)(LOCAL(column) left, LOCAL(column) right, int4 place,
                         global STORED_ELEM* to) {
#if IS_FLOAT
  // TFLite's order of products and sums; its offset, 0 for floats, makes -0 a 0.
  VECTOR(float)
  sum = left.top * WEIGHT(place.s2) + left.bottom * WEIGHT(place.s2) +
        right.top * WEIGHT(place.s3) + right.bottom * WEIGHT(place.s3);
  STORE_RESULT(sum + (TYPE == ELEM_float ? 0.0f : 0.5f), to);
#elif !IS_SHORT
  // The sum in 1/2^20, half away from zero: `whole` has it in 1/2^10, `rest` what that leaves.
  VECTOR(int) low = (left & 1023) * place.s2 + (right & 1023) * place.s3;
  VECTOR(int) whole = (left >> 10) * place.s2 + (right >> 10) * place.s3 + (low >> 10);
  VECTOR(int) rest = low & 1023;
  STORE_RESULT((whole + 512 + ((whole & (rest - 1)) >> 31)) >> 10, to);
#elif TYPE == ELEM_uchar
  VECTOR(ushort) sum = left * WEIGHT(place.s2) + right * WEIGHT(place.s3);
  STORE_RESULT((sum + (ushort)128) >> (ushort)8, to);
#else
  // Half away from zero.
  VECTOR(short) sum = left * WEIGHT(place.s2) + right * WEIGHT(place.s3);
  STORE_RESULT((sum + (short)128 + (sum >> (short)15)) >> (short)8, to);
#endif
}

// output[n,y,x,c] = input[n,y0..y1,x0..x1,c], each of the four by its row's and its column's weight
// The host tabled those and the offsets. Neighbouring outputs lie between the same columns, or the
// next ones. The last block of channels overlaps the one before.
// NHWC   Source: reference/resize_bilinear.h ResizeBilinear, ResizeBilinearInteger
// tile: TILE_ITEMS runs of RUN pixels of a row x LANES channels, channels first; tiles: ceil(n *
// out_h * ceil(out_w / RUN) * ceil(c / LANES) / TILE_ITEMS)
TILE(resize_bilinear) {
  const int depth = DEPTH;
  const int out_w = OUT_W;
  const int end = min(TILE_ITEMS, ITEMS - tile * TILE_ITEMS);
  global const int4* columns = (global const int4*)(constants + COLUMNS);
  for (int i = get_local_id(0); i < end; i += get_local_size(0)) {
    int rest = tile * TILE_ITEMS + i;
    const int c = min(rest % BLOCKS * LANES, depth - LANES);
    rest /= BLOCKS;
    const int x_begin = rest % SEGMENTS * RUN;
    const int x_end = min(x_begin + RUN, out_w);
    rest /= SEGMENTS;
    const int4 row = ((global const int4*)(constants + ROWS))[rest % OUT_H];
    global const STORED_ELEM* picture =
        (global const STORED_ELEM*)(arena + INPUT) + rest / OUT_H * IN_PIXELS * depth + c;
    global const STORED_ELEM* top = picture + row.s0;
    global const STORED_ELEM* bottom = picture + row.s1;
    global STORED_ELEM* output =
        (global STORED_ELEM*)(arena + OUTPUT) + (rest * out_w + x_begin) * depth + c;
    int4 last = -1;  // no column: the first pixel loads both
    LOCAL(column) left;
    LOCAL(column) right;
    for (int x = x_begin; x < x_end; x++) {
      const int4 place = columns[x];
      if (place.s0 != last.s0) {
        left = place.s0 == last.s1 ? right : LOCAL(mixed)(top + place.s0, bottom + place.s0, row);
      }
      if (place.s1 != last.s1) right = LOCAL(mixed)(top + place.s1, bottom + place.s1, row);
      LOCAL(blend)(left, right, place, output);
      last = place;
      output += depth;
    }
  }
}

KERNEL(resize_bilinear)
