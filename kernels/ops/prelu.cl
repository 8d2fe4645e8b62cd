// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the tensors' type, uchar, char, short or float; ALPHA_ELEM, alpha's.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#define HAS_FLOATS (USES_PRELU_FLOAT || USES_PRELU_ROW_FLOAT)
#include "stored.clh"

#if !(USES_PRELU_FLOAT || USES_PRELU_ROW_FLOAT)
DEFINE_ROUNDING()

// Both branches end in one rescaling, with the factor of the one taken.
#define READ_SCALING                             \
  const int input_zero = INPUT_ZERO;             \
  const int alpha_zero = ALPHA_ZERO;             \
  const int output_zero = OUTPUT_ZERO;           \
  const int multiplier_above = MULTIPLIER_ABOVE; \
  const int shift_above = SHIFT_ABOVE;           \
  const int multiplier_below = MULTIPLIER_BELOW; \
  const int shift_below = SHIFT_BELOW;           \
  const int low = OUTPUT_MIN;                    \
  const int high = OUTPUT_MAX
#define PRELU(result, x, a)                                                          \
  do {                                                                               \
    int value = (x) - input_zero;                                                    \
    int is_above = value >= 0;                                                       \
    value *= is_above ? 1 : (a) - alpha_zero;                                        \
    value = LOCAL(requantize)(value, is_above ? multiplier_above : multiplier_below, \
                              is_above ? shift_above : shift_below);                 \
    (result) = (ELEM)clamp(value + output_zero, low, high);                          \
  } while (0)
#define STORED_ALPHA ALPHA_ELEM
#else
#define STORED_ALPHA STORED_ELEM
#define READ_SCALING
#define PRELU(result, x, a) (result) = (x) >= 0.0f ? (x) : (x) * (a)
#endif
// At place i of a row.
#define PRELU_AT(i, a)                      \
  do {                                      \
    ELEM at_i;                              \
    PRELU(at_i, LOAD_FLOAT(i, input), (a)); \
    STORE_FLOAT(at_i, i, output);           \
  } while (0)

// Where alpha's value for a row of the innermost dimension begins.
static int LOCAL(alpha_of_row)(PARAMS params, int row) {
  int i2 = row % SIZE_2;
  int rest = row / SIZE_2;
  return rest / SIZE_1 * STEP_0 + rest % SIZE_1 * STEP_1 + i2 * STEP_2;
}

#define ELEMENT_BODY                                                              \
  const int start = tile * TILE_ITEMS;                                            \
  const int end = min(start + TILE_ITEMS, ELEMENTS);                              \
  const int depth = SIZE_3;                                                       \
  const int step = STEP_3;                                                        \
  READ_SCALING;                                                                   \
  global const STORED_ELEM* input = (global const STORED_ELEM*)(arena + INPUT);   \
  global const STORED_ALPHA* alpha = (global const STORED_ALPHA*)(arena + ALPHA); \
  global STORED_ELEM* output = (global STORED_ELEM*)(arena + OUTPUT);             \
  for (int i = start + get_local_id(0); i < end; i += get_local_size(0)) {        \
    int row = i / depth;                                                          \
    int place = LOCAL(alpha_of_row)(params, row) + (i - row * depth) * step;      \
    PRELU_AT(i, LOAD_FLOAT(place, alpha));                                        \
  }

#define ROW_BODY                                                                                \
  const int start = tile * TILE_ITEMS;                                                          \
  const int depth = SIZE_3;                                                                     \
  const int step = STEP_3;                                                                      \
  const int end = min(start + TILE_ITEMS, ELEMENTS / depth);                                    \
  READ_SCALING;                                                                                 \
  for (int row = start + get_local_id(0); row < end; row += get_local_size(0)) {                \
    global const STORED_ELEM* input = (global const STORED_ELEM*)(arena + INPUT) + row * depth; \
    global const STORED_ALPHA* alpha =                                                          \
        (global const STORED_ALPHA*)(arena + ALPHA) + LOCAL(alpha_of_row)(params, row);         \
    global STORED_ELEM* output = (global STORED_ELEM*)(arena + OUTPUT) + row * depth;           \
    if (step == 1) {                                                                            \
      for (int c = 0; c < depth; c++) PRELU_AT(c, LOAD_FLOAT(c, alpha));                        \
    } else {                                                                                    \
      ALPHA_ELEM one = LOAD_FLOAT(0, alpha);                                                    \
      for (int c = 0; c < depth; c++) PRELU_AT(c, one);                                         \
    }                                                                                           \
  }

#if USES_PRELU_QUANT8
// output[i] = rescale(input[i] - zero), times alpha less its zero where that is below 0
// Source: reference/prelu.h BroadcastPrelu4DSlow
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(prelu_quant8) { ELEMENT_BODY; }

KERNEL(prelu_quant8)
#endif

#if USES_PRELU_ROW_QUANT8
// The same; alpha's neighbours are the row's, or one value is.
// tile: TILE_ITEMS rows of the innermost dimension, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(prelu_row_quant8) { ROW_BODY; }

KERNEL(prelu_row_quant8)
#endif

#if USES_PRELU_QUANT16
// The same of 16-bit values with an alpha of 8 bits
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(prelu_quant16) { ELEMENT_BODY; }

KERNEL(prelu_quant16)
#endif

#if USES_PRELU_ROW_QUANT16
// The same; alpha's neighbours are the row's, or one value is.
// tile: TILE_ITEMS rows of the innermost dimension, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(prelu_row_quant16) { ROW_BODY; }

KERNEL(prelu_row_quant16)
#endif

#if USES_PRELU_FLOAT
// output[i] = input[i], times alpha where that is below 0   Source: activations.cc ApplyPrelu
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(prelu_float) { ELEMENT_BODY; }

KERNEL(prelu_float)
#endif

#if USES_PRELU_ROW_FLOAT
// The same; alpha's neighbours are the row's, or one value is.
// tile: TILE_ITEMS rows of the innermost dimension, one a work-item; tiles: ceil(rows / TILE_ITEMS)
TILE(prelu_row_float) { ROW_BODY; }

KERNEL(prelu_row_float)
#endif
