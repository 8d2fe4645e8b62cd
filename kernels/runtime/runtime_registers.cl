// SPDX-License-Identifier: Apache-2.0
// How many values a work-item keeps in registers: asked of the compiler, and never run.
// Macro: VECTORS, of four floats each that live through the whole loop.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#define EACH_1(M) M(0)
#define EACH_2(M) EACH_1(M) M(1)
#define EACH_4(M) EACH_2(M) M(2) M(3)
#define EACH_6(M) EACH_4(M) M(4) M(5)
#define EACH_8(M) EACH_6(M) M(6) M(7)
#define EACH_12(M) EACH_8(M) M(8) M(9) M(10) M(11)
#define EACH_16(M) EACH_12(M) M(12) M(13) M(14) M(15)
#define EACH_24(M) EACH_16(M) M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23)

// answer = the sum of 4 * VECTORS floats, each changed in every round by the next number.
TILE(runtime_registers) {
  global float* answer = (global float*)(arena + ANSWER);
  float4 seed = answer[tile];
#define BEGIN(i) float4 value_##i = seed * (float4)(i + 1.5f, i + 1.25f, i + 1.125f, i + 1.0f);
  JOIN(EACH_, VECTORS)(BEGIN) for (int round = 0; round < ROUNDS; round++) {
    float next = answer[round];
#define CHANGE(i) value_##i = value_##i * value_##i + next;
    JOIN(EACH_, VECTORS)(CHANGE)
  }
#define ADD(i) seed += value_##i;
  JOIN(EACH_, VECTORS)(ADD) answer[tile] = seed.x + seed.y + seed.z + seed.w;
}

KERNEL(runtime_registers)
