// SPDX-License-Identifier: Apache-2.0
// Macros: CODE_ELEM and SCORE_ELEM, the types of box codes and of scores; IS_CODED, IS_SCORED, 1
// where it is uchar, which has a scale and a zero point;
// IS_STRICT, 1 where boxes whose overlap equals the limit stay, and so do scores that equal the
// least; SUPPRESSES, 0 where no box covers another; IS_SOFT, 1 where covered boxes lose score;
// IS_REGULAR, 1 where each class has chosen its own boxes.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#define MATH_EXP IS_SOFT || USES_DETECTIONS_BOXES
#include "float.clh"
#include "math.clh"
#if SUPPRESSES || USES_DETECTIONS_BOXES
DEFINE_PRODUCT_REST()
#endif
#if SUPPRESSES
DEFINE_DIVIDE()
#endif

#define CODE_OF(x) (IS_CODED ? ((float)(x) - (float)CODE_ZERO) * as_float(CODE_SCALE) : (float)(x))
#define SCORE_OF(x) \
  (IS_SCORED ? ((float)(x) - (float)SCORE_ZERO) * as_float(SCORE_SCALE) : (float)(x))

#if USES_DETECTIONS_BOXES
// A pair is a number and what a float lacks of it: TFLite computes in double, and rounds once.

// (y / scale) * size + at, with the scale's inverse as a pair.
static float LOCAL(center)(float y, float2 inverse, float size, float at) {
  const float part = y * inverse.x;
  const float part_rest = LOCAL(product_rest)(y, inverse.x, part) + y * inverse.y;
  const float grown = part * size;
  const float grown_rest = LOCAL(product_rest)(part, size, grown) + part_rest * size;
  const float sum = grown + at;
  const float back = sum - grown;
  const float lost = (grown - (sum - back)) + (at - back);
  // Beyond, a rest may be NaN, and no box is so far away.
  return fabs(y) < 0x1p60f && fabs(grown) < 0x1p60f ? sum + (lost + grown_rest) : sum;
}

// exp(h / scale) / 2 * size: a power of two, one of 256 in `powers`, and the series of what is
// left, up to 0.0014. ln(2) / 256 comes in four parts, of which three times n are exact.
static float LOCAL(half_of)(float h, float2 inverse, float size, global const float* powers) {
  float x = h * inverse.x;
  float x_rest = LOCAL(product_rest)(h, inverse.x, x) + h * inverse.y;
  const int is_inside = fabs(x) < 170.0f;
  x_rest = is_inside ? x_rest : 0.0f;
  x = x > 170.0f ? 170.0f : x;
  x = x < -170.0f ? -170.0f : x;
  const float rounded = x * 369.329930f + ROUNDER;
  const float n = rounded - ROUNDER;
  const float near = (x - n * 0x1.62p-9f) - n * 0x1.c8p-18f;
  const float third = n * 0x1.7ep-28f;
  const float r = near - third;
  const float back = r - near;
  const float lost = (near - (r - back)) - (third + back);
  const float tail = (r * r) * ((r * 0.0416666679f + 0.166666672f) * r + 0.5f) +
                     (lost + (x_rest - n * 0x1.7d1cf8p-36f));
  const float more = r + tail;
  const float more_rest = tail - (more - r);
  const int whole = as_int(rounded) - ROUNDER_BITS;
  const float2 power = vload2(whole & 255, powers);
  const float part = power.x * more;
  const float part_rest =
      LOCAL(product_rest)(power.x, more, part) + (power.x * more_rest + power.y * more);
  const float sum = power.x + part;
  const float sum_rest = (part - (sum - power.x)) + (part_rest + power.y);
  const float product = sum * size;
  const float value = product + (LOCAL(product_rest)(sum, size, product) + sum_rest * size);
  const int exponent = (whole >> 8) - 1;
  const int half_of_it = exponent >> 1;
  const float grown =
      value * LOCAL(power_of_2)(half_of_it) * LOCAL(power_of_2)(exponent - half_of_it);
  return h == h ? grown : h;
}

// boxes[box] = ymin, xmin, ymax, xmax of a box that is said by its distance from an anchor.
// `anchors`: y, x, height, width; `inverses`: of their scales, a pair each.
// Source: detection_postprocess.cc DecodeCenterSizeBoxes
// tile: TILE_ITEMS boxes, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(detections_boxes) {
  global const float* anchors = (global const float*)(constants + ANCHORS);
  global const float* inverses = (global const float*)(constants + INVERSES);
  global const float* powers = (global const float*)(constants + POWERS);
  EACH_ITEM_OR_NONE (box, tile, ELEMENTS) {
    global const CODE_ELEM* code = (global const CODE_ELEM*)(arena + CODES) + box * CODE_LENGTH;
    const float4 anchor = vload4(box, anchors);
    const float y = CODE_OF(code[0]);
    const float x = CODE_OF(code[1]);
    const float h = CODE_OF(code[2]);
    const float w = CODE_OF(code[3]);
    const float middle_y = LOCAL(center)(y, vload2(0, inverses), anchor.z, anchor.x);
    const float middle_x = LOCAL(center)(x, vload2(1, inverses), anchor.w, anchor.y);
    const float half_h = LOCAL(half_of)(h, vload2(2, inverses), anchor.z, powers);
    const float half_w = LOCAL(half_of)(w, vload2(3, inverses), anchor.w, powers);
    global float* to = (global float*)(arena + BOXES_OUTPUT) + 4 * box;
    to[0] = middle_y - half_h;
    to[1] = middle_x - half_w;
    to[2] = middle_y + half_h;
    to[3] = middle_x + half_w;
  }
}

