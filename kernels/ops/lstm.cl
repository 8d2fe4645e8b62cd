// SPDX-License-Identifier: Apache-2.0
// A step of an LSTM of floats: a cell has the gates input, forget, cell and output. Where GATES is
// 3 the input gate is what the forget gate leaves of one.
// Macros: GATES; IS_PROJECTED, whether what cells give is multiplied once more, by a launch of its
// own, before it is the output; IS_TANH, the function of cells, else they are clamped;
// IS_BASIC, whether the cell's gate comes before the forget gate; IS_NORMALIZED, whether a gate's
// sums are normalised over the cells of a row; LANES, the cells of an item of lstm_cells_float;
// IN_TWO_PARTS, whether its sums are.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#define MATH_TANH IS_TANH
#define MATH_DIVIDE 1
#define MATH_EXP 1
#include "float.clh"
#define HAS_FUNCTIONS (USES_LSTM_FLOAT || USES_LSTM_CELLS_FLOAT || USES_LSTM_OUTPUT_FLOAT)
#if HAS_FUNCTIONS
#if LANES > 1
#define MATH_INLINE __attribute__((always_inline))
#endif
#include "math.clh"
#include "logistic.clh"
#endif
#define NORMALIZES (IS_NORMALIZED && (USES_LSTM_CELLS_FLOAT || USES_LSTM_OUTPUT_FLOAT))
#define SUMS_FLOATS (USES_LSTM_FLOAT || USES_LSTM_SUMS_FLOAT || USES_LSTM_PROJECTION_FLOAT)
#define SUMS_HYBRID (USES_LSTM_SUMS_HYBRID || USES_LSTM_PROJECTION_HYBRID)
#include "recurrent.clh"

#if IS_BASIC
#define FORGET_GATE 2
#define CELL_GATE 1
#else
#define FORGET_GATE (GATES - 3)
#define CELL_GATE (GATES - 2)
#endif
#define OUTPUT_GATE (GATES - 1)

#if HAS_FUNCTIONS
#if IS_TANH
#define FUNCTION(x) LOCAL(tanh_float)(x)
#else
#define FUNCTION(x) ACTIVATE(x, low, high)
#endif
#endif

#if USES_LSTM_FLOAT || USES_LSTM_CELLS_FLOAT
// What a cell becomes, of the sums of its gates.
static float MATH_INLINE LOCAL(next_cell)(float input_sum, float forget_sum, float cell_sum,
                                          float before, float low, float high, float clip) {
  const float forget = LOCAL(logistic_float)(forget_sum);
#if GATES == 4
  const float fresh = LOCAL(logistic_float)(input_sum);
#else
  const float fresh = 1.0f - forget;
#endif
  const float now = forget * before + fresh * FUNCTION(cell_sum);
  return ACTIVATE(now, -clip, clip);
}
#endif

#if USES_LSTM_FLOAT
#define GATE(g, cell)                                                                           \
  MULTIPLY_ADD(peepholes[(g) * CELLS], (cell),                                                  \
               LOCAL(float_sum)(input, weights + (g) * CELLS * DEPTH, OWN_DEPTH, DEPTH, hidden, \
                                recurrent + (g) * CELLS * WIDTH, WIDTH, biases[(g) * CELLS]))

// cell_output[b,c] = forget * cell[b,c] + input * update; output[b,c] = gate * tanh(cell_output).
// Source: lstm_eval.cc LstmStepFloat
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_float) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE(item, CELLS, float);
    global const float* biases = (global const float*)(constants + BIASES) + own;
    global const float* peepholes = (global const float*)(constants + PEEPHOLES) + own;
    const float before = ((global const float*)(arena + CELL))[item];
    const float now =
        LOCAL(next_cell)(GATE(0, before), GATE(FORGET_GATE, before), GATE(CELL_GATE, 0.0f), before,
                         low, high, as_float(CELL_CLIP));
    ((global float*)(arena + CELL_OUTPUT))[item] = now;
    GIVE(float, item, row, own, LOCAL(logistic_float)(GATE(OUTPUT_GATE, now)) * FUNCTION(now));
  }
}

