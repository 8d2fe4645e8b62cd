// SPDX-License-Identifier: Apache-2.0
// Macros: BODIES, a RUN(number, tile function) for each build of a kernel; TILES of all launches;
// ONE_ITEM where a work-group is one work-item; ORDER_X86 and ORDER_PTX where the device was proven
// to have those instructions.
#pragma OPENCL FP_CONTRACT OFF

// What other groups wrote before they counted a tile is seen after that count was, and the reverse:
// OpenCL C 1.2 has no word for this between groups. A self-test decides where it may be used.
#if ORDER_X86
#define ORDER() __asm__ volatile("" ::: "memory")
#define PAUSE() __asm__ volatile("pause" ::: "memory")
#elif ORDER_PTX
#define ORDER() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#define PAUSE()
#else
#define ORDER() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define PAUSE()
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
#define END_OF(launch) table[(launch) * ROW_INTS + 2]  /* tiles of this and all earlier launches */

// All launches of a program as one. Groups claim its tiles in order, and a tile waits until those of
// all earlier launches are done. They were claimed before it by groups that run, so that any number
// of groups gets through. The last group to leave sets the counts back to zero.
// control: claimed tiles, finished tiles, groups that left.
kernel GROUP_SIZE void runtime_persistent(global uchar* arena, global const uchar* constants,
                                          global const int* params, global int* control,
                                          int first) {
#if SCRATCH_INTS
  local int scratch[SCRATCH_INTS];
#else
  local int* scratch = 0;
#endif
#if !ONE_ITEM
  local int shared_task;
#endif
  global const int* table = params + first;
  volatile global int* claims = control;
  volatile global int* finished = control + 1;
  volatile global int* left = control + 2;
  int launch = 0;
  int start = 0;
  for (;;) {
    int task;
#if ONE_ITEM
    task = atomic_inc(claims);
#else
    if (get_local_id(0) == 0) shared_task = atomic_inc(claims);
    MEET();
    task = shared_task;
#endif
    if (task >= TILES) break;
    while (task >= END_OF(launch)) {
      start = END_OF(launch);
      launch++;
    }
    if (get_local_id(0) == 0) {
      while (*finished < start) PAUSE();
      ORDER();
    }
    MEET();
    global const int* block = params + FIRST_OF(launch);
    int picture = (task - start) / block[-2];
    int tile = task - start - picture * block[-2];
    global uchar* slot = arena + picture * block[-1];
    switch (BODY_OF(launch)) {
#define RUN(number, function)                           \
  case number:                                          \
    function(slot, constants, block, tile, scratch); \
    break;
      BODIES
    }
    MEET();
    if (get_local_id(0) == 0) {
      ORDER();
      atomic_inc(finished);
    }
  }
  if (get_local_id(0) == 0) {
    ORDER();
    if (atomic_inc(left) == (int)get_num_groups(0) - 1) {
      *claims = 0;
      *finished = 0;
      *left = 0;
    }
  }
}