KERNEL(detections_boxes)
#endif

#if USES_DETECTIONS_BEST
// best[box] = the greatest score of its classes, which begin at `first` of `stride` scores.
// tile: TILE_ITEMS boxes, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(detections_best) {
  EACH_ITEM_OR_NONE (box, tile, ELEMENTS) {
    global const SCORE_ELEM* scores =
        (global const SCORE_ELEM*)(arena + SCORES) + box * STRIDE + FIRST;
    SCORE_ELEM best = scores[0];
    for (int c = 1; c < CLASSES; c++) best = scores[c] > best ? scores[c] : best;
    ((global float*)(arena + BEST_OUTPUT))[box] = SCORE_OF(best);
  }
}

KERNEL(detections_best)
#endif

#if USES_DETECTIONS_SELECT
#if SUPPRESSES
// How much of two boxes, which may have their corners in any order, is common to both.
// Source: detection_postprocess.cc ComputeIntersectionOverUnion, non_max_suppression.h ComputeIou
static float LOCAL(overlap)(float4 a, float4 b) {
  const float2 a_low = (float2)(a.z < a.x ? a.z : a.x, a.w < a.y ? a.w : a.y);
  const float2 a_high = (float2)(a.x < a.z ? a.z : a.x, a.y < a.w ? a.w : a.y);
  const float2 b_low = (float2)(b.z < b.x ? b.z : b.x, b.w < b.y ? b.w : b.y);
  const float2 b_high = (float2)(b.x < b.z ? b.z : b.x, b.y < b.w ? b.w : b.y);
  const float a_area = (a_high.x - a_low.x) * (a_high.y - a_low.y);
  const float b_area = (b_high.x - b_low.x) * (b_high.y - b_low.y);
  const float high = b_high.x < a_high.x ? b_high.x : a_high.x;
  const float right = b_high.y < a_high.y ? b_high.y : a_high.y;
  const float low = a_low.x < b_low.x ? b_low.x : a_low.x;
  const float left = a_low.y < b_low.y ? b_low.y : a_low.y;
  const float height = high - low < 0.0f ? 0.0f : high - low;
  const float width = right - left < 0.0f ? 0.0f : right - left;
  const float common = height * width;
  const float all = a_area + b_area - common;
  if (common == 0.0f && all > 0.0f) return 0.0f;  // as the division gives: most boxes lie apart
  return a_area <= 0.0f || b_area <= 0.0f || all == 0.0f ? 0.0f : LOCAL(divide)(common, all);
}

// The score that a box keeps beside a chosen one; NaN: it is covered.
static float LOCAL(kept)(float score, float share, int is_itself, PARAMS params) {
#if IS_STRICT
  return is_itself || share > as_float(MOST_OVERLAP) ? NAN : score;
#else
#if IS_SOFT
  const float less = score * LOCAL(exp_float)(as_float(DECAY) * share * share);
  const float left = less > as_float(LEAST) ? less : NAN;
#else
  const float left = score;
#endif
  return share >= as_float(MOST_OVERLAP) ? NAN : left;
#endif
}
#endif

