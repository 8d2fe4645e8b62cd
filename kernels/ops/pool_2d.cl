// SPDX-License-Identifier: Apache-2.0
// Macros: TAKES_MAX, 1 for the maximum, 0 the average; for integers ELEM, the activations' type,
// uchar or char, or short, which has the same arithmetic; for floats IS_L2, 1 for the root of the
// average square; for the vector kernels LANES channels a vector, and IS_ALIGNED, see store.clh;
// of integers VECTORS, the vectors of an item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "math.clh"
#include "store.clh"

// The part of an output pixel's window that is in bounds.
#define WINDOW(pixel)                                   \
  int left = pixel % OUT_W * STRIDE_W - PAD_LEFT;       \
  int top = pixel / OUT_W % OUT_H * STRIDE_H - PAD_TOP; \
  int n = pixel / OUT_W / OUT_H;                        \
  int x_begin = max(left, 0);                           \
  int x_end = min(left + KERNEL_W, IN_W);               \
  int y_begin = max(top, 0);                            \
  int y_end = min(top + KERNEL_H, IN_H)

#if USES_POOL_2D_QUANT8
// output[n,y,x,c] = average or maximum of the in-bounds window of input[n,y',x',c], clamped
// NHWC   Source: reference/pooling.h, integer_ops/pooling.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*c / TILE_ITEMS)
TILE(pool_2d_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global ELEM* output = (global ELEM*)(arena + OUTPUT);
  EACH_ITEM (element, tile, ELEMENTS) {
    int c = element % DEPTH;
    int pixel = element / DEPTH;
    WINDOW(pixel);
    int value = TAKES_MAX ? OUTPUT_MIN : 0;
    for (int y = y_begin; y < y_end; y++) {
      for (int x = x_begin; x < x_end; x++) {
        int source = input[((n * IN_H + y) * IN_W + x) * DEPTH + c];
        value = TAKES_MAX ? max(value, source) : value + source;
      }
    }
    if (!TAKES_MAX) {
      // Half away from zero; an unsigned sum is never negative.
      int count = (y_end - y_begin) * (x_end - x_begin);
      value = (value > 0 ? value + count / 2 : value - count / 2) / count;
    }
    output[element] = (ELEM)clamp(value, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(pool_2d_quant8)
#endif

#if USES_POOL_2D_VECTOR_QUANT8
#define INTS JOIN(int, LANES)
#define FLOATS JOIN(float, LANES)
#define TO_INTS JOIN(convert_int, LANES)
#define TO_FLOATS JOIN(convert_float, LANES)
#define ELEMS JOIN(ELEM, LANES)
#define TO_ELEMS JOIN(convert_, ELEMS)
#define LOAD_ELEMS(from) LOAD_LANES(ELEM, LANES, from)
DEFINE_STORE(ELEMS)
// CPUs, which alone have vectors wider than 4, compare bytes as they are.
#if TAKES_MAX && LANES > 4
#define VALUES ELEMS
#define TO_VALUES(elements) (elements)
#define BOUND(value) ((ELEM)(value))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define LESSER(a, b) ((a) < (b) ? (a) : (b))
#define BETWEEN(value, low, high) LESSER(GREATER(value, low), high)
#else
#define VALUES INTS
#define TO_VALUES TO_INTS
#define BOUND(value) (value)
#define GREATER(a, b) max(a, b)
#define BETWEEN(value, low, high) clamp(value, low, high)
#endif

// The same for LANES * VECTORS channels at a time. The last block of channels overlaps the one
// before it and writes the same values again: no short stores.
// tile: TILE_ITEMS blocks of channels, channels first; tiles: ceil(blocks / TILE_ITEMS)
TILE(pool_2d_vector_quant8) {
  VALUES low = BOUND(OUTPUT_MIN);
  VALUES high = BOUND(OUTPUT_MAX);
  int depth = DEPTH;
  EACH_ITEM (item, tile, ITEMS) {
    int c = min(item % CHANNEL_BLOCKS * (LANES * VECTORS), depth - LANES * VECTORS);
    int pixel = item / CHANNEL_BLOCKS;
    WINDOW(pixel);
    VALUES value[VECTORS];
    UNROLLED (v, VECTORS) value[v] = TAKES_MAX ? BOUND(OUTPUT_MIN) : BOUND(0);
    for (int y = y_begin; y < y_end; y++) {
      global const ELEM* source =
          (global const ELEM*)(arena + INPUT) + ((n * IN_H + y) * IN_W + x_begin) * depth + c;
      int x = x_begin;
#if VECTORS == 1
      // Four at once, so that one does not wait for the other where loads take long.
      for (; x < x_end - 3; x += 4) {
        VALUES first = TO_VALUES(LOAD_ELEMS(source));
        VALUES second = TO_VALUES(LOAD_ELEMS(source + depth));
        VALUES third = TO_VALUES(LOAD_ELEMS(source + 2 * depth));
        VALUES fourth = TO_VALUES(LOAD_ELEMS(source + 3 * depth));
#if TAKES_MAX
        first = GREATER(first, second);
        third = GREATER(third, fourth);
        first = GREATER(first, third);
        value[0] = GREATER(value[0], first);
#else
        value[0] += (first + second) + (third + fourth);
#endif
        source += 4 * depth;
      }
#endif
      for (; x < x_end; x++) {
        UNROLLED (v, VECTORS) {
          VALUES found = TO_VALUES(LOAD_ELEMS(source + v * LANES));
          value[v] = TAKES_MAX ? GREATER(value[v], found) : value[v] + found;
        }
        source += depth;
      }
    }
#if !TAKES_MAX
    {
      // Half away from zero. The float quotient, of up to 16 bits, is off by less than one; what it
      // leaves of the dividend says by how much.
      int count = (y_end - y_begin) * (x_end - x_begin);
      INTS sign = value[0] >> 31;
      INTS dividend = ((value[0] ^ sign) - sign) + count / 2;
      INTS quotient = TO_INTS(TO_FLOATS(dividend) * (1.0f / (float)count));
      INTS rest = dividend - quotient * count;
      quotient += (rest < 0) - (rest >= count); /* true is -1 */
      value[0] = (quotient ^ sign) - sign;
    }
#endif
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + pixel * depth + c;
    UNROLLED (v, VECTORS) STORE(ELEMS, TO_ELEMS(BETWEEN(value[v], low, high)), output + v * LANES);
  }
}

KERNEL(pool_2d_vector_quant8)
#endif

#if USES_POOL_2D_FLOAT || USES_POOL_2D_VECTOR_FLOAT
#if IS_L2
#define TERM(x) ((x) * (x))
#else
#define TERM(x) (x)
#endif
#endif

#if USES_POOL_2D_FLOAT
DEFINE_QUOTIENT()
#if IS_L2
DEFINE_PRODUCT_REST()
DEFINE_ROOT()
#endif

// The same as the first for floats, without rounding.
// Source: reference/pooling.h
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*c / TILE_ITEMS)
TILE(pool_2d_float) {
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT);
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT);
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    int c = element % DEPTH;
    int pixel = element / DEPTH;
    WINDOW(pixel);
    float value = TAKES_MAX ? low : 0.0f;
    for (int y = y_begin; y < y_end; y++) {
      for (int x = x_begin; x < x_end; x++) {
        float source = LOAD_FLOAT(((n * IN_H + y) * IN_W + x) * DEPTH + c, input);
        value = TAKES_MAX ? (value < source ? source : value) : value + TERM(source);
      }
    }
    float taps = (float)((y_end - y_begin) * (x_end - x_begin));
    if (!TAKES_MAX) value = QUOTIENT(value, taps);
#if IS_L2
    value = LOCAL(root)(value);
#endif
    STORE_FLOAT(ACTIVATE(value, low, high), element, output);
  }
}

