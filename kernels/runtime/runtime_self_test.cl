// SPDX-License-Identifier: Apache-2.0
// Macros: none of its own.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
DEFINE_ROUNDING()
DEFINE_SINGLE_ROUNDING()
DEFINE_ROUNDING(4)

// What every kernel here relies on, on fixed vectors: the rounding rules on scalars and vectors,
// vector loads at any byte, division, remainder and leading zeros.
// Each case takes 4 ints of `CASES` (x, multiplier, shift, divisor) and gives 4 of `ANSWERS`.
TILE(runtime_self_test) {
  global const int* given = (global const int*)(constants + CASES);
  global int* answer = (global int*)(arena + ANSWERS);
  int i = tile * 4;
  answer[i] = LOCAL(requantize)(given[i], given[i + 1], given[i + 2]);
  answer[i + 1] = LOCAL(requantize_once)(given[i], given[i + 1], given[i + 2]);
  int4 x = given[i];
  int4 multiplier = given[i + 1];
  int4 shift = given[i + 2];
  int4 lanes = LOCAL(requantize4)(x, multiplier, shift);
  uchar4 unaligned = vload4(0, constants + CASES + 16 * tile + 1);
  int4 bytes = convert_int4(unaligned);
  answer[i + 2] =
      (lanes.x + lanes.y + lanes.z + lanes.w) ^ (bytes.x | bytes.y << 8 | bytes.z << 16);
  int divisor = given[i + 3];
  answer[i + 3] = (x.x / divisor) ^ (x.x % divisor) ^ (int)clz((uint)x.x);
}

KERNEL(runtime_self_test)
