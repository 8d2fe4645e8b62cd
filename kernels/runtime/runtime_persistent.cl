// SPDX-License-Identifier: Apache-2.0
// Macros: BODIES, a RUN(number, tile function) for each build of a kernel; TILES that groups claim,
// and LAUNCHES; ONE_ITEM where a work-group is one work-item; ORDER_X86, ORDER_ARM and ORDER_PTX
// where the device was proven to have those instructions; BLOCK_INTS of the longest block of
// params, and PARAMS_SPACE, where a group has the one that it reads.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// What other groups wrote before they counted a tile is seen after that count was, and the reverse:
// OpenCL C 1.2 has no word for this between groups. A self-test decides where it may be used.
// WAIT_FOR returns when so many tiles are counted, COUNT counts some.
#if ORDER_PTX
#define ORDER() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#define WAIT_FOR(count, from)          \
  for (int seen = -1; seen < (count);) \
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(from) : "memory")
#define COUNT(tiles, to) \
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(tiles) : "memory")
#else
#if ORDER_X86
// No inline assembly outside groups of one item: PoCL 4 to 7 take a call of it for their function
// of three arguments that allocates local memory, and end the process where it has fewer.
#define ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define PAUSE() __builtin_ia32_pause()
#elif ORDER_ARM
#define ORDER() __builtin_arm_dmb(11) /* ish */
#define PAUSE() __builtin_arm_yield()
#else
#define ORDER() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define PAUSE()
#endif
// Linux's sched_yield. The thread that others wait for may have lost its core to another process;
// those that wait on would keep it from coming back. Its operands are for PoCL alone, which for a
// binary compiles this for groups of any size, too.
#if ORDER_X86 && ONE_ITEM && defined(__linux__) && defined(__x86_64__)
#define YIELD()                                                                                 \
  do {                                                                                          \
    int call = 24;                                                                              \
    __asm__ volatile("syscall" : "+a"(call) : "D"(0), "S"(0), "d"(0) : "rcx", "r11", "memory"); \
  } while (0)
#elif ORDER_ARM && ONE_ITEM && defined(__linux__) && defined(__aarch64__)
#define YIELD() \
  __asm__ volatile("mov x8, #124\n\tsvc #0" ::"r"(0), "r"(0), "r"(0) : "x0", "x8", "memory")
#else
#define YIELD()
#endif
#define PATIENCE 1024 /* pauses: some tens of microseconds */
#define WAIT_FOR(count, from)                       \
  do {                                              \
    for (int turn = 1; *(from) < (count); turn++) { \
      PAUSE();                                      \
      if (turn % PATIENCE == 0) YIELD();            \
    }                                               \
    ORDER();                                        \
  } while (0)
#define COUNT(tiles, to)   \
  do {                     \
    ORDER();               \
    atomic_add(to, tiles); \
  } while (0)
#endif

// A row of the table, one a launch.
#define ROW_INTS 5
#define BODY_OF(launch) table[(launch) * ROW_INTS]
#define FIRST_OF(launch) table[(launch) * ROW_INTS + 1]
#define TILES_OF(launch) table[(launch) * ROW_INTS + 2]
#define AFTER_OF(launch) table[(launch) * ROW_INTS + 3] /* tiles claimed in all earlier phases */
#define IS_REPLICATED(launch) table[(launch) * ROW_INTS + 4]

// The blocks of params are followed by a stride for each of their ints: how far it moves from one
// group to the next, which has replicas of its own. Behind these lies the table. An int of a
// launch's block as this group reads it, from the two on that lie before its params:
#define INT_OF(launch, i)             \
  (params[FIRST_OF(launch) - 2 + i] + \
   (int)get_group_id(0) * params[first + FIRST_OF(launch) - 2 + i])
#define TABLE (params + 2 * first)

// The counts lie in cache lines of their own: finished tiles, groups that left, claimed tiles.
// Groups of one item have one of the last each, and behind them lie the names of their threads.
#define LINE_INTS 32
#define FINISHED(control) (control)
#define LEFT(control) ((control) + LINE_INTS)
#define CLAIMED(control, group) ((control) + (2 + (group)) * LINE_INTS)
#define THREADS(control, groups) CLAIMED(control, groups)

// One tile of a launch for all its pictures.
#define RUN_TILE(launch, block, task)                 \
  do {                                                \
    int picture = (task) / block[-2];                 \
    int tile = (task) - picture * block[-2];          \
    global uchar* slot = arena + picture * block[-1]; \
    switch (BODY_OF(launch)) { BODIES }               \
  } while (0)
#define RUN(number, function)                        \
  case number:                                       \
    function(slot, constants, block, tile, scratch); \
    break;

#if ONE_ITEM

// Returns the group whose tiles this one takes first: the one that its thread was in the run
// before, as its core may still have their weights and results. Where a thread's private memory
// lies is its name. Threads that read each other's half-written names take other tiles first, and
// nothing else changes.
static int LOCAL(first_owner)(volatile global int* threads, int groups) {
  int here;
  int name = (int)((uintptr_t)&here >> 16);
  for (int i = 0; i < groups; i++)
    if (threads[i] == name) return i;
  int group = get_group_id(0);
  threads[group] = name;
  return group;
}

