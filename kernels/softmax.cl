// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar or char.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
DEFINE_ROUNDING()

// 1 / (1 + x) for x in [0, 1), both with 31 fractional bits: three Newton steps.
// Source: gemmlowp fixedpoint.h one_over_one_plus_x_for_x_in_0_1
static int LOCAL(one_over_one_plus)(int x) {
  // (x + 1) / 2 rounded; the 1 is 2^31 - 1, and the sum fits an unsigned word
  int half_denominator = (int)(((uint)x + 0x7fffffffu + 1u) >> 1);
  // 2 integer bits from here on: 48/17 - 32/17 * half_denominator
  int y = 1515870810 + LOCAL(rounding_doubling_high_mul)(half_denominator, -1010580540);
  for (int step = 0; step < 3; step++) {
    int error = (1 << 29) - LOCAL(rounding_doubling_high_mul)(half_denominator, y);
    // a product of 4 integer bits back to 2; it stays far from the ends
    y += LOCAL(rounding_doubling_high_mul)(y, error) * 4;
  }
  // y / 2 with no integer bits: half of one more shift, saturated
  return y > 0x3fffffff ? 0x7fffffff : y * 2;
}

// output[r,i] = e[i] / sum of e, in 256ths from the type's lowest value on, e[i] = exp of the scaled
// distance to the row's maximum. Distances have 256 values: the host made exp's table, in 31
// fractional bits, and kept the sums' 19 bits in a second one.
// Source: reference/softmax.h Softmax
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(softmax_quant8) {
  for (int i = get_local_id(0); i < TILE_ITEMS; i += get_local_size(0)) {
    int row = tile * TILE_ITEMS + i;
    if (row >= ROWS) break;
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + row * DEPTH;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + row * DEPTH;
    global const int* exponential = (global const int*)(constants + TABLE);
    int highest = input[0];
    for (int c = 1; c < DEPTH; c++) highest = max(highest, (int)input[c]);
    int sum = 0;
    for (int c = 0; c < DEPTH; c++) sum += exponential[256 + highest - input[c]];
    int headroom = (int)clz((uint)sum);
    int scale = LOCAL(one_over_one_plus)((int)(((uint)sum << headroom) - 0x80000000u));
    // 12 integer bits less the headroom, then 31 fractional bits down to 8
    int exponent = 12 - headroom + 31 - 8;
    for (int c = 0; c < DEPTH; c++) {
      int share = LOCAL(rounding_doubling_high_mul)(scale, exponential[highest - input[c]]);
      // NOTE: at sums of 512 and more, where the exponent passes 31, TFLite's kernel aborts.
      int quanta = exponent > 31 ? 0 : LOCAL(rounding_divide_by_pot)(share, exponent);
      output[c] = (ELEM)min(quanta + OUTPUT_MIN, OUTPUT_MAX);
    }
  }
}

KERNEL(softmax_quant8)
