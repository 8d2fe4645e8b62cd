// SPDX-License-Identifier: Apache-2.0
// A step of an LSTM: a cell has the gates input, forget, cell and output. Where GATES is 3 the
// input gate is what the forget gate leaves of one.
// Macros: GATES; IS_PROJECTED, whether what cells give is multiplied once more, by a launch of its
// own, before it is the output; for floats IS_TANH, the function of cells, else they are clamped.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "quantize.clh"
#define MATH_TANH IS_TANH
#define MATH_DIVIDE 1
#define MATH_EXP 1
#include "float.clh"
#if USES_LSTM_FLOAT
#include "math.clh"
#include "logistic.clh"
#endif

#define FORGET_GATE (GATES - 3)
#define CELL_GATE (GATES - 2)
#define OUTPUT_GATE (GATES - 1)

// Where a row's element of a step lies: NAME_AT of the step, NAME_ROW from row to row.
#define ROW_OF(type, name, row) ((global type*)(arena + name) + name##_AT + (row) * name##_ROW)

// Declares an item's row and cell, what the row gives the cell, and the cell's weights for it.
#define LOCATE_CELL(item, TYPE)                                                         \
  const int row = (item) / CELLS;                                                       \
  const int own = (item) - row * CELLS;                                                 \
  global const TYPE* input = ROW_OF(const TYPE, INPUT, row);                            \
  global const TYPE* hidden = ROW_OF(const TYPE, HIDDEN, row);                          \
  global const TYPE* weights = (global const TYPE*)(constants + WEIGHTS) + own * DEPTH; \
  global const TYPE* recurrent = (global const TYPE*)(constants + RECURRENT) + own * WIDTH

#if USES_LSTM_QUANT8 || USES_LSTM_PROJECTION_QUANT8
DEFINE_ROUNDING()

static int LOCAL(dot)(global const char* a, global const char* b, int count, int sum) {
  for (int i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}
#endif

#if USES_LSTM_QUANT8
// A gate's sum in Q3.12. `numbers` are a cell's own: of the input, of the output of the step before
// and of the cell what is added to the sum, or the weight, then its multiplier and shift.
static int LOCAL(gate_sum)(global const char* input, global const char* weights, int depth,
                           global const char* hidden, global const char* recurrent, int width,
                           global const int* numbers, int cell) {
  int sum = LOCAL(dot)(input, weights, depth, numbers[0]);
  int value = clamp(LOCAL(requantize)(sum, numbers[1], numbers[2]), -32768, 32767);
  sum = LOCAL(dot)(hidden, recurrent, width, numbers[3]);
  value = clamp(value + LOCAL(requantize)(sum, numbers[4], numbers[5]), -32768, 32767);
  sum = LOCAL(requantize)(numbers[6] * cell, numbers[7], numbers[8]);
  return clamp(value + sum, -32768, 32767);
}

#define GATE(g, cell)                                                                         \
  (32768 + LOCAL(gate_sum)(input, weights + (g) * CELLS * DEPTH, DEPTH, hidden,               \
                           recurrent + (g) * CELLS * WIDTH, WIDTH, numbers + (g) * CELLS * 9, \
                           (cell)))

// cell_output[b,c] = forget * cell[b,c] + input * update; output[b,c] = gate * tanh(cell_output).
// The functions are tables of all int16 values.
// Source: lstm_eval.cc LstmStepInteger8x8_16
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_quant8) {
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE_CELL(item, char);
    global const int* numbers = (global const int*)(constants + NUMBERS) + own * 9;
    global const short* logistic = (global const short*)(constants + LOGISTIC);
    const int before = ((global const short*)(arena + CELL))[item];
    const int forget = logistic[GATE(FORGET_GATE, before)];
    const int update = ((global const short*)(constants + TANH))[GATE(CELL_GATE, 0)];
#if GATES == 4
    const int fresh = logistic[GATE(0, before)];
#else
    const int fresh = 32767 - forget;
#endif
    const short kept = (short)LOCAL(rounding_divide_by_pot)(forget * before, 15);
    const short added = (short)LOCAL(rounding_divide_by_pot)(fresh * update, UPDATE_SHIFT);
    int now = clamp(kept + added, -32768, 32767);
    now = clamp(now, CELL_MIN, CELL_MAX);
    ((global short*)(arena + CELL_OUTPUT))[item] = (short)now;
    const int gate = logistic[GATE(OUTPUT_GATE, now)];
    const int shown = ((global const short*)(constants + CELL_TANH))[now + 32768];
    int value = LOCAL(requantize)(gate * shown, HIDDEN_MULTIPLIER, HIDDEN_SHIFT) + HIDDEN_ZERO;
    value = clamp(value, -128, 127);
    ROW_OF(char, OUTPUT, row)[own] = (char)value;
#if !IS_PROJECTED
    ((global char*)(arena + HIDDEN_OUTPUT))[item] = (char)value;
#endif
  }
}

