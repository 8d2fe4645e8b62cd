// SPDX-License-Identifier: Apache-2.0
// Macros: OP, one of the names below; ELEM, the inputs' type, and RESULT, the output's; LANES, the
// elements of an item, 1 in the plain kernel.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "quantize.clh"
#include "broadcast.clh"

#define ADD 1 /* with RIGHT_SIGN or RIGHT_LIFT below 0 it subtracts */
#define ADD_SHIFTED 2
#define MULTIPLY 3
#define DIVIDE 4
#define MAXIMUM 5
#define MINIMUM 6
#define SQUARED_DIFFERENCE 7
#define FLOOR_DIVIDE 8
#define FLOOR_MODULO 9
#define EQUAL 10 /* INVERT makes it NOT_EQUAL */
#define LESS 11
#define LESS_EQUAL 12
#define POWER 13
#define ANGLE 14
#define AND 15
#define SHIFT_LEFT 16
#define XOR 17
#define SHIFT_RIGHT 18 /* arithmetic, by 0 to MOST_SHIFT bits: others are taken for the nearest */

#define IS_COMPARISON (OP == EQUAL || OP == LESS || OP == LESS_EQUAL)
#define MATH_POWER (OP == POWER && USES_BINARY_FLOAT)
#define ANGLES_ATAN2 (OP == ANGLE)
#include "math.clh"

#if USES_BINARY_FLOAT
#define WORD float
#elif USES_BINARY_INT64
#define WORD uint2 /* one element: the plain kernel alone has this type */
#include "int64.clh"
#else
#define WORD int
#endif
#define VALUES JOIN(WORD, N)
#define TO_VALUES JOIN(JOIN(convert_, WORD), N)
#define TO_RESULTS JOIN(JOIN(convert_, RESULT), N)
#define INTS JOIN(int, N)
#define UINTS JOIN(uint, N)
DEFINE_VECTOR(elems, ELEM)
DEFINE_VECTOR(results, RESULT)

#if USES_BINARY_INT64

static RESULT LOCAL(combine)(uint2 a, uint2 b, PARAMS params) {
#if OP == ADD
  return RIGHT_SIGN < 0 ? LOCAL(subtract_int64)(a, b) : LOCAL(add_int64)(a, b);
#elif OP == MULTIPLY
  return LOCAL(multiply_int64)(a, b);
#elif OP == MAXIMUM
  return LOCAL(is_less_int64)(b, a) ? a : b;
#elif OP == MINIMUM
  return LOCAL(is_less_int64)(a, b) ? a : b;
#elif OP == AND
  return a & b;
#elif OP == FLOOR_MODULO
  uint2 rest;
  LOCAL(divide_int64)(a, b, &rest);
  const int is_other = (int)(rest.y ^ b.y) < 0 && (rest.x | rest.y) != 0u;
  return is_other ? LOCAL(add_int64)(rest, b) : rest;
#elif OP == EQUAL
  return (RESULT)((a.x == b.x && a.y == b.y ? 1 : 0) ^ INVERT);
#elif OP == LESS
  return (RESULT)LOCAL(is_less_int64)(a, b);
#elif OP == LESS_EQUAL
  return (RESULT)(1 - LOCAL(is_less_int64)(b, a));
#endif
}

#elif USES_BINARY_FLOAT

#if OP == DIVIDE || OP == FLOOR_DIVIDE
DEFINE_PRODUCT_REST(N)
DEFINE_DIVIDE(N)
#elif OP == ANGLE
DEFINE_PRODUCT_REST()
#endif
#include "angles.clh"

#if !IS_COMPARISON
static VALUES LOCAL(combine)(VALUES a, VALUES b, PARAMS params) {
#if OP == ADD || OP == MULTIPLY || OP == DIVIDE
  const VALUES low = as_float(OUTPUT_MIN);
  const VALUES high = as_float(OUTPUT_MAX);
#if OP == ADD
  VALUES found = a + b * (float)RIGHT_SIGN;
#elif OP == MULTIPLY
  VALUES found = a * b;
#else
  VALUES found = LOCAL(JOIN(divide, N))(a, b);
#endif
  return ACTIVATE(found, low, high);
#elif OP == SQUARED_DIFFERENCE
  return (a - b) * (a - b);
#elif OP == MAXIMUM
  return a > b ? a : b;
#elif OP == MINIMUM
  return a < b ? a : b;
#elif OP == POWER
  return LOCAL(power_float)(a, b);
#elif OP == ANGLE
  return LOCAL(atan2_float)(a, b);
#elif OP == FLOOR_DIVIDE
  // Where the quotient was rounded up to an integer, what it leaves of a has not b's sign.
  const VALUES none = 0.0f;
  VALUES quotient = LOCAL(JOIN(divide, N))(a, b);
  VALUES whole = floor(quotient);
  // Only its sign counts: sizes far from the ends of the exponents have the same.
  VALUES size = fabs(b);
  VALUES scale = size > 0x1p60f ? none + 0x1p-60f : size < 0x1p-40f ? none + 0x1p60f : none + 1.0f;
  VALUES product = quotient * (b * scale);
  VALUES rest = (a * scale - product) - LOCAL(JOIN(product_rest, N))(quotient, b * scale, product);
  rest = quotient == none ? a : rest; /* which might be lost by scaling */
  return whole - ((whole == quotient && fabs(quotient) < 0x1p24f &&
                   ((rest < none && b > none) || (rest > none && b < none)))
                      ? none + 1.0f
                      : none);
#endif
}
#endif