KERNEL(lstm_float)
#endif

// A gate's sum without what the output gate reads of its cell, which is not known before.
#define WITH_CELL(sum)                                                                        \
  MULTIPLY_ADD(                                                                               \
      own < OUTPUT_GATE * CELLS ? ((global const float*)(constants + PEEPHOLES))[own] : 0.0f, \
      ((global const float*)(arena + CELL))[row * CELLS + own % CELLS], (sum))

#if USES_LSTM_SUMS_FLOAT
// sums[b,g,c] = bias[g,c] + weights[g,c] * input[b] + recurrent[g,c] * hidden[b] +
// peephole[g,c] * cell[b,c], the last of gates but the output's.
// Source: lstm_eval.cc CalculateLstmGateFloat
// tile: TILE_ITEMS sums of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_sums_float) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE(item, GATES * CELLS, float);
    const float bias = ((global const float*)(constants + BIASES))[own];
    const float sum =
        LOCAL(float_sum)(input, weights, OWN_DEPTH, DEPTH, hidden, recurrent, WIDTH, bias);
    ((global float*)(arena + OUTPUT))[item] = WITH_CELL(sum);
  }
}

KERNEL(lstm_sums_float)
#endif

#if USES_LSTM_SUMS_HYBRID
// As lstm_sums_float, of rows that became int8, and int8 weights with a scale a gate.
// Source: lstm_eval.cc CalculateLstmGateHybrid
// tile: TILE_ITEMS sums of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_sums_hybrid) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE(item, GATES * CELLS, char);
    const float bias = ((global const float*)(constants + BIASES))[own];
    global const int* numbers = (global const int*)(constants + NUMBERS) + own * HYBRID_NUMBERS;
    const float sum = HYBRID_SUM_OF(row, bias, numbers);
    ((global float*)(arena + OUTPUT))[item] = WITH_CELL(sum);
  }
}

KERNEL(lstm_sums_hybrid)
#endif

#if USES_LSTM_CELLS_FLOAT || USES_LSTM_OUTPUT_FLOAT
// A gate's sum of a cell, normalised; or in two parts, of which the input's are of all steps.
#if IS_NORMALIZED
#define GATE(g, cell)                                                              \
  LOCAL(normalized)(sums + (g) * CELLS, CELLS, cell,                               \
                    (global const float*)(constants + COEFFICIENTS) + (g) * CELLS, \
                    (global const float*)(constants + NORM_BIASES) + (g) * CELLS)
#elif IN_TWO_PARTS
#define GATE(g, cell) \
  (ROW_OF(const float, INPUT_SUMS, row)[(g) * CELLS + (cell)] + sums[(g) * CELLS + (cell)])
#else
#define GATE(g, cell) (sums[(g) * CELLS + (cell)])
#endif
#endif

#if USES_LSTM_CELLS_FLOAT
#if IS_NORMALIZED
#define OUTPUT_SUM(cell) sums[OUTPUT_GATE * CELLS + (cell)]
#else
#define OUTPUT_SUM(cell) GATE(OUTPUT_GATE, cell)
#endif

#if LANES == 1
#define EACH_CELL(count)  // a loop that stays, as Mesa's compilers leave it, takes arrays to memory
#else
#define EACH_CELL(count) for (int i = 0; i < (count); i++)
#endif

// As lstm_float, of the gates' sums, to which the output gate's part of its cell is added. Where
// sums are normalised the rest is lstm_output_float's, which reads all cells' sums. An item's cells
// stand in arrays, which compilers make vectors of; those behind a row's last count for nothing.
// tile: TILE_ITEMS times LANES cells of a row; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_cells_float) {
  FLOAT_BOUNDS(float);
  const float clip = as_float(CELL_CLIP);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    const int row = item / ROW_ITEMS;
    const int own = (item - row * ROW_ITEMS) * LANES;
    const int place = row * CELLS + own;
    global float* sums = (global float*)(arena + SUMS) + row * GATES * CELLS;
    global const float* before = (global const float*)(arena + CELL) + place;
    global const float* peepholes =
        (global const float*)(constants + PEEPHOLES) + OUTPUT_GATE * CELLS + own;
    float now[LANES], shown[LANES];
