// SPDX-License-Identifier: Apache-2.0
// Macros: BODIES, a RUN(tile function, tiles, place of its params) for each launch in order; ALONE,
// 1 where the work-group is one work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if ALONE
#define MEET()
#else
#define MEET() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif
#define RUN(function, tiles, place)                             \
  for (int tile = 0; tile < (tiles); tile++) {                  \
    function(arena, constants, block + (place), tile, scratch); \
    MEET();                                                     \
  }

// Launches of few tiles, one after the other, as the work of a single group. It meets itself after
// each tile, so nothing has to be ordered between groups.
kernel void runtime_fused(global uchar* arena, global const uchar* constants,
                          global const int* params, int first) {
  DECLARE_SCRATCH;
  global const int* block = params + first;
  BODIES
}