KERNEL(lstm_quant8)
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

#if USES_LSTM_FLOAT || USES_LSTM_PROJECTION_FLOAT
static float LOCAL(float_dot)(global const float* a, global const float* b, int count, float sum) {
  for (int i = 0; i < count; i++) sum = MULTIPLY_ADD(a[i], b[i], sum);
  return sum;
}
#endif

#if USES_LSTM_FLOAT
#if IS_TANH
#define FUNCTION(x) LOCAL(tanh_float)(x)
#else
#define FUNCTION(x) ACTIVATE(x, low, high)
#endif

// A gate's sum; `numbers` are a cell's own bias and weight of the cell itself.
static float LOCAL(gate_sum)(global const float* input, global const float* weights, int depth,
                             global const float* hidden, global const float* recurrent, int width,
                             global const float* numbers, float cell) {
  float sum = LOCAL(float_dot)(input, weights, depth, numbers[0]);
  sum = LOCAL(float_dot)(hidden, recurrent, width, sum);
  return MULTIPLY_ADD(numbers[1], cell, sum);
}

#define GATE(g, cell)                                                  \
  LOCAL(gate_sum)(input, weights + (g) * CELLS * DEPTH, DEPTH, hidden, \
                  recurrent + (g) * CELLS * WIDTH, WIDTH, numbers + (g) * CELLS * 2, (cell))

// As lstm_quant8, of floats.   Source: lstm_eval.cc LstmStepFloat
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_float) {
#if !IS_TANH
  FLOAT_BOUNDS(float);
#endif
  const float clip = as_float(CELL_CLIP);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_CELL(item, float);
    global const float* numbers = (global const float*)(constants + NUMBERS) + own * 2;
    const float before = ((global const float*)(arena + CELL))[item];
    const float forget = LOCAL(logistic_float)(GATE(FORGET_GATE, before));
    const float update = FUNCTION(GATE(CELL_GATE, 0.0f));
#if GATES == 4
    const float fresh = LOCAL(logistic_float)(GATE(0, before));
#else
    const float fresh = 1.0f - forget;
#endif
    float now = forget * before + fresh * update;
    now = ACTIVATE(now, -clip, clip);
    ((global float*)(arena + CELL_OUTPUT))[item] = now;
    const float value = LOCAL(logistic_float)(GATE(OUTPUT_GATE, now)) * FUNCTION(now);
    ROW_OF(float, OUTPUT, row)[own] = value;
#if !IS_PROJECTED
    ((global float*)(arena + HIDDEN_OUTPUT))[item] = value;
#endif
  }
}

KERNEL(lstm_float)
#endif

#if USES_LSTM_PROJECTION_FLOAT
// As lstm_projection_quant8, of floats.   Source: lstm_eval.cc CalculateLstmOutputFloat
// tile: TILE_ITEMS outputs of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_projection_float) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    const int row = item / WIDTH;
    const int own = item - row * WIDTH;
    global const float* input = (global const float*)(arena + INPUT) + row * CELLS;
    global const float* weights = (global const float*)(constants + WEIGHTS) + own * CELLS;
    const float bias = ((global const float*)(constants + BIAS))[own];
    float value = LOCAL(float_dot)(input, weights, CELLS, bias);
    value = ACTIVATE(value, low, high);
    ROW_OF(float, OUTPUT, row)[own] = value;
    ((global float*)(arena + HIDDEN_OUTPUT))[item] = value;
  }
}

KERNEL(lstm_projection_float)
#endif