KERNEL(pool_2d_float)
#endif

#if USES_POOL_2D_VECTOR_FLOAT
#define FLOATS JOIN(float, LANES)

DEFINE_QUOTIENT(LANES)
#if IS_L2
DEFINE_PRODUCT_REST(LANES)
DEFINE_ROOT(LANES)
#endif

// The same for LANES channels at a time. The last block of channels overlaps the one before it and
// writes the same values again: no short stores.
// tile: TILE_ITEMS blocks of LANES channels, channels first; tiles: ceil(blocks / TILE_ITEMS)
TILE(pool_2d_vector_float) {
  FLOAT_BOUNDS(FLOATS);
  FLOATS zero = 0.0f;
  int depth = DEPTH;
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    int c = min(item % CHANNEL_BLOCKS * LANES, depth - LANES);
    int pixel = item / CHANNEL_BLOCKS;
    WINDOW(pixel);
    FLOATS value = TAKES_MAX ? low : zero;
    for (int y = y_begin; y < y_end; y++) {
      global const STORED_FLOAT* source = (global const STORED_FLOAT*)(arena + INPUT) +
                                          ((n * IN_H + y) * IN_W + x_begin) * depth + c;
      for (int x = x_begin; x < x_end; x++) {
        FLOATS found = LOAD_FLOATS(0, source);
        value = TAKES_MAX ? AT_LEAST(value, found) : value + TERM(found);
        source += depth;
      }
    }
    FLOATS taps = (float)((y_end - y_begin) * (x_end - x_begin));
    if (!TAKES_MAX) value = QUOTIENT(value, taps);
#if IS_L2
    value = LOCAL(JOIN(root, LANES))(value);
#endif
    global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + pixel * depth + c;
    STORE_FLOATS(ACTIVATE(value, low, high), 0, output);
  }
}

KERNEL(pool_2d_vector_float)
#endif