#else

#if (OP == DIVIDE && USES_BINARY_INT32) || OP == FLOOR_DIVIDE || OP == FLOOR_MODULO
// The quotient rounded to zero; the least number over -1 wraps around. The host fails a run with a
// divisor of 0, but the kernel has run then, and processors end a process that divides by it.
static INTS LOCAL(quotient)(INTS a, INTS b) {
  const INTS one = 1;
  const INTS negated = JOIN(as_int, N)(0u - JOIN(as_uint, N)(a));
  return b == -1 ? negated : a / ((b == -1 || b == 0) ? one : b);
}
#endif

#if OP == FLOOR_DIVIDE || OP == FLOOR_MODULO
static INTS LOCAL(floored)(INTS a, INTS b) {
  INTS whole = LOCAL(quotient)(a, b);
  INTS rest = JOIN(as_int, N)(JOIN(as_uint, N)(a) - JOIN(as_uint, N)(whole * b));
#if OP == FLOOR_DIVIDE
  const INTS none = 0;
  return whole - ((rest != 0 && (rest ^ b) < 0) ? none + 1 : none);
#else
  // NOTE: Mesa 25.0's compiler for Adreno dies of a choice between a byte and a constant.
  return (rest != 0 && (rest ^ b) < 0) ? rest + b : rest;
#endif
}
#endif

#if OP == SHIFT_LEFT
static INTS LOCAL(shifted)(INTS a, INTS b) {
  return JOIN(as_int, N)(JOIN(as_uint, N)(a) << JOIN(as_uint, N)(b));
}
#endif

#if OP == SHIFT_RIGHT
static INTS LOCAL(shifted_right)(INTS a, INTS b, int most) {
  const INTS none = 0;
  const INTS all = most;
  return a >> clamp(b, none, all);
}
#endif

#if USES_BINARY_INT32

#if OP == POWER
// The exponent is 0 or more; what 32 bits do not hold wraps around.
static INTS LOCAL(power)(INTS a, INTS exponent) {
  UINTS found = 1u;
  UINTS factor = JOIN(as_uint, N)(a);
  for (int bit = 0; bit < 31; bit++) {
    UINTS is_set = (JOIN(as_uint, N)(exponent) >> (uint)bit) & 1u;
    found *= is_set * (factor - 1u) + 1u;
    factor *= factor;
  }
  return JOIN(as_int, N)(found);
}
#endif

#if !IS_COMPARISON
static VALUES LOCAL(combine)(VALUES a, VALUES b, PARAMS params) {
#if OP == ADD || OP == MULTIPLY || OP == DIVIDE
  const INTS low = OUTPUT_MIN;
  const INTS high = OUTPUT_MAX;
#if OP == ADD
  const uint sign = (uint)RIGHT_SIGN;
  INTS found = JOIN(as_int, N)(JOIN(as_uint, N)(a) + JOIN(as_uint, N)(b) * sign);
#elif OP == MULTIPLY
  INTS found = JOIN(as_int, N)(JOIN(as_uint, N)(a) * JOIN(as_uint, N)(b));
#else
  INTS found = LOCAL(quotient)(a, b);
#endif
  return clamp(found, low, high);
#elif OP == SQUARED_DIFFERENCE
  UINTS difference = JOIN(as_uint, N)(a) - JOIN(as_uint, N)(b);
  return JOIN(as_int, N)(difference * difference);
#elif OP == MAXIMUM
  return max(a, b);
#elif OP == MINIMUM
  return min(a, b);
#elif OP == FLOOR_DIVIDE || OP == FLOOR_MODULO
  return LOCAL(floored)(a, b);
#elif OP == POWER
  return LOCAL(power)(a, b);
#elif OP == AND
  return a & b;
#elif OP == XOR
  return a ^ b;
#elif OP == SHIFT_RIGHT
  return LOCAL(shifted_right)(a, b, MOST_SHIFT);
#elif OP == SHIFT_LEFT
  return LOCAL(shifted)(a, b);
#endif
}
#endif

