// SPDX-License-Identifier: Apache-2.0
// Macros: ALONE, 1 where a work-group is one work-item; SCRATCH_INTS: two for each complex number
// that is transformed.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if ALONE
#define FIRST 0
#define STRIDE 1
#define WAIT()
#else
#define FIRST ((int)get_local_id(0))
#define STRIDE ((int)get_local_size(0))
#define WAIT() barrier(CLK_LOCAL_MEM_FENCE)
#endif

// a * b, of complex numbers
static float2 LOCAL(product)(float2 a, float2 b) {
  return (float2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// values[k] = sum over i of values[i] * exp(-2 pi * i k / count * sqrt(-1)), of `count` complex
// numbers, a power of two, which lie in bit-reversed order before: their real parts, then the
// imaginary ones. turns[j] has the angle -2 pi * j / steps.
// Source: Cooley and Tukey 1965, decimation in time
static void __attribute__((always_inline)) LOCAL(transform)(local float* values,
                                                            global const float2* turns, int steps,
                                                            int count) {
  for (int half_count = 1; half_count < count; half_count *= 2) {
    int step = steps / (2 * half_count);
    for (int i = FIRST; i < count / 2; i += STRIDE) {
      int k = i & (half_count - 1);
      local float* even = values + 2 * i - k;
      local float* odd = even + half_count;
      float2 turned = LOCAL(product)(turns[k * step], (float2)(odd[0], odd[count]));
      float real = even[0];
      float imaginary = even[count];
      even[0] = real + turned.x;
      even[count] = imaginary + turned.y;
      odd[0] = real - turned.x;
      odd[count] = imaginary - turned.y;
    }
    WAIT();
  }
}

#if USES_RFFT2D_ROW_FLOAT
// output[picture,row,k] = sum over i of input[picture,row,i] * exp(-2 pi * i k / LENGTH * sqrt(-1))
// for k <= LENGTH / 2, zeros behind the input's IN_W values and IN_H rows: two neighbours are taken
// for a complex number, and what even and odd ones give is told apart at the end
// Source: rfft2d.cc
// tile: a row; tiles: pictures * rows
TILE(rfft2d_row_float) {
  int count = LENGTH / 2;
  int picture = tile / ROWS;
  int row = tile - picture * ROWS;
  int in_w = row < IN_H ? min(IN_W, LENGTH) : 0;
  global const float* input =
      (global const float*)(arena + INPUT) + (picture * IN_H + min(row, IN_H - 1)) * IN_W;
  global float2* output = (global float2*)(arena + OUTPUT) + tile * (count + 1);
  global const float2* turns = (global const float2*)(constants + TURNS);
  global const int* places = (global const int*)(constants + PLACES);
  local float* values = (local float*)scratch;
  for (int i = FIRST; i < count; i += STRIDE) {
    int place = places[i];
    values[place] = 2 * i < in_w ? input[2 * i] : 0.0f;
    values[place + count] = 2 * i + 1 < in_w ? input[2 * i + 1] : 0.0f;
  }
  WAIT();
  LOCAL(transform)(values, turns, LENGTH, count);
  for (int k = FIRST; k <= count; k += STRIDE) {
    local float* one = values + (k & (count - 1));
    local float* other = values + ((count - k) & (count - 1));
    float2 even = 0.5f * (float2)(one[0] + other[0], one[count] - other[count]);
    float2 odd = 0.5f * (float2)(one[count] + other[count], other[0] - one[0]);
    output[k] = even + LOCAL(product)(turns[k], odd);
  }
}

KERNEL(rfft2d_row_float)
#endif

#if USES_RFFT2D_COLUMNS_FLOAT
// output[picture,k,column] = sum over i of input[picture,i,column] *
// exp(-2 pi * i k / LENGTH * sqrt(-1)), of complex numbers
// tile: a column; tiles: pictures * columns
TILE(rfft2d_columns_float) {
  int picture = tile / COLUMNS;
  int first = picture * (LENGTH * COLUMNS) + tile - picture * COLUMNS;
  global const float2* input = (global const float2*)(arena + INPUT) + first;
  global float2* output = (global float2*)(arena + OUTPUT) + first;
  global const int* places = (global const int*)(constants + PLACES);
  local float* values = (local float*)scratch;
  for (int i = FIRST; i < LENGTH; i += STRIDE) {
    float2 value = input[i * COLUMNS];
    values[places[i]] = value.x;
    values[places[i] + LENGTH] = value.y;
  }
  WAIT();
  LOCAL(transform)(values, (global const float2*)(constants + TURNS), LENGTH, LENGTH);
  for (int k = FIRST; k < LENGTH; k += STRIDE)
    output[k * COLUMNS] = (float2)(values[k], values[k + LENGTH]);
}

KERNEL(rfft2d_columns_float)
#endif
