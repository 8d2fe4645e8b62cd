// SPDX-License-Identifier: Apache-2.0
// Macros: none. Params: ROUNDS, the times an item goes through its 16 multiply-adds; ANSWERS.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// How many multiply-adds a device does a second when it waits for no memory. Each depends on the
// one before in its lane, so no compiler can leave any out; 16 lanes go side by side.

#if USES_RUNTIME_RATES_FLOAT
TILE(runtime_rates_float) {
  float4 a = (float4)(get_local_id(0), 1.0f, 2.0f, 3.0f), b = a + 4.0f, c = a + 8.0f, d = a + 12.0f;
  for (int i = 0; i < ROUNDS; i++) {
    a = mad(a, (float4)(0.5f), b);
    b = mad(b, (float4)(0.25f), c);
    c = mad(c, (float4)(0.125f), d);
    d = mad(d, (float4)(0.5f), a);
  }
  a += b + c + d;
  ((global float*)(arena + ANSWERS))[tile] = a.x + a.y + a.z + a.w;
}
KERNEL(runtime_rates_float)
#endif

// Of bytes, summed in ints: a mask stands for the load that brings each byte.
#if USES_RUNTIME_RATES_QUANT8
TILE(runtime_rates_quant8) {
  int4 a = (int4)(get_local_id(0), 1, 2, 3), b = a + 4, c = a + 8, d = a + 12;
  for (int i = 0; i < ROUNDS; i++) {
    a = mad24(a & 255, (int4)(77), b);
    b = mad24(b & 255, (int4)(-101), c);
    c = mad24(c & 255, (int4)(53), d);
    d = mad24(d & 255, (int4)(-19), a);
  }
  a += b + c + d;
  ((global int*)(arena + ANSWERS))[tile] = a.x + a.y + a.z + a.w;
}
KERNEL(runtime_rates_quant8)
#endif