#else

DEFINE_ROUNDING(N)
#define RESCALE LOCAL(JOIN(requantize, N))

#if OP == DIVIDE
#include "fixed_point.clh"

// a / b scaled, b not 0: a shifted to the left as far as it goes, times 2^31 / b rounded.
// NOTE: TFLite shifts by up to 62. Of more than 31 machines take 5 bits, and its mask is full: some
// of its quotients near 0 are far off, and 0 / b may be 1.
// Source: reference/div.h DivElementwise, internal/common.h GetReciprocal
static int LOCAL(scaled_quotient)(int a, int b, int multiplier, int shift) {
  a = b < 0 ? -a : a;
  const int room_b = (int)clz(abs(b));
  const int room_a = (int)clz((uint)(a ^ (a >> 31))) - 1;
  const int inverse = LOCAL(one_over_one_plus)((int)(((uint)abs(b) << room_b) - 0x80000000u));
  int found = LOCAL(rounding_doubling_high_mul)((int)((uint)a << room_a), inverse);
  found = LOCAL(rounding_doubling_high_mul)(found, multiplier);
  const int exponent = 31 - room_b + room_a - shift;
  return exponent > 31 ? (found >> (exponent & 31)) + (found >= 0)
                       : LOCAL(rounding_divide_by_pot)(found, exponent);
}
#endif

// An input without its zero point, lifted so that little is lost, then brought to a common scale.
static INTS LOCAL(rescaled)(INTS x, int zero, int lift, int multiplier, int shift) {
  return RESCALE((x - zero) * lift, (INTS)(multiplier), (INTS)(shift));
}
#define RESCALED_LEFT(x) LOCAL(rescaled)(x, LEFT_ZERO, LEFT_LIFT, LEFT_MULTIPLIER, LEFT_SHIFT)
#define RESCALED_RIGHT(x) LOCAL(rescaled)(x, RIGHT_ZERO, RIGHT_LIFT, RIGHT_MULTIPLIER, RIGHT_SHIFT)

#if !IS_COMPARISON
static VALUES LOCAL(combine)(VALUES a, VALUES b, PARAMS params) {
#if OP == MAXIMUM
  return max(a, b);
#elif OP == MINIMUM
  return min(a, b);
#elif OP == FLOOR_DIVIDE || OP == FLOOR_MODULO
  return LOCAL(floored)(a, b);
#elif OP == AND
  return a & b;
#elif OP == XOR
  return a ^ b;
#elif OP == SHIFT_RIGHT
  return LOCAL(shifted_right)(a, b, MOST_SHIFT);
#elif OP == SHIFT_LEFT
  return LOCAL(shifted)(a, b);
#else
  const INTS low = OUTPUT_MIN;
  const INTS high = OUTPUT_MAX;
#if OP == DIVIDE
  int found =
      LOCAL(scaled_quotient)(a - LEFT_ZERO, b - RIGHT_ZERO, OUTPUT_MULTIPLIER, OUTPUT_SHIFT);
  return clamp(found + OUTPUT_ZERO, low, high);
#elif OP == ADD_SHIFTED
  // One of the shifts is 0; the sum saturates like gemmlowp's int16.
  const INTS least = -32768;
  const INTS most = 32767;
  const INTS left_shift = LEFT_SHIFT;
  const INTS right_shift = RIGHT_SHIFT;
  a = LOCAL(JOIN(rounding_divide_by_pot, N))(a, left_shift);
  b = LOCAL(JOIN(rounding_divide_by_pot, N))(b, right_shift) * RIGHT_SIGN;
  return clamp(clamp(a + b, least, most), low, high);
#else
  const INTS multiplier = OUTPUT_MULTIPLIER;
  const INTS shift = OUTPUT_SHIFT;
#if OP == ADD
  INTS found = RESCALED_LEFT(a) + RESCALED_RIGHT(b);
#elif OP == SQUARED_DIFFERENCE
  INTS found = RESCALED_LEFT(a) - RESCALED_RIGHT(b);
  found *= found;
#elif OP == MULTIPLY
  INTS found = (a - LEFT_ZERO) * (b - RIGHT_ZERO);
#else
  INTS found = a;
#endif
  return clamp(RESCALE(found, multiplier, shift) + OUTPUT_ZERO, low, high);
#endif
#endif
}
#endif

#endif
#endif

