// SPDX-License-Identifier: Apache-2.0
// A step of an LSTM of int8 whose cells are int16: a cell has the gates input, forget, cell and
// output. Where GATES is 3 the input gate is what the forget gate leaves of one.
// Macros: GATES; IS_PROJECTED, whether what cells give is multiplied once more, by a launch of its
// own, before it is the output; PRODUCTS_WRAP, whether products of normalised sums are of 32 bits.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#define NORMALIZES_INTEGERS (USES_LSTM_CELLS_QUANT8 || USES_LSTM_OUTPUT_QUANT8)
#if NORMALIZES_INTEGERS
#include "int64.clh"
#endif
#define SUMS_INTEGERS (!NORMALIZES_INTEGERS)
#include "recurrent.clh"

#define FORGET_GATE (GATES - 3)
#define CELL_GATE (GATES - 2)
#define OUTPUT_GATE (GATES - 1)

DEFINE_ROUNDING()

#if USES_LSTM_QUANT8 || USES_LSTM_SUMS_QUANT8
// A gate's sum of what it reads but the cell. `numbers` are a cell's own: of the input, of the
// output of the step before and of the cell what is added to the sum, or the weight, then its
// multiplier and shift.
static int LOCAL(gate_sum)(global const char* input, global const char* weights, int depth,
                           global const char* hidden, global const char* recurrent, int width,
                           global const int* numbers) {
  int sum = LOCAL(dot)(input, weights, depth, numbers[0]);
  const int value = clamp(LOCAL(requantize)(sum, numbers[1], numbers[2]), -32768, 32767);
  sum = LOCAL(dot)(hidden, recurrent, width, numbers[3]);
  return clamp(value + LOCAL(requantize)(sum, numbers[4], numbers[5]), -32768, 32767);
}
#endif

#if !USES_LSTM_PROJECTION_QUANT8 && !USES_LSTM_OUTPUT_QUANT8
static int LOCAL(with_cell)(int sum, global const int* numbers, int cell) {
  const int more = LOCAL(requantize)(numbers[6] * cell, numbers[7], numbers[8]);
  return clamp(sum + more, -32768, 32767);
}
#endif

#if USES_LSTM_QUANT8 || USES_LSTM_CELLS_QUANT8
// What a cell becomes, of the sums of its gates in Q3.12. The functions are tables of all int16
// values.
#define NEXT_CELL(input_sum, forget_sum, cell_sum, before)                                \
  global const short* logistic = (global const short*)(constants + LOGISTIC) + 32768;     \
  const int forget = logistic[forget_sum];                                                \
  const int update = ((global const short*)(constants + TANH) + 32768)[cell_sum];         \
  const int fresh = GATES == 4 ? logistic[input_sum] : 32767 - forget;                    \
  const short kept = (short)LOCAL(rounding_divide_by_pot)(forget * before, 15);           \
  const short added = (short)LOCAL(rounding_divide_by_pot)(fresh * update, UPDATE_SHIFT); \
  const int now = clamp(clamp(kept + added, -32768, 32767), CELL_MIN, CELL_MAX);          \
  ((global short*)(arena + CELL_OUTPUT))[item] = (short)now
#endif

#if USES_LSTM_QUANT8 || USES_LSTM_OUTPUT_QUANT8
// Writes what a cell shows, of the sum of the output gate.
#define SHOW(sum, now)                                                                        \
  const int gate = ((global const short*)(constants + LOGISTIC) + 32768)[sum];                \
  const int shown = ((global const short*)(constants + CELL_TANH) + 32768)[now];              \
  int value = LOCAL(requantize)(gate * shown, HIDDEN_MULTIPLIER, HIDDEN_SHIFT) + HIDDEN_ZERO; \
  value = clamp(value, -128, 127);                                                            \
  GIVE(char, item, row, own, (char)value)
#endif

#if USES_LSTM_QUANT8
#define GATE(g, cell)                                                                  \
  LOCAL(with_cell)                                                                     \
  (LOCAL(gate_sum)(input, weights + (g) * CELLS * DEPTH, DEPTH, hidden,                \
                   recurrent + (g) * CELLS * WIDTH, WIDTH, numbers + (g) * CELLS * 9), \
   numbers + (g) * CELLS * 9, (cell))

