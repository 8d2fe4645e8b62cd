// SPDX-License-Identifier: Apache-2.0
#pragma OPENCL FP_CONTRACT OFF
#define MATH_EXP 1
#define MATH_DIVIDE 1
#include "kernel.clh"
#include "float.clh"
#include "math.clh"
#include "logistic.clh"
DEFINE_BOUNDED()

// output[i] = gate[i] * logistic(gate[i]) * input[i]
// Source: the nodes apart: reference/logistic.h, mul.h
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(silu_mul_float) {
  TILE_RANGE(ELEMENTS);
  global const float* gates = (global const float*)(arena + GATE) + start;
  global const float* input = (global const float*)(arena + INPUT) + start;
  global float* output = (global float*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    float gate = gates[i];
    float silu = LOCAL(bounded)(gate * LOCAL(logistic_float)(gate));
    output[i] = LOCAL(bounded)(silu * input[i]);
  }
}

KERNEL(silu_mul_float)
