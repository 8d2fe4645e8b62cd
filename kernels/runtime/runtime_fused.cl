// SPDX-License-Identifier: Apache-2.0
// Macros: BODIES, a RUN(tile function, tiles, place of its params) for each launch of a chain, then
// a SPREAD(first work-group, place of its params) for each launch whose tiles are spread over the
// work-groups, and RUN_ONE(tile function); ALONE, 1 where the work-group is one work-item.
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

#define SPREAD(begin, place)        \
  if (group >= (begin)) {           \
    spread_tile = group - (begin);  \
    spread_block = block + (place); \
  }
#define RUN_ONE(function) function(arena, constants, spread_block, spread_tile, scratch);

// Launches of few tiles, one after the other, as the work of each work-group for itself. It meets
// itself after each tile, so nothing has to be ordered between groups: several write the same. Then
// a tile of the launches that are spread.
kernel void runtime_fused(global uchar* arena, global const uchar* constants,
                          global const int* params, int first) {
  DECLARE_SCRATCH;
  global const int* block = params + first;
  const int group = get_group_id(0);
  int spread_tile = group;
  global const int* spread_block = block;
  BODIES
}