// What an item's elements are: 1 where a comparison holds, 0 elsewhere, or a number.
static JOIN(RESULT, N) LOCAL(answers)(JOIN(ELEM, N) left, JOIN(ELEM, N) right, PARAMS params) {
#if USES_BINARY_INT64
  return LOCAL(combine)(left, right, params);
#else
  VALUES a = TO_VALUES(left);
  VALUES b = TO_VALUES(right);
#if IS_COMPARISON
#if USES_BINARY_QUANT8 || USES_BINARY_QUANT16
  a = RESCALED_LEFT(a);
  b = RESCALED_RIGHT(b);
#endif
#if OP == EQUAL
  INTS holds = ((a == b) & 1) ^ INVERT;
#elif OP == LESS
  INTS holds = (a < b) & 1;
#else
  INTS holds = (a <= b) & 1;
#endif
  return TO_RESULTS(holds);
#else
  return TO_RESULTS(LOCAL(combine)(a, b, params));
#endif
#endif
}

// The items of a tile: LANES elements of a row, the innermost dimension that both inputs step
// through, or stand still in, alike. A row's last item overlaps the one before: no short stores.
static void LOCAL(items)(global uchar* arena, global const uchar* constants, PARAMS params,
                         int tile) {
  // A short constant row is repeated among the constants, so that it fills vectors.
  global const IN_MEMORY(ELEM)* left =
      (global const IN_MEMORY(ELEM)*)((LEFT_IS_CONSTANT ? constants : arena) + LEFT);
  global const IN_MEMORY(ELEM)* right =
      (global const IN_MEMORY(ELEM)*)((RIGHT_IS_CONSTANT ? constants : arena) + RIGHT);
  global IN_MEMORY(RESULT)* output = (global IN_MEMORY(RESULT)*)(arena + OUTPUT);
  TILE_RANGE(ITEMS);
  const int size = ROW;
  const int left_step = LEFT_STEP;
  const int right_step = RIGHT_STEP;
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    int item = start + i;
    int row = 0;
    int left_at = 0;
    int right_at = 0;
    if (ROWS > 1) {
      row = item / ROW_ITEMS;
      item -= row * ROW_ITEMS;
      const int i3 = row % SIZE_3;
      left_at = i3 * LEFT_3;
      right_at = i3 * RIGHT_3;
      if (ROWS > SIZE_3) {
        int rest = row / SIZE_3;
        const int i2 = rest % SIZE_2;
        rest /= SIZE_2;
        const int i1 = rest % SIZE_1;
        rest /= SIZE_1;
        const int i0 = PLACE_0(rest);
        left_at += i2 * LEFT_2 + i1 * LEFT_1 + i0 * LEFT_0 + DEEP_PLACE(rest, LEFT);
        right_at += i2 * RIGHT_2 + i1 * RIGHT_1 + i0 * RIGHT_0 + DEEP_PLACE(rest, RIGHT);
      }
    }
    const int at = min(item * LANES, size - LANES);
    JOIN(ELEM, N) a = LOAD_BROADCAST(elems, ELEM, left + left_at, at, left_step);
    JOIN(ELEM, N) b = LOAD_BROADCAST(elems, ELEM, right + right_at, at, right_step);
    STORE_VECTOR(results, LOCAL(answers)(a, b, params), output + row * size + at);
  }
}

// output[i] = op(left[i], right[i]) of floats, each input broadcast along the dimensions it lacks
// Source: reference/add.h, sub.h, mul.h, div.h, maximum_minimum.h, comparisons.h; floor_div.cc,
// floor_mod.cc, pow.cc, atan2.cc
// tile: TILE_ITEMS items of LANES elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
#if USES_BINARY_FLOAT
TILE(binary_float) { LOCAL(items)(arena, constants, params, tile); }
KERNEL(binary_float)
#endif

// The same of integers that stand for themselves
// tile: TILE_ITEMS items of LANES elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
#if USES_BINARY_INT32
TILE(binary_int32) { LOCAL(items)(arena, constants, params, tile); }
KERNEL(binary_int32)
#endif

// The same of integers of 64 bits
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
#if USES_BINARY_INT64
TILE(binary_int64) { LOCAL(items)(arena, constants, params, tile); }
KERNEL(binary_int64)
#endif

// The same of 8-bit values, rescaled in fixed point; a maximum compares them as they are
// tile: TILE_ITEMS items of LANES elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
#if USES_BINARY_QUANT8
TILE(binary_quant8) { LOCAL(items)(arena, constants, params, tile); }
KERNEL(binary_quant8)
#endif

// The same of 16-bit values
// tile: TILE_ITEMS items of LANES elements, one a work-item; tiles: ceil(items / TILE_ITEMS)
#if USES_BINARY_QUANT16
TILE(binary_quant16) { LOCAL(items)(arena, constants, params, tile); }
KERNEL(binary_quant16)
#endif
