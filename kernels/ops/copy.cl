// SPDX-License-Identifier: Apache-2.0
// Boxes of elements from one tensor into another, for what delegate/ops/_launches/copy.py serves.
// Macros: ELEM, a type as wide as what moves as one; of copy_columns COLUMNS, elements a row.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "dimensions.clh"
#include "store.clh"

// A value that fills a box lies among the constants.
#define FROM ((IS_CONSTANT) ? constants : (global const uchar*)arena)

#if USES_COPY
// output[start + sum of i_n * out_n] = input[start + sum of i_n * in_n]
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(copy) {
  global const ELEM* input = (global const ELEM*)(FROM + INPUT) + IN_START;
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + OUT_START;
  TILE_RANGE(ELEMENTS);
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int rest = start + i;
    int in = 0;
    int out = 0;
    PLACE(0, out, OUT)
    PLACE(1, out, OUT)
    PLACE(2, out, OUT)
    PLACE(3, out, OUT)
    PLACE(4, out, OUT)
    PLACE(5, out, OUT)
    PLACE(6, out, OUT)
    PLACE(7, out, OUT)
    output[out] = input[in];
  }
}
KERNEL(copy)
#endif

#if USES_COPY_COLUMNS
// Short rows of planes, as of NCHW pictures: output[start + i * COLUMNS + c] = input[start + c *
// IN_0 + i]. The literal stride lets compilers make vectors of the loop.
// tile: TILE_ITEMS rows, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(copy_columns) {
  TILE_RANGE(ELEMENTS);
  const int plane = IN_0;
  global const ELEM* input = (global const ELEM*)(arena + INPUT) + IN_START + start;
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + OUT_START + start * COLUMNS;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    UNROLLED (c, COLUMNS) output[i * COLUMNS + c] = input[c * plane + i];
  }
}
KERNEL(copy_columns)
#endif

#if USES_COPY_ROW
DEFINE_STORE(uchar16)

// Where dimension n begins; then one step on, the dimension outside of it once it is through.
#define BEGIN(n)              \
  int i##n = rest % SIZE_##n; \
  rest /= SIZE_##n;           \
  input += i##n * IN_##n;     \
  output += i##n * OUT_##n;
#define NEXT(n, inner, within)                      \
  if (++i##inner == SIZE_##inner) {                 \
    i##inner = 0;                                   \
    input += IN_##n - SIZE_##inner * IN_##inner;    \
    output += OUT_##n - SIZE_##inner * OUT_##inner; \
    within                                          \
  }

// The same row by row, a row being dimension 0; long ones in parts.
// tile: TILE_ROWS rows, or a part of one; tiles: ceil(rows / TILE_ROWS) * parts
TILE(copy_row) {
  int rest = tile / PARTS * TILE_ROWS;
  int rows = min(TILE_ROWS, ROWS - rest);
  const int first = tile % PARTS * PART;
  const int count = min(PART, SIZE_0 - first);
  const int in_0 = IN_0;
  const int out_0 = OUT_0;
  const int in_1 = IN_1;
  const int out_1 = OUT_1;
  const int bytes = in_0 == 1 && out_0 == 1 ? count * (int)sizeof(ELEM) : 0;
  global const ELEM* input = (global const ELEM*)(FROM + INPUT) + IN_START + first * in_0;
  global ELEM* output = (global ELEM*)(arena + OUTPUT) + OUT_START + first * out_0;
  BEGIN(1)
  BEGIN(2)
  BEGIN(3)
  BEGIN(4)
  BEGIN(5)
  BEGIN(6)
  BEGIN(7)
  for (int row = 0; row < rows; row++) {
    if (bytes >= 16) {
      // The last 16 bytes overlap those before: no short store.
      global const uchar* from = (global const uchar*)input;
      global uchar* to = (global uchar*)output;
      for (int at = 0; at < bytes - 16; at += 16) STORE(uchar16, vload16(0, from + at), to + at);
      STORE(uchar16, vload16(0, from + bytes - 16), to + bytes - 16);
    } else {
      for (int i = 0; i < count; i++) output[i * out_0] = input[i * in_0];
    }
    input += in_1;
    output += out_1;
    NEXT(2, 1, NEXT(3, 2, NEXT(4, 3, NEXT(5, 4, NEXT(6, 5, NEXT(7, 6, ))))))
  }
}
KERNEL(copy_row)
#endif
