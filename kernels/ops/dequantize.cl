// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the type of the input's bytes, uchar, char or short; of the kernel of vectors
// LANES, and IS_ALIGNED, see store.clh.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "store.clh"

#if USES_DEQUANTIZE
// output[i] = scale * (input[i] - zero), a float   Source: reference/dequantize.h Dequantize
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(dequantize) {
  TILE_RANGE(ELEMENTS);
  const float scale = as_float(SCALE);
  const int zero = ZERO;
  global const ELEM* input = (global const ELEM*)(arena + INPUT) + start;
  global float* output = (global float*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0))
    output[i] = (float)(input[i] - zero) * scale;
}

KERNEL(dequantize)
#endif

#if USES_DEQUANTIZE_VECTOR
#define FLOATS JOIN(float, LANES)
DEFINE_STORE(FLOATS)

// The same of LANES neighbours; the last ones overlap those before.
// tile: TILE_ITEMS vectors, one a work-item; tiles: ceil(elements / LANES / TILE_ITEMS)
TILE(dequantize_vector) {
  TILE_RANGE(ITEMS);
  const float scale = as_float(SCALE);
  const int zero = ZERO;
  const int last = ELEMENTS - LANES;
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global float* output = (global float*)(arena + OUTPUT);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    const int at = min((start + i) * LANES, last);
    JOIN(int, LANES) values = JOIN(convert_int, LANES)(LOAD_LANES(ELEM, LANES, input + at)) - zero;
    STORE(FLOATS, JOIN(convert_float, LANES)(values) * scale, output + at);
  }
}

KERNEL(dequantize_vector)
#endif

#if USES_DEQUANTIZE_INT4
// The same of int4: the first of the two that share a byte has its low bits.
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(dequantize_int4) {
  TILE_RANGE(ELEMENTS);
  const float scale = as_float(SCALE);
  const int zero = ZERO;
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global float* output = (global float*)(arena + OUTPUT);
  for (int i = start + get_local_id(0); i < start + count; i += get_local_size(0)) {
    int value = input[i / 2] << (i % 2 ? 24 : 28) >> 28;
    output[i] = (float)(value - zero) * scale;
  }
}

KERNEL(dequantize_int4)
#endif
