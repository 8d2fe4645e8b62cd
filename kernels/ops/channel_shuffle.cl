// SPDX-License-Identifier: Apache-2.0
// Macros: LANES channels of either input at a time.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "store.clh"

#define WORDS JOIN(ushort, LANES)
#define TO_WORDS JOIN(convert_ushort, LANES)
#define LOAD JOIN(vload, LANES)
DEFINE_STORE(WORDS)

// part q of output[row, 2 * c + g] = input g[row, q * PART + c], bytes: the channels of two tensors
// in turn, in one part or two. The last vector overlaps the one before it: no short stores.
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(channel_shuffle) {
  int part = PART;
  EACH_ITEM_OR_NONE (row, tile, ROWS) {
    global const uchar* left = arena + LEFT + row * PITCH;
    global const uchar* right = arena + RIGHT + row * PITCH;
    global uchar* output = arena + OUTPUT + row * 2 * part;
    for (int q = 0; q < PARTS; q++) {
      for (int c = 0; c < part; c += LANES) {
        int at = min(c, part - LANES);
        WORDS low = TO_WORDS(LOAD(0, left + at)), high = TO_WORDS(LOAD(0, right + at));
        STORE(WORDS, low | high << (ushort)8, output + 2 * at);
      }
      left += part;
      right += part;
      output = arena + LAST_OUTPUT + row * 2 * part;
    }
  }
}

KERNEL(channel_shuffle)