// Claims the next number below `end`. Returns -1 where none is left.
static int LOCAL(claim)(volatile global int* claimed, int end) {
  int seen = *claimed;
  while (seen < end) {
    int found = atomic_cmpxchg(claimed, seen, seen + 1);
    if (found == seen) return seen;
    seen = found;
  }
  return -1;
}

// All launches of a program as one. Each group owns an equal share of each launch's tiles, side by
// side, so that its core finds in its own cache what it wrote in the launch before. A group that is
// done with its own helps the others. A launch's tiles wait until those of all earlier phases are
// done: the launches of a phase touch nothing of each other. None of a phase is counted before
// that, so the count tells it. Earlier tiles were claimed by groups that run, so that any number of
// groups gets through. The last group to leave sets the counts back to zero.
//
// A replicated launch is run by every group, wholly and for itself, and nobody waits for it. No
// launch writes what it reads once that is there, so a group that begins late finds it.
kernel ONE_ITEM_GROUPS void runtime_persistent(global uchar* arena, global const uchar* constants,
                                               global const int* params, global int* control,
                                               int first) {
  DECLARE_SCRATCH;
  volatile global int* finished = FINISHED(control);
  global const int* table = TABLE;
  int copied[BLOCK_INTS];
  PARAMS block = copied + 2;
  int groups = get_num_groups(0);
  int own = LOCAL(first_owner)(THREADS(control, groups), groups);
  int before = 0;  // what each group could claim of all earlier launches
  int waited = 0;  // so many tiles were seen to be done
  for (int launch = 0; launch < LAUNCHES; launch++) {
    int tiles = TILES_OF(launch);
    int is_replicated = IS_REPLICATED(launch);
    int most = (tiles + groups - 1) / groups;  // of a share; others have one less
    int done = 0;
    for (int i = 0; i < groups; i++) {
      int owner = (own + i) % groups;
      int begin = tiles * owner / groups;
      int end = tiles * (owner + 1) / groups;
      for (;;) {
        int task = done;
        if (is_replicated) {
          if (task == tiles) break;
        } else {
          int claimed = LOCAL(claim)(CLAIMED(control, owner), before + most);
          if (claimed < 0) break;
          task = begin + claimed - before;
          if (task >= end) continue;
        }
        if (!done) {
          for (int field = 0; field < BLOCK_INTS; field++) copied[field] = INT_OF(launch, field);
          if (waited < AFTER_OF(launch)) {
            waited = AFTER_OF(launch);
            WAIT_FOR(waited, finished);
          }
        }
        RUN_TILE(launch, block, task);
        done++;
      }
      if (is_replicated) break;
    }
    if (is_replicated) continue;
    if (done) COUNT(done, finished);
    before += most;
  }
  ORDER();
  if (atomic_inc(LEFT(control)) == groups - 1) {
    for (int i = 0; i < groups; i++) *CLAIMED(control, i) = 0;
    *FINISHED(control) = 0;
    *LEFT(control) = 0;
  }
}
#else
#define MEET() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

// The same for groups of several items. They claim the tiles of all launches in order, the next one
// while they run one. On its way to a tile's launch a group runs the replicated ones before it.
kernel void runtime_persistent(global uchar* arena, global const uchar* constants,
                               global const int* params, global int* control, int first) {
  DECLARE_SCRATCH;
  volatile global int* claims = CLAIMED(control, 0);
  volatile global int* finished = FINISHED(control);
  const int is_first = get_local_id(0) == 0;
  local int table[LAUNCHES * ROW_INTS];
  local int copied[BLOCK_INTS];
  PARAMS block = copied + 2;
  for (int i = get_local_id(0); i < LAUNCHES * ROW_INTS; i += get_local_size(0))
    table[i] = TABLE[i];
  local int shared_task;
  int next = 0;
  if (is_first) shared_task = atomic_inc(claims);
  MEET();
  int launch = -1;
  int start = 0;  // tiles claimed before those of the launch, and with them
  int end = 0;
  int again = 0;   // tiles that are left of a replicated launch
  int waited = 0;  // so many tiles were seen to be done
  for (;;) {
    int task = shared_task;
    if (task >= TILES) break;
    if (!again && task >= end) {
      do {
        launch++;
        if (IS_REPLICATED(launch)) {
          again = TILES_OF(launch);
          break;
        }
        start = end;
        end += TILES_OF(launch);
      } while (task >= end);
      for (int i = get_local_id(0); i < BLOCK_INTS; i += get_local_size(0))
        copied[i] = INT_OF(launch, i);
    }
    const int is_claimed = !again;
    if (is_first) {
      if (waited < AFTER_OF(launch)) {
        waited = AFTER_OF(launch);
        WAIT_FOR(waited, finished);
      }
      // Not before the wait: one group would take two tiles of a launch, and another one none.
      if (is_claimed) next = atomic_inc(claims);
    }
    MEET();
    RUN_TILE(launch, block, is_claimed ? task - start : TILES_OF(launch) - again);
    if (is_claimed && is_first) shared_task = next;
    MEET();
    if (!is_claimed)
      again--;
    else if (is_first)
      COUNT(1, finished);
  }
  if (is_first) {
    ORDER();
    if (atomic_inc(LEFT(control)) == (int)get_num_groups(0) - 1) {
      *claims = 0;
      *finished = 0;
      *LEFT(control) = 0;
    }
  }
}
#endif
