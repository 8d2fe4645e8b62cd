// SPDX-License-Identifier: Apache-2.0
// No macros of its own. Of other types than int32 MEAN is one of reduce.cl's sums.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "reduce.clh"

// output[kept] = (sum of input[kept, reduced] over all reduced) / TERMS, truncated toward zero
// The sum has more than 32 bits: `high` has it in 2^16, `low` what that leaves of it. With fewer
// than 2^16 terms both fit, and so does each step of the long division.
// Source: reference/reduce.h Mean
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(mean_int32) {
  global const int* input = (global const int*)(arena + INPUT);
  const int terms = TERMS;
  EACH_ITEM (item, tile, ITEMS) {
    int high = 0;
    uint low = 0;
#define TAKE(at)              \
  do {                        \
    const int x = input[at];  \
    high += x >> 16;          \
    low += (uint)x & 0xffffu; \
  } while (0)
    FOR_EACH_TERM(FIRST_OF(item), TAKE);
    high += (int)(low >> 16);
    const int rest = high % terms;
    const int whole = high / terms - (rest < 0);
    const uint dividend = ((uint)(rest < 0 ? rest + terms : rest) << 16) | (low & 0xffffu);
    const uint part = dividend / (uint)terms;
    const int is_cut_up = high < 0 && dividend != part * (uint)terms;
    ((global int*)(arena + OUTPUT))[item] = (int)(((uint)whole << 16) + part) + is_cut_up;
  }
}

KERNEL(mean_int32)