// cell_output[b,c] = forget * cell[b,c] + input * update; output[b,c] = gate * tanh(cell_output).
// Source: lstm_eval.cc LstmStepInteger8x8_16
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE(item, CELLS, char);
    global const int* numbers = (global const int*)(constants + NUMBERS) + own * 9;
    const int before = ((global const short*)(arena + CELL))[item];
    NEXT_CELL(GATE(0, before), GATE(FORGET_GATE, before), GATE(CELL_GATE, 0), before);
    SHOW(GATE(OUTPUT_GATE, now), now);
  }
}

KERNEL(lstm_quant8)
#endif

#if USES_LSTM_SUMS_QUANT8
// output[b,g,c] = weights[g,c] * input[b] + recurrent[g,c] * hidden[b] + peephole[g,c] * cell[b,c],
// each scaled to the gate's int16; the last of gates but the output's.
// Source: lstm_eval.cc CalculateLstmGateInteger8x8_16
// tile: TILE_ITEMS sums of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_sums_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE(item, GATES * CELLS, char);
    global const int* numbers = (global const int*)(constants + NUMBERS) + own * 9;
    const int sum = LOCAL(gate_sum)(input, weights, DEPTH, hidden, recurrent, WIDTH, numbers);
    const int cell = ((global const short*)(arena + CELL))[row * CELLS + own % CELLS];
    ((global short*)(arena + OUTPUT))[item] =
        (short)LOCAL(with_cell)(sum, numbers, own < OUTPUT_GATE * CELLS ? cell : 0);
  }
}

KERNEL(lstm_sums_quant8)
#endif

#if NORMALIZES_INTEGERS
// 1 / sqrt(value) of Newton's steps, in Q3: a multiplier, and how far it is shifted; value >= 1.
// Source: tflite/kernels/internal/common.h GetInvSqrtQuantizedMultiplierExp
static int LOCAL(inverse_root)(int value, int* shift) {
  *shift = 0;
  if (value <= 1) return 0x7fffffff;
  const int is_large = value >= 1 << 29;
  value = is_large ? value / 4 : value;
  const int pairs = ((int)clz(value) - 1) / 2 - 1;
  const int right = 11 + is_large - pairs;
  const int half_value = LOCAL(rounding_divide_by_pot)(value << 2 * pairs >> 1, 1);
  int x = 1 << 28;
  for (int i = 0; i < 5; i++) {
    const int square = LOCAL(rounding_doubling_high_mul)(x, x);
    const int cube = LOCAL(rounding_doubling_high_mul)(square, x);
    // nothing saturates: x grows towards its end, which is at most 2
    const int less = LOCAL(rounding_doubling_high_mul)(half_value, cube * 64);
    x = (LOCAL(rounding_doubling_high_mul)(3 << 27, x) - less) * 8;
  }
  x = LOCAL(rounding_doubling_high_mul)(x, 1518500250);
  *shift = right < 0 ? 0 : -right;
  return right < 0 ? x << -right : x;
}

