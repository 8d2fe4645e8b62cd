// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar or char.
#pragma OPENCL FP_CONTRACT OFF

// 1 / x rounded to nearest even, by long division of the mantissas: OpenCL's own division may be
// off by 2.5 units in the last place. x is normal and positive, and so is the quotient.
static float reciprocal(float x) {
  uint mantissa = (as_uint(x) & 0x007fffffu) | 0x00800000u;
  int exponent = (int)(as_uint(x) >> 23) - 127;
  // 2^48 / mantissa lies in (2^24, 2^25]: 25 quotient bits, after the leading one of an exact power
  uint remainder = 0x00800000u;
  if (mantissa == remainder) return as_float((uint)(127 - exponent) << 23);
  uint quotient = 0;
  for (int bit = 0; bit < 25; bit++) {
    remainder <<= 1;
    quotient <<= 1;
    if (remainder >= mantissa) {
      remainder -= mantissa;
      quotient |= 1u;
    }
  }
  // quotient has 25 bits, the last one the rounding bit: to nearest, and a tie cannot be
  quotient = (quotient + 1u) >> 1;
  return as_float(((uint)(126 - exponent) << 23) + (quotient - 0x00800000u));
}

// output[r,i] = round(e[i] / (sum of e * out_scale)) + zero, e[i] = table[255 - max + input[r,i]]
// The sum runs in order and each step rounds, as the C code's does.
// Source: optimized/optimized_ops.h Softmax with PopulateSoftmaxLookupTable, which the reference
// resolver uses too
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
static void softmax_quant8_tile(global uchar* arena, global const uchar* constants,
                                global const int* params, int tile) {
  for (int i = get_local_id(0); i < TILE_ITEMS; i += get_local_size(0)) {
    int row = tile * TILE_ITEMS + i;
    if (row >= ROWS) break;
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + row * DEPTH;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + row * DEPTH;
    int highest = input[0];
    for (int c = 1; c < DEPTH; c++) highest = max(highest, (int)input[c]);
    global const float* table = (global const float*)(constants + TABLE) + (255 - highest);
    float sum = 0.0f;
    for (int c = 0; c < DEPTH; c++) sum += table[input[c]];
    float inverse = reciprocal(sum * as_float(OUTPUT_SCALE_BITS));
    for (int c = 0; c < DEPTH; c++) {
      float share = table[input[c]] * inverse;
      int whole = (int)share;
      int rounded = whole + (share - (float)whole >= 0.5f ? 1 : 0);
      output[c] = (ELEM)clamp(rounded + OUTPUT_ZERO, OUTPUT_MIN, OUTPUT_MAX);
    }
  }
}

kernel void softmax_quant8(global uchar* arena, global const uchar* constants,
                           global const int* params, int first) {
  softmax_quant8_tile(arena, constants, params + first, get_group_id(0));
}
