// SPDX-License-Identifier: Apache-2.0
// Macros: SOURCE and RESULT, types as wide as the elements, without a sign, uint2 for 64 bits; what
// they hold: SOURCE_IS_FLOAT, SOURCE_IS_LONG, SOURCE_IS_UNSIGNED (of 32 bits), RESULT_IS_FLOAT,
// RESULT_IS_HALF, RESULT_IS_LONG, RESULT_IS_UNSIGNED, RESULT_IS_BOOL, else integers of up to 32
// bits.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"

#if SOURCE_IS_FLOAT && RESULT_IS_LONG
// The whole part of |x| < 2^63, with the sign of x: 24 digits moved to where they belong.
static uint2 LOCAL(whole_part)(uint word) {
  int exponent = (int)(word >> 23 & 255u) - 150;
  uint digits = (word & 0x7fffffu) | 0x800000u;
  uint low = digits >> min(max(-exponent, 0), 31);
  uint high = 0u;
  if (exponent > 0) {
    uint near = (uint)exponent & 31u;
    high = exponent > 31 ? digits << near : digits >> 1 >> (31u - near);
    low = exponent > 31 ? 0u : digits << near;
  }
  uint sign = 0u - (word >> 31);
  low = (low ^ sign) - sign;
  high = (high ^ sign) + (sign != 0u && low == 0u ? 1u : 0u);
  return (uint2)(low, high);
}
#endif

#if SOURCE_IS_LONG && (RESULT_IS_FLOAT || RESULT_IS_HALF)
// The nearest float: of the highest 32 digits, the last one set where a lower one is.
static float LOCAL(nearest)(uint2 word) {
  uint sign = 0u - (word.y >> 31);
  uint low = (word.x ^ sign) - sign;
  uint high = (word.y ^ sign) + (sign != 0u && low == 0u ? 1u : 0u);
  uint room = clz(high);
  uint top = high << (room & 31u) | low >> 1 >> (31u - (room & 31u));
  top |= (low << (room & 31u)) != 0u ? 1u : 0u;
  float size = (float)(room > 31u ? low : top);
  size *= room > 31u ? 1.0f : as_float((127u + 32u - room) << 23);
  return sign != 0u ? -size : size;
}
#endif

#if RESULT_IS_HALF
// The nearest half of a float's bits, ties to even, as a word of 16 bits.
static ushort LOCAL(half_of)(uint word) {
  const uint sign = word >> 16 & 0x8000u;
  const uint size = word & 0x7fffffffu;
  const int exponent = (int)(size >> 23) - 127 + 15;
  // Below 2^-14 the digits move to where a half's last one is; far below nothing is left.
  const uint digits = (size & 0x7fffffu) | 0x800000u;
  const uint moved = (uint)min(max(14 - exponent, 13), 25);
  const uint kept = exponent > 0 ? size - ((127u - 15u) << 23) : digits;
  const uint shift = exponent > 0 ? 13u : moved;
  const uint rest = kept & ((1u << shift) - 1u);
  const uint tie = 1u << (shift - 1u);
  uint found = kept >> shift;
  found += rest > tie || (rest == tie && (found & 1u) != 0u) ? 1u : 0u;
  found = found > 0x7c00u || exponent > 30 ? 0x7c00u : found;
  found = size > 0x7f800000u ? 0x7e00u : found; /* NaN */
  return (ushort)(sign | found);
}
#endif

// output[i] = (RESULT)input[i]   Source: cast.cc
// tile: TILE_ITEMS elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(cast) {
  TILE_RANGE(ELEMENTS);
  global const SOURCE* input = (global const SOURCE*)(arena + INPUT) + start;
  global RESULT* output = (global RESULT*)(arena + OUTPUT) + start;
#if SOURCE_IS_FLOAT && !RESULT_IS_BOOL && !RESULT_IS_HALF
  const float above = as_float(ABOVE);
  const float below = as_float(BELOW);
  global const uint2* answers = (global const uint2*)(constants + ANSWERS);
  const uint2 lowest = answers[0];
  const uint2 highest = answers[1];
  const uint2 not_a_number = answers[2];
#endif
  for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
    SOURCE word = input[i];
#if RESULT_IS_BOOL && SOURCE_IS_LONG
    output[i] = (word.x | word.y) != 0u;
#elif RESULT_IS_BOOL && SOURCE_IS_FLOAT
    output[i] = (word & 0x7fffffffu) != 0u; /* -0.0 is nothing, too */
#elif RESULT_IS_BOOL
    output[i] = word != 0u;
#elif RESULT_IS_HALF && SOURCE_IS_FLOAT
    output[i] = LOCAL(half_of)(word);
#elif RESULT_IS_HALF && SOURCE_IS_LONG
    output[i] = LOCAL(half_of)(as_uint(LOCAL(nearest)(word)));
#elif RESULT_IS_HALF && SOURCE_IS_UNSIGNED
    output[i] = LOCAL(half_of)(as_uint((float)word));
#elif RESULT_IS_HALF
    output[i] = LOCAL(half_of)(as_uint((float)as_int(word)));
#elif SOURCE_IS_FLOAT && RESULT_IS_LONG
    float value = as_float(word);
    uint2 answer = LOCAL(whole_part)(word);
    answer = value >= above ? highest : answer;
    answer = value <= below ? lowest : answer;
    output[i] = value != value ? not_a_number : answer;
#elif SOURCE_IS_FLOAT
    float value = as_float(word);
    int is_inside = value < above && value > below;
#if RESULT_IS_UNSIGNED
    const int is_upper = is_inside && value >= 0x1p31f;
    uint answer = (uint)(int)(is_upper ? value - 0x1p31f : is_inside ? value : 0.0f);
    answer += is_upper ? 0x80000000u : 0u;
#else
    uint answer = (uint)(int)(is_inside ? value : 0.0f);
#endif
    answer = value >= above ? highest.x : answer;
    answer = value <= below ? lowest.x : answer;
    output[i] = (RESULT)(value != value ? not_a_number.x : answer);
#elif SOURCE_IS_LONG && RESULT_IS_FLOAT
    output[i] = as_uint(LOCAL(nearest)(word));
#elif SOURCE_IS_LONG
    output[i] = (RESULT)word.x;
#elif RESULT_IS_LONG && SOURCE_IS_UNSIGNED
    output[i] = (uint2)(word, 0u);
#elif RESULT_IS_LONG
    output[i] = (uint2)(word, 0u - (word >> 31));
#elif RESULT_IS_FLOAT && SOURCE_IS_UNSIGNED
    output[i] = as_uint((float)word);
#elif RESULT_IS_FLOAT
    output[i] = as_uint((float)as_int(word));
#else
    output[i] = (RESULT)word;
#endif
  }
}

KERNEL(cast)
