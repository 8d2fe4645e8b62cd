// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the values' type; DIGITS, binary ones of their order; IS_FLOAT; FLIP, the
// digit of a sign; IS_SELECTED, 1 where topk_v2_select went before; INDEX, the indices' type.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

// Numbers without a sign in the order of the values. Both zeros are one; NaN is the least: TFLite's
// own order of it depends on where it stands.
static uint LOCAL(order)(ELEM x) {
#if IS_FLOAT
  uint word = as_uint(x);
  word = word == 0x80000000u ? 0u : word;
  return (word & 0x7fffffffu) > 0x7f800000u
             ? 0u
             : word ^ ((word >> 31) != 0u ? 0xffffffffu : 0x80000000u);
#else
  return ((uint)x ^ FLIP) & (0xffffffffu >> (32 - DIGITS));
#endif
}

#if USES_TOPK_V2_SELECT
// The K largest elements of a row, in the order of the row, those equal to the last one behind
// them; the last one's order is found digit by digit: how many elements are as large?
// tile: a row, whose elements the work-items share; tiles: the rows
TILE(topk_v2_select) {
  const int length = LENGTH;
  global const ELEM* row = (global const ELEM*)(arena + INPUT) + tile * length;
  global uint* keys = (global uint*)(arena + KEYS_OUTPUT) + tile * K;
  global int* places = (global int*)(arena + PLACES_OUTPUT) + tile * K;
  const int item = get_local_id(0);
  const int items = get_local_size(0);
  uint least = 0u;
  for (int digit = DIGITS - 1; digit >= 0; digit--) {
    const uint wanted = least | 1u << digit;
    int count = 0;
    for (int i = item; i < length; i += 4 * items) {
      UNROLLED (j, 4) {
        const int at = i + j * items;
        count += at < length && LOCAL(order)(row[min(at, length - 1)]) >= wanted;
      }
    }
    scratch[item] = count;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
      int sum = 0;
      for (int i = 0; i < items; i++) sum += scratch[i];
      scratch[SCRATCH_INTS - 1] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    least = scratch[SCRATCH_INTS - 1] >= K ? wanted : least;
  }
  // Now each work-item has neighbours, so that those before it have the places before its own.
  const int share = (length + items - 1) / items;
  const int first = min(item * share, length);
  const int last = min(first + share, length);
  int above = 0;
  int equal = 0;
  for (int i = first; i < last; i++) {
    const uint key = LOCAL(order)(row[i]);
    above += key > least;
    equal += key == least;
  }
  scratch[item] = above;
  scratch[items + item] = equal;
  barrier(CLK_LOCAL_MEM_FENCE);
  above = 0;
  equal = 0;
  for (int i = 0; i < items; i++) {
    above += i < item ? scratch[i] : 0;
    equal += scratch[i] + (i < item ? scratch[items + i] : 0);
  }
  for (int i = first; i < last; i++) {
    const uint key = LOCAL(order)(row[i]);
    const int at = key > least ? above : equal;
    if (key >= least && at < K) {
      keys[at] = key;
      places[at] = i;
    }
    above += key > least;
    equal += key == least;
  }
}

KERNEL(topk_v2_select)
#endif

#if USES_TOPK_V2
// values[rank], indices[rank] = element, its place: how many are larger, or equal and before it?
// Source: topk_v2.cc TopContainer
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(topk_v2) {
  const int count = COUNT;
  global const ELEM* input = (global const ELEM*)(arena + INPUT);
  global ELEM* values = (global ELEM*)(arena + VALUES_OUTPUT);
  global INDEX* indices = (global INDEX*)(arena + INDICES_OUTPUT);
  EACH_ITEM_OR_NONE (element, tile, ITEMS) {
    const int line = element / count;
    const int own = element - line * count;
    global const ELEM* row = input + line * LENGTH;
#if IS_SELECTED
    global const uint* keys = (global const uint*)(arena + KEYS) + line * count;
    const int place = ((global const int*)(arena + PLACES) + line * count)[own];
#define KEY_OF(i) keys[i]
#else
    const int place = own;
#define KEY_OF(i) LOCAL(order)(row[i])
#endif
    const uint key = KEY_OF(own);
    int rank = 0;
    for (int j = 0; j < count; j++) {
      const uint other = KEY_OF(j);
      rank += other > key || (other == key && j < own);
    }
    if (rank < K) {
      values[line * K + rank] = row[place];
      indices[line * K + rank] = (INDEX)place;
    }
  }
}

KERNEL(topk_v2)
#endif
