// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, a type of which a pixel has UNITS; LANES of them at once, 1 for scalars.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "store.clh"

#if LANES > 1
#define ELEMS JOIN(ELEM, LANES)
DEFINE_STORE(ELEMS)
#define COPY(from, to) STORE(ELEMS, JOIN(vload, LANES)(0, from), to)
#else
#define COPY(from, to) (*(to) = *(from))
#endif

// output[n,y,x] = input[n,rows[y],columns[x]], which the host tabled as offsets
// The last block of a pixel overlaps the one before.
// NHWC   Source: reference/resize_nearest_neighbor.h
// tile: TILE_ITEMS runs of RUN pixels of a row x LANES units, units first; tiles: ceil(n * out_h *
// ceil(out_w / RUN) * ceil(units / LANES) / TILE_ITEMS)
TILE(resize_nearest_neighbor) {
  const int units = UNITS;
  const int out_w = OUT_W;
  const int end = min(TILE_ITEMS, ITEMS - tile * TILE_ITEMS);
  global const int* columns = (global const int*)(constants + COLUMNS);
  global const int* rows = (global const int*)(constants + ROWS);
  for (int i = get_local_id(0); i < end; i += get_local_size(0)) {
    int rest = tile * TILE_ITEMS + i;
    const int unit = min(rest % BLOCKS * LANES, units - LANES);
    rest /= BLOCKS;
    const int x_begin = rest % SEGMENTS * RUN;
    const int x_end = min(x_begin + RUN, out_w);
    rest /= SEGMENTS;
    global const ELEM* row =
        (global const ELEM*)(arena + INPUT) + rest / OUT_H * IN_PICTURE + rows[rest % OUT_H] + unit;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + (rest * out_w + x_begin) * units + unit;
    for (int x = x_begin; x < x_end; x++) {
      COPY(row + columns[x], output);
      output += units;
    }
  }
}

KERNEL(resize_nearest_neighbor)