// One box after the other: that of the greatest score, of equal ones the first, which covers others
// or lowers their scores. What is left of the scores is in `live`, NaN where there is none.
// Source: detection_postprocess.cc NonMaxSuppressionSingleClassHelper, non_max_suppression.h
// tile: a class, whose boxes the work-items share; tiles: the classes
TILE(detections_select) {
  const int item = get_local_id(0);
  const int items = get_local_size(0);
  const int boxes = ELEMENTS;
  const int rounds = (boxes + items - 1) / items;
  global const SCORE_ELEM* scores = (global const SCORE_ELEM*)(arena + SCORES) + FIRST + tile;
  global float* live = (global float*)(arena + LIVE_OUTPUT) + tile * boxes;
  global int* places = (global int*)(arena + PLACES_OUTPUT) + tile * MOST;
  global float* found = (global float*)(arena + FOUND_OUTPUT) + tile * MOST;
  int enough = 0;
  for (int round = 0; round < rounds; round++) {
    const int i = round * items + item;
    const float score = SCORE_OF(scores[min(i, boxes - 1) * STRIDE]);
    const int is_enough = IS_STRICT ? score >= as_float(LEAST) : score > as_float(LEAST);
    enough += i < boxes && is_enough;
    if (i < boxes) live[i] = is_enough ? score : NAN;
  }
  // A box without an area, which none covers, is chosen again, but not more often than there are
  // boxes.
  scratch[item] = enough;
  barrier(CLK_LOCAL_MEM_FENCE);
  int most = 0;
  for (int j = 0; j < items; j++) most += scratch[j];
  most = min(most, MOST);
  barrier(CLK_LOCAL_MEM_FENCE);
  int count = 0;
  int at = 0;
  while (at >= 0 && count < most) {
    float best = 0.0f;
    int own = -1;
#if SUPPRESSES
    global const float* corners = (global const float*)(arena + CORNERS);
    const float4 chosen = vload4(at, corners);
#endif
    for (int round = 0; round < rounds; round++) {
      const int i = min(round * items + item, boxes - 1);
      float score = round * items + item < boxes ? live[i] : NAN;
      if (count > 0 && score == score) {
#if SUPPRESSES
        const float share = LOCAL(overlap)(vload4(i, corners), chosen);
        score = LOCAL(kept)(score, share, i == at, params);
#else
        score = i == at ? NAN : score;
#endif
        live[i] = score;
      }
      const int is_better = score == score && (own < 0 || score > best);
      best = is_better ? score : best;
      own = is_better ? i : own;
    }
    scratch[item] = own;
    scratch[items + item] = as_int(best);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
      for (int j = 1; j < items; j++) {
        const int other = scratch[j];
        const float score = as_float(scratch[items + j]);
        const int is_first = score == best && other < own;
        const int is_better = other >= 0 && (own < 0 || score > best || is_first);
        best = is_better ? score : best;
        own = is_better ? other : own;
      }
      if (own >= 0) {
        places[count] = own;
        found[count] = best;
      }
      scratch[SCRATCH_INTS - 1] = own;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    at = scratch[SCRATCH_INTS - 1];
    count += at >= 0;
  }
  for (int i = count + item; i < MOST; i += items) {
    places[i] = 0;
    found[i] = as_float(ABSENT);
  }
  if (item == 0) ((global int*)(arena + COUNT_OUTPUT))[tile] = count;
}

KERNEL(detections_select)
#endif

#if USES_DETECTIONS_OUTPUT
// Boxes, classes, scores and their number, as the op gives them; zeros where there are fewer.
// Source: detection_postprocess.cc NonMaxSuppressionMultiClass{Regular,Fast}Helper
// tile: TILE_ITEMS boxes, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(detections_output) {
  const int chosen = ((global const int*)(arena + COUNT))[0];
  global const int* places = (global const int*)(arena + PLACES);
  EACH_ITEM_OR_NONE (slot, tile, ELEMENTS) {
#if IS_REGULAR
    const int is_there = slot < chosen;
    const int place = is_there ? places[slot] : 0;
    const int box = ((global const int*)(arena + OF_CLASSES))[place];
    const int own = place / MOST;
    const float score = ((global const float*)(arena + FOUND))[slot];
#else
    const int rank = slot % OF_A_BOX;
    const int is_there = slot / OF_A_BOX < chosen && rank < CLASSES;
    const int box = is_there ? places[slot / OF_A_BOX] : 0;
    global const SCORE_ELEM* scores =
        (global const SCORE_ELEM*)(arena + SCORES) + box * STRIDE + FIRST;
    int own = -1;
    for (int step = 0; step <= min(rank, CLASSES - 1); step++) {
      int next = -1;
      for (int c = 0; c < CLASSES; c++) {
        const SCORE_ELEM x = scores[c];
        const SCORE_ELEM last = scores[max(own, 0)];
        const int is_left = own < 0 || x < last || (x == last && c > own);
        next = is_left && (next < 0 || x > scores[max(next, 0)]) ? c : next;
      }
      own = max(next, 0);
    }
    const float score = SCORE_OF(scores[own]);
#endif
    const float4 corners = vload4(box, (global const float*)(arena + CORNERS));
    global float* to = (global float*)(arena + BOXES_OUTPUT) + 4 * slot;
    to[0] = is_there ? corners.x : 0.0f;
    to[1] = is_there ? corners.y : 0.0f;
    to[2] = is_there ? corners.z : 0.0f;
    to[3] = is_there ? corners.w : 0.0f;
    ((global float*)(arena + CLASSES_OUTPUT))[slot] = is_there ? (float)own : 0.0f;
    ((global float*)(arena + SCORES_OUTPUT))[slot] = is_there ? score : 0.0f;
    if (slot == 0) ((global float*)(arena + NUMBER_OUTPUT))[0] = (float)chosen;
  }
}

KERNEL(detections_output)
#endif