#if LANES == 1
    const int i = 0;
#endif
    EACH_CELL(LANES) {
      now[i] = LOCAL(next_cell)(GATE(0, own + i), GATE(FORGET_GATE, own + i),
                                GATE(CELL_GATE, own + i), before[i], low, high, clip);
      shown[i] = MULTIPLY_ADD(peepholes[i], now[i], OUTPUT_SUM(own + i));
    }
#if !IS_NORMALIZED
    EACH_CELL(LANES) shown[i] = LOCAL(logistic_float)(shown[i]) * FUNCTION(now[i]);
#endif
    EACH_CELL(min(LANES, CELLS - own)) {
      ((global float*)(arena + CELL_OUTPUT))[place + i] = now[i];
#if IS_NORMALIZED
      ((global float*)(arena + SUMS_OUTPUT))[(row * GATES + OUTPUT_GATE) * CELLS + own + i] =
          shown[i];
#else
      GIVE(float, place + i, row, own + i, shown[i]);
#endif
    }
  }
}

KERNEL(lstm_cells_float)
#endif

#if USES_LSTM_OUTPUT_FLOAT
// output[b,c] = logistic(sum, normalised) * tanh(cell[b,c])
// tile: TILE_ITEMS cells of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_output_float) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    const int row = item / CELLS;
    const int own = item - row * CELLS;
    global float* sums = (global float*)(arena + SUMS) + row * GATES * CELLS;
    const float now = ((global const float*)(arena + CELL))[item];
    GIVE(float, item, row, own, LOCAL(logistic_float)(GATE(OUTPUT_GATE, own)) * FUNCTION(now));
  }
}

KERNEL(lstm_output_float)
#endif

// Declares an item's row, its output, and what it is multiplied from.
#define LOCATE_OUTPUT(item, TYPE, PITCH)                                                \
  const int row = (item) / WIDTH;                                                       \
  const int own = (item) - row * WIDTH;                                                 \
  global const TYPE* input = (global const TYPE*)(arena + INPUT) + row * (PITCH);       \
  global const TYPE* weights = (global const TYPE*)(constants + WEIGHTS) + own * CELLS; \
  const float bias = ((global const float*)(constants + BIAS))[own]

#if USES_LSTM_PROJECTION_FLOAT
// output[b,o] = sum_c(weights[o,c] * input[b,c]) + bias[o], clipped.
// Source: lstm_eval.cc CalculateLstmOutputFloat
// tile: TILE_ITEMS outputs of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_projection_float) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_OUTPUT(item, float, CELLS);
    const float value = LOCAL(plus_fours)(input, weights, CELLS, bias);
    ((global float*)(arena + HIDDEN_OUTPUT))[item] = ROW_OF(float, OUTPUT, row)[own] =
        ACTIVATE(value, low, high);
  }
}

KERNEL(lstm_projection_float)
#endif

#if USES_LSTM_PROJECTION_HYBRID
// As lstm_projection_float, of rows that became int8, and int8 weights with one scale.
// Source: lstm_eval.cc CalculateLstmOutputHybrid
// tile: TILE_ITEMS outputs of all rows, one a work-item; tiles: ceil(items / TILE_ITEMS)
TILE(lstm_projection_hybrid) {
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_OUTPUT(item, char, PITCH);
    const float value =
        LOCAL(hybrid_dot)(input, weights, CELLS, ((global const int*)(arena + ROW_ZEROS))[row],
                          ((global const float*)(arena + ROW_SCALES))[row],
                          (global const int*)(constants + NUMBERS) + own * 2, bias);
    ((global float*)(arena + HIDDEN_OUTPUT))[item] = ROW_OF(float, OUTPUT, row)[own] =
        ACTIVATE(value, low, high);
  }
}

KERNEL(lstm_projection_hybrid)
#endif
