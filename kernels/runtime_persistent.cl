// SPDX-License-Identifier: Apache-2.0
// Macros: BODIES, a RUN(number, tile function) for each build of a kernel; TILES of all launches
// and LAUNCHES; ONE_ITEM where a work-group is one work-item; ORDER_X86 and ORDER_PTX where the
// device was proven to have those instructions; BLOCK_INTS, where bodies read their params from
// local memory, of the longest block.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// What other groups wrote before they counted a tile is seen after that count was, and the reverse:
// OpenCL C 1.2 has no word for this between groups. A self-test decides where it may be used.
// WAIT_FOR returns when so many tiles are counted, COUNT counts one.
#if ORDER_PTX
#define ORDER() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#define WAIT_FOR(count, from)          \
  for (int seen = -1; seen < (count);) \
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(from) : "memory")
#define COUNT(to) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(to) : "memory")
#else
#if ORDER_X86
#define ORDER() __asm__ volatile("" ::: "memory")
#define PAUSE() __asm__ volatile("pause" ::: "memory")
#else
#define ORDER() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define PAUSE()
#endif
#define WAIT_FOR(count, from)          \
  do {                                 \
    while (*(from) < (count)) PAUSE(); \
    ORDER();                           \
  } while (0)
#define COUNT(to)   \
  do {              \
    ORDER();        \
    atomic_inc(to); \
  } while (0)
#endif
#if ONE_ITEM
#define GROUP_SIZE __attribute__((reqd_work_group_size(1, 1, 1)))
#define MEET()
#else
#define GROUP_SIZE
#define MEET() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

// A row of the table, one a launch.
#define ROW_INTS 3
#define BODY_OF(launch) table[(launch) * ROW_INTS]
#define FIRST_OF(launch) table[(launch) * ROW_INTS + 1]
#define END_OF(launch) table[(launch) * ROW_INTS + 2] /* tiles of this and all earlier launches */

// All launches of a program as one. Groups claim its tiles in order, and a tile waits until those
// of all earlier launches are done. They were claimed before it by groups that run, and a group
// runs its own in order, so that any number of groups gets through. Groups of several items claim
// the next tile while they run one. The last group to leave sets the counts back to zero.
// control: claimed tiles, finished tiles, groups that left, a cache line each.
kernel GROUP_SIZE void runtime_persistent(global uchar* arena, global const uchar* constants,
                                          global const int* params, global int* control,
                                          int first) {
  DECLARE_SCRATCH;
  volatile global int* claims = control;
  volatile global int* finished = control + 32;
  volatile global int* left = control + 64;
  const int is_first = get_local_id(0) == 0;
#if BLOCK_INTS
  local int table[LAUNCHES * ROW_INTS];
  local int copied[BLOCK_INTS];
  for (int i = get_local_id(0); i < LAUNCHES * ROW_INTS; i += get_local_size(0))
    table[i] = params[first + i];
#else
  global const int* table = params + first;
#endif
#if !ONE_ITEM
  local int shared_task;
  int next = 0;
  if (is_first) shared_task = atomic_inc(claims);
  MEET();
#endif
  int launch = -1;
  int start = 0;
  int end = 0;
  PARAMS block = 0;
  for (;;) {
#if ONE_ITEM
    int task = atomic_inc(claims);
#else
    int task = shared_task;
#endif
    if (task >= TILES) break;
    if (task >= end) {
      do {
        launch++;
        start = end;
        end = END_OF(launch);
      } while (task >= end);
#if BLOCK_INTS
      for (int i = get_local_id(0); i < BLOCK_INTS; i += get_local_size(0))
        copied[i] = params[FIRST_OF(launch) - 2 + i];
      block = copied + 2;
#else
      block = params + FIRST_OF(launch);
#endif
    }
    if (is_first) {
      WAIT_FOR(start, finished);
#if !ONE_ITEM
      // Not before the wait: one group would take two tiles of a launch, and another one none.
      next = atomic_inc(claims);
#endif
    }
    MEET();
    int picture = (task - start) / block[-2];
    int tile = task - start - picture * block[-2];
    global uchar* slot = arena + picture * block[-1];
    switch (BODY_OF(launch)) {
#define RUN(number, function)                        \
  case number:                                       \
    function(slot, constants, block, tile, scratch); \
    break;
      BODIES
    }
#if !ONE_ITEM
    if (is_first) shared_task = next;
#endif
    MEET();
    if (is_first) COUNT(finished);
  }
  if (is_first) {
    ORDER();
    if (atomic_inc(left) == (int)get_num_groups(0) - 1) {
      *claims = 0;
      *finished = 0;
      *left = 0;
    }
  }
}
