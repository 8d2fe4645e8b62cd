// SPDX-License-Identifier: Apache-2.0
// Macros: one of IS_RELU, IS_LEAKY_RELU, IS_ELU, IS_GELU, IS_GELU_TANH, IS_LOGISTIC, IS_TANH,
// IS_HARD_SWISH, the function.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#define MATH_DIVIDE (IS_LOGISTIC || IS_HARD_SWISH)
#define MATH_EXP IS_LOGISTIC
#define MATH_EXPM1 IS_ELU
#define MATH_TANH (IS_TANH || IS_GELU_TANH)
#define MATH_ERFC IS_GELU
#include "float.clh"
#include "math.clh"
#if IS_LOGISTIC
#include "logistic.clh"
#endif

// Comparisons with NaN are false, and it stays what it is.
#if IS_RELU
#define FUNCTION(x) ((x) > high ? high : (x) < low ? low : (x))
#elif IS_LEAKY_RELU
#define FUNCTION(x) ((x) > 0.0f ? (x) : (x) * alpha)
#elif IS_ELU
#define FUNCTION(x) ((x) < 0.0f ? LOCAL(expm1_float)(x) : (x))
#elif IS_TANH
#define FUNCTION(x) LOCAL(tanh_float)(x)
#elif IS_LOGISTIC
#define FUNCTION(x) LOCAL(logistic_float)(x)
#elif IS_HARD_SWISH
static float LOCAL(hard_swish)(float x) {
  float ramp = x + 3.0f;
  ramp = ramp < 0.0f ? 0.0f : ramp;
  ramp = ramp > 6.0f ? 6.0f : ramp;
  return LOCAL(divide_float)(x * ramp, 6.0f);
}
#define FUNCTION(x) LOCAL(hard_swish)(x)
#elif IS_GELU_TANH
static float LOCAL(gelu_tanh)(float x) {
  float cubic = x + 0.044715f * x * x * x;
  return 0.5f * x * (1.0f + LOCAL(tanh_float)(0.7978845608f * cubic));
}
#define FUNCTION(x) LOCAL(gelu_tanh)(x)
#elif IS_GELU
#define FUNCTION(x) (0.5f * (x) * LOCAL(erfc_float)((x) * -0.70710678f))
#endif

// output[i] = the function of input[i]   Source: activations.cc
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(activation_float) {
  TILE_RANGE(ELEMENTS);
#if IS_RELU
  const float low = as_float(LOWEST);
  const float high = as_float(HIGHEST);
#elif IS_LEAKY_RELU
  const float alpha = as_float(ALPHA);
#endif
  global const STORED_FLOAT* input = (global const STORED_FLOAT*)(arena + INPUT) + start;
  global STORED_FLOAT* output = (global STORED_FLOAT*)(arena + OUTPUT) + start;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    float x = LOAD_FLOAT(i, input);
    STORE_FLOAT(FUNCTION(x), i, output);
  }
}

KERNEL(activation_float)
