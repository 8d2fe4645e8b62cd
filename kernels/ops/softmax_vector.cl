// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the input's type, uchar or char, and OUT, the output's, which may be short; DEPTH,
// how many values a row has; LANES, the rows of an item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
DEFINE_ROUNDING()
DEFINE_ROUNDING(LANES)
#include "fixed_point.clh"
DEFINE_ONE_OVER_ONE_PLUS(LANES)

// Of table look-ups and of single bytes: as vectors they are slower.
#define SCALAR_LOOP _Pragma("clang loop vectorize(disable)")
#define INTS JOIN(int, LANES)
#define UINTS JOIN(uint, LANES)
#define LOAD_INTS JOIN(vload, LANES)

// As softmax_quant8, of short rows: lane r is row r, and only exponentials are looked up one by
// one. The last rows overlap those before.
// tile: TILE_ITEMS items, one a work-item; tiles: ceil(rows / LANES / TILE_ITEMS)
TILE(softmax_vector_quant8) {
  global const int* exponential = (global const int*)(constants + TABLE);
  const INTS least = OUTPUT_MIN;
  const INTS most = OUTPUT_MAX - OUTPUT_MIN;
  const INTS twelve = 12;
  EACH_ITEM (item, tile, ITEMS) {
    const int first = min(item * LANES, ROWS - LANES) * DEPTH;
    global const ELEM* input = (global const ELEM*)(arena + INPUT) + first;
    global OUT* output = (global OUT*)(arena + OUTPUT) + first;
    int exponentials[DEPTH * LANES];
    SCALAR_LOOP for (int r = 0; r < LANES; r++) {
      int highest = input[r * DEPTH];
      for (int c = 1; c < DEPTH; c++) highest = max(highest, (int)input[r * DEPTH + c]);
      SCALAR_LOOP for (int c = 0; c < DEPTH; c++) {
        exponentials[c * LANES + r] = exponential[highest - input[r * DEPTH + c]];
      }
    }
    INTS sum = 0;
    for (int c = 0; c < DEPTH; c++)
      sum += LOCAL(JOIN(rounding_divide_by_pot, LANES))(LOAD_INTS(c, exponentials), twelve);
    const UINTS bits = JOIN(as_uint, LANES)(sum);
    const UINTS headroom = clz(bits);
    const INTS scale = LOCAL(JOIN(one_over_one_plus, LANES))(
        JOIN(as_int, LANES)((bits << headroom) - 0x80000000u));
    // sums of so few values never reach the 512 of softmax_quant8
    const INTS exponent = 12 + 31 - OUTPUT_BITS - JOIN(as_int, LANES)(headroom);
    OUT shares[DEPTH * LANES];
    for (int c = 0; c < DEPTH; c++) {
      const INTS share =
          LOCAL(JOIN(rounding_doubling_high_mul, LANES))(scale, LOAD_INTS(c, exponentials));
      const INTS quanta = LOCAL(JOIN(rounding_divide_by_pot, LANES))(share, exponent);
      const INTS results = min(quanta, most) + least;
      JOIN(vstore, LANES)(JOIN(JOIN(convert_, OUT), LANES)(results), c, shares);
    }
    SCALAR_LOOP for (int r = 0; r < LANES; r++) {
      for (int c = 0; c < DEPTH; c++) output[r * DEPTH + c] = shares[c * LANES + r];
    }
  }
}

KERNEL(softmax_vector_quant8)
