// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the input's type, uchar or char, and OUT, the output's, which may be short; LANES,
// how many values a row has.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
DEFINE_ROUNDING()
DEFINE_ROUNDING(LANES)
#include "fixed_point.clh"
#include "store.clh"

#define INTS JOIN(int, LANES)
#define OUTS JOIN(OUT, LANES)
DEFINE_STORE(OUTS)

// As softmax_quant8, of rows that are one vector: only exponentials are looked up one by one.
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(softmax_vector_quant8) {
  global const int* exponential = (global const int*)(constants + TABLE);
  const INTS least = OUTPUT_MIN;
  const INTS most = OUTPUT_MAX - OUTPUT_MIN;
  const INTS twelve = 12;
  EACH_ITEM (row, tile, ROWS) {
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + row * LANES;
    global OUT* output = (global OUT*)(arena + OUTPUT) + row * LANES;
    int highest = input[0];
    UNROLLED (l, LANES) highest = max(highest, (int)input[l]);
    int each[LANES];
    UNROLLED (l, LANES) each[l] = exponential[highest - input[l]];
    const INTS exponentials = JOIN(vload, LANES)(0, each);
    JOIN(vstore, LANES)(LOCAL(JOIN(rounding_divide_by_pot, LANES))(exponentials, twelve), 0, each);
    int sum = 0;
    UNROLLED (l, LANES) sum += each[l];
    const int headroom = (int)clz((uint)sum);
    const INTS scale = LOCAL(one_over_one_plus)((int)(((uint)sum << headroom) - 0x80000000u));
    const int exponent = 12 - headroom + 31 - OUTPUT_BITS;
    const INTS exponents = min(exponent, 31);
    const INTS shares = LOCAL(JOIN(rounding_doubling_high_mul, LANES))(scale, exponentials);
    INTS quanta = LOCAL(JOIN(rounding_divide_by_pot, LANES))(shares, exponents);
    if (exponent > 31) quanta = 0; /* as in softmax_quant8 */
    STORE(OUTS, JOIN(JOIN(convert_, OUT), LANES)(min(quanta, most) + least), output);
  }
}

KERNEL(softmax_vector_quant8)