// A sum less the mean of a row's, over their deviation, in the gate's Q3.12. `norms` are a cell's
// own: coefficient, bias, multiplier, shift, and the least variance. Where the cells are no power
// of two, TFLite's variance is less than it should be; so is this one. Products may then be beyond
// 32 bits, which is undefined in C: some builds of TFLite have them whole, in others they wrap.
// Source: portable_tensor_utils.cc PortableApplyLayerNorm
static int LOCAL(normalized)(global const short* sums, int cells, int own,
                             global const int* norms) {
  int total = 0;
  uint2 squares = (uint2)(0u, 0u);
  for (int i = 0; i < cells; i++) {
    total += sums[i];
    squares = LOCAL(add_int64)(squares, (uint2)((uint)(sums[i] * sums[i]), 0u));
  }
  const int whole = total / cells;
  const int mean = whole * 1024 + (total - whole * cells) * 1024 / cells;
  const uint2 size = (uint2)(abs(mean), 0u);
  squares = LOCAL(multiply_int64)(squares, (uint2)((uint)((1 << 20) / cells), 0u));
  squares = LOCAL(subtract_int64)(squares, LOCAL(multiply_int64)(size, size));
  const int variance = (int)squares.y < 0 ? 0 : (int)(squares.y << 12 | squares.x >> 20);
  int shift;
  const int root = LOCAL(inverse_root)(variance < 1 ? norms[4] : variance, &shift);
  const int apart = LOCAL(requantize)(1024 * sums[own] - mean, root, shift);
  uint2 value = (uint2)((uint)apart * (uint)norms[0], (uint)mul_hi(apart, norms[0]));
  value = LOCAL(add_int64)(value, (uint2)((uint)norms[1], (uint)(norms[1] >> 31)));
#if PRODUCTS_WRAP
  value.y = (uint)((int)value.x >> 31);
#endif
  const int is_below = (int)value.y < 0;
  if (is_below) value = LOCAL(subtract_int64)((uint2)(0u, 0u), value);
  value = LOCAL(add_int64)(value, (uint2)(512u, 0u));
  const int rounded = (int)(value.y << 22 | value.x >> 10);
  return clamp(LOCAL(requantize)(is_below ? -rounded : rounded, norms[2], norms[3]), -32768, 32767);
}

#define GATE(g)     \
  LOCAL(normalized) \
  (sums + (g) * CELLS, CELLS, own, (global const int*)(constants + NORMS) + ((g) * CELLS + own) * 5)

// Declares an item's row and cell, and the sums of the row.
#define LOCATE_CELL(item)               \
  const int row = (item) / CELLS;       \
  const int own = (item) - row * CELLS; \
  global short* sums = (global short*)(arena + SUMS) + row * GATES * CELLS
#endif

#if USES_LSTM_CELLS_QUANT8
// As lstm_quant8, of the gates' sums, to which the output gate's part of its cell is added: its
// sums are normalised by lstm_output_quant8.
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_cells_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE_CELL(item);
    const int before = ((global const short*)(arena + CELL))[item];
    NEXT_CELL(GATE(0), GATE(FORGET_GATE), GATE(CELL_GATE), before);
    const int at = OUTPUT_GATE * CELLS + own;
    global const int* numbers = (global const int*)(constants + NUMBERS) + at * 9;
    ((global short*)(arena + SUMS_OUTPUT))[row * GATES * CELLS + at] =
        (short)LOCAL(with_cell)(sums[at], numbers, now);
  }
}

KERNEL(lstm_cells_quant8)
#endif

#if USES_LSTM_OUTPUT_QUANT8
// output[b,c] = logistic(sum, normalised) * tanh(cell[b,c])
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_output_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE_CELL(item);
    const int now = ((global const short*)(arena + CELL))[item];
    SHOW(GATE(OUTPUT_GATE), now);
  }
}

KERNEL(lstm_output_quant8)
#endif

#if USES_LSTM_PROJECTION_QUANT8
// output[b,o] = sum_c(weights[o,c] * input[b,c]) + bias[o], scaled and clipped.
// Source: lstm_eval.cc CalculateLstmOutputInteger8x8_16
// tile: TILE_ITEMS outputs of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_projection_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    const int row = item / WIDTH;
    const int own = item - row * WIDTH;
    global const char* input = (global const char*)(arena + INPUT) + row * CELLS;
    global const char* weights = (global const char*)(constants + WEIGHTS) + own * CELLS;
    const int sum = LOCAL(dot)(input, weights, CELLS, ((global const int*)(constants + BIAS))[own]);
    int value = LOCAL(requantize)(sum, OUTPUT_MULTIPLIER, OUTPUT_SHIFT) + OUTPUT_ZERO;
    value = clamp(clamp(value, -128, 127), OUTPUT_MIN, OUTPUT_MAX);
    ROW_OF(char, OUTPUT, row)[own] = (char)value;
    ((global char*)(arena + HIDDEN_OUTPUT))[item] = (char)value;
  }
}

KERNEL(lstm_projection_quant8)
#endif
