// SPDX-License-Identifier: Apache-2.0
// Macros: ELEM, the output's type; STORED, whether floats are stored in it by a scale.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "math.clh"

#define ELEM_uchar 1
#define ELEM_char 2
#define ELEM_short 3
#define ELEM_float 4
#define TYPE JOIN(ELEM_, ELEM)

#if TYPE == ELEM_float || STORED
DEFINE_PRODUCT_REST(4)
DEFINE_DIVIDE(4)
#endif

// output[y,x,c] = (pixels[y0..y1,x0..x1,c] - mean[c]) / std[c], each of the four by its row's and
// its column's weight; floats alone are divided, integers are rounded toward zero. STORED:
// clamp(rint((pixels - mean) / std / scale) + zero, low, high)
// The host tabled those and the offsets.
// NHWC   Source: optimized/resize_bilinear.h ResizeBilinear, label_image's bitmap_helpers_impl.h
// tile: TILE_ITEMS runs of RUN pixels of a row; tiles: ceil(out_h * ceil(out_w / RUN) / TILE_ITEMS)
TILE(picture) {
  const int end = min(TILE_ITEMS, ITEMS - tile * TILE_ITEMS);
  global const int4* columns = (global const int4*)(constants + COLUMNS);
  global const float4* levels = (global const float4*)(constants + LEVELS);
  const float4 mean = levels[0];
  for (int i = get_local_id(0); i < end; i += get_local_size(0)) {
    const int item = tile * TILE_ITEMS + i;
    const int y = item / SEGMENTS;
    const int x_begin = item % SEGMENTS * RUN;
    const int x_end = min(x_begin + RUN, OUT_W);
    const int4 row = ((global const int4*)(constants + ROWS))[y];
    const float upper = as_float(row.s2), lower = as_float(row.s3);
    global const uchar* top = arena + INPUT + row.s0;
    global const uchar* bottom = arena + INPUT + row.s1;
    global ELEM* output = (global ELEM*)(arena + OUTPUT) + (y * OUT_W + x_begin) * 3;
    for (int x = x_begin; x < x_end; x++) {
      const int4 place = columns[x];
      const float left = as_float(place.s2), right = as_float(place.s3);
      // TFLite's order of products and sums. A fourth channel is read, and not written.
      float4 sum = (upper * left) * convert_float4(vload4(0, top + place.s0));
      sum += (upper * right) * convert_float4(vload4(0, top + place.s1));
      sum += (lower * left) * convert_float4(vload4(0, bottom + place.s0));
      sum += (lower * right) * convert_float4(vload4(0, bottom + place.s1));
      sum -= mean;
#if STORED
      const float4 steps = LOCAL(divide4)(LOCAL(divide4)(sum, levels[1]), levels[2]);
      const int4 found = convert_int4(clamp(rint(steps) + levels[3], levels[4], levels[5]));
#elif TYPE == ELEM_float
      const float4 found = LOCAL(divide4)(sum, levels[1]);
#else
      const int4 found = convert_int4(sum);
#endif
      output[0] = (ELEM)found.s0;
      output[1] = (ELEM)found.s1;
      output[2] = (ELEM)found.s2;
      output += 3;
    }
  }
}

KERNEL(picture)
