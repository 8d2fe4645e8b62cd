// SPDX-License-Identifier: Apache-2.0
// Macros: TAKES_MAX, 1 for the maximum, 0 the average; LANES channels a work-item, 1 in the plain
// kernel, and IS_ALIGNED, see store.clh; for integers ELEM, char or short.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "store.clh"
#include "quotient.clh"

// Values of an item, as they are in memory and as they are added.
#if LANES == 1
#define OF_LANES(type) type
#define LOAD(type, from) (*(from))
#else
#define OF_LANES(type) JOIN(type, LANES)
#define LOAD(type, from) LOAD_LANES(type, LANES, from)
#endif

// The first of an item's channels, and the part of its window that is in bounds. The last block of
// channels overlaps the one before it and writes the same values again.
#define WINDOW(item)                                                \
  int channels = CHANNELS;                                          \
  int c = min(item % CHANNEL_BLOCKS * LANES, channels - LANES);     \
  int pixel = item / CHANNEL_BLOCKS;                                \
  int left = pixel % OUT_W * STRIDE_W - PAD_LEFT;                   \
  int top = pixel / OUT_W % OUT_H * STRIDE_H - PAD_TOP;             \
  int front = pixel / OUT_W / OUT_H % OUT_D * STRIDE_D - PAD_FRONT; \
  int n = pixel / OUT_W / OUT_H / OUT_D;                            \
  int x_begin = max(left, 0);                                       \
  int x_end = min(left + KERNEL_W, IN_W);                           \
  int y_begin = max(top, 0);                                        \
  int y_end = min(top + KERNEL_H, IN_H);                            \
  int z_begin = max(front, 0);                                      \
  int z_end = min(front + KERNEL_D, IN_D);                          \
  int count = (z_end - z_begin) * (y_end - y_begin) * (x_end - x_begin)

// Each input pixel of the window, in TFLite's order: its first channel is at `at`.
#define EACH_PIXEL(at)                                                      \
  for (int z = z_begin; z < z_end; z++)                                     \
    for (int y = y_begin; y < y_end; y++)                                   \
      for (int row = ((n * IN_D + z) * IN_H + y) * IN_W * channels + c,     \
               at = row + x_begin * channels, end = row + x_end * channels; \
           at < end; at += channels)

#if USES_POOL_3D_FLOAT
#if LANES == 1
DEFINE_QUOTIENT()
#else
DEFINE_QUOTIENT(LANES)
#endif

// output[n,z,y,x,c] = average or maximum of the in-bounds window of input[n,z',y',x',c], clamped
// NDHWC   Source: pooling3d.cc
// tile: TILE_ITEMS blocks of LANES channels, channels first; tiles: ceil(blocks / TILE_ITEMS)
TILE(pool_3d_float) {
  global const float* input = (global const float*)(arena + INPUT);
  FLOAT_BOUNDS(OF_LANES(float));
  OF_LANES(float) zero = 0.0f;
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    WINDOW(item);
    OF_LANES(float) value = TAKES_MAX ? low : zero;
    EACH_PIXEL(at) {
      OF_LANES(float) found = LOAD(float, input + at);
      value = TAKES_MAX ? AT_LEAST(value, found) : value + found;
    }
    OF_LANES(float) taps = (float)count;
    if (!TAKES_MAX) value = QUOTIENT(value, taps);
    value = ACTIVATE(value, low, high);
    global float* output = (global float*)(arena + OUTPUT) + pixel * channels + c;
#if LANES == 1
    *output = value;
#else
    STORE_FLOATS(value, 0, output);
#endif
  }
}

KERNEL(pool_3d_float)
#endif

#if USES_POOL_3D_QUANT8
#if LANES > 1
#define ELEMS JOIN(ELEM, LANES)
DEFINE_STORE(ELEMS)
#endif

// The same of integers; an average is rounded half away from zero.
// tile: TILE_ITEMS blocks of LANES channels, channels first; tiles: ceil(blocks / TILE_ITEMS)
TILE(pool_3d_quant8) {
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  OF_LANES(int) least = OUTPUT_MIN;
  OF_LANES(int) most = OUTPUT_MAX;
  OF_LANES(int) zero = 0;
  EACH_ITEM (item, tile, ITEMS) {
    WINDOW(item);
    OF_LANES(int) value = TAKES_MAX ? least : zero;
    EACH_PIXEL(at) {
      OF_LANES(int) found = JOIN(convert_, OF_LANES(int))(LOAD(ELEM, input + at));
      value = TAKES_MAX ? max(value, found) : value + found;
    }
    if (!TAKES_MAX) {
      OF_LANES(int) sign = value >> 31;
      OF_LANES(int) size = (((value ^ sign) - sign) + count / 2) / count;
      value = (size ^ sign) - sign;
    }
    value = clamp(value, least, most);
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + pixel * channels + c;
#if LANES == 1
    *output = (ELEM)value;
#else
    STORE(ELEMS, JOIN(convert_, ELEMS)(value), output);
#endif
  }
}

KERNEL(pool_3d_quant8)
#endif
