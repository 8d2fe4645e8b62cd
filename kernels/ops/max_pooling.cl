// SPDX-License-Identifier: Apache-2.0
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"

#if USES_MAX_POOLING_FLOAT
// output[n,y,x,c] = the greatest of the in-bounds window of input[n,y',x',c], clamped;
// places_output[n,y,x,c] = a tenth more than where in the window the first such value was
// NHWC   Source: max_pool_argmax.cc
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*c / TILE_ITEMS)
TILE(max_pooling_float) {
  global const float* input = (global const float*)(arena + INPUT);
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    int c = element % DEPTH;
    int pixel = element / DEPTH;
    int left = pixel % OUT_W * STRIDE_W - PAD_LEFT;
    int top = pixel / OUT_W % OUT_H * STRIDE_H - PAD_TOP;
    int n = pixel / OUT_W / OUT_H;
    float most = -3.402823466e+38f;
    int place = 0;
    for (int y = max(top, 0); y < min(top + KERNEL_H, IN_H); y++) {
      for (int x = max(left, 0); x < min(left + KERNEL_W, IN_W); x++) {
        float value = input[((n * IN_H + y) * IN_W + x) * DEPTH + c];
        if (value > most) {
          most = value;
          place = (y - top) * KERNEL_W + x - left;
        }
      }
    }
    ((global float*)(arena + OUTPUT))[element] = ACTIVATE(most, low, high);
    ((global float*)(arena + PLACES_OUTPUT))[element] = (float)place + 0.1f;
  }
}

KERNEL(max_pooling_float)
#endif

#if USES_MAX_POOLING_UNDONE_FLOAT
// output[n,y,x,c] = input[n,y',x',c] where its place in the window is this one, else 0
// NHWC   Source: max_unpooling.cc
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(elements / TILE_ITEMS)
TILE(max_pooling_undone_float) {
  int out_w = IN_W * KERNEL_W;
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    int c = element % DEPTH;
    int x = element / DEPTH % out_w;
    int y = element / DEPTH / out_w;
    int source = (y / KERNEL_H * IN_W + x / KERNEL_W) * DEPTH + c;
    float place = ((global const float*)(arena + PLACES))[source];
    float own = (float)(y % KERNEL_H * KERNEL_W + x % KERNEL_W);
    // What lies above -1 is brought to 0, as a number becomes an integer in C.
    int is_there = place < own + 1.0f && (place >= own || (own == 0.0f && place > -1.0f));
    float value = ((global const float*)(arena + INPUT))[source];
    ((global float*)(arena + OUTPUT))[element] = is_there ? value : 0.0f;
  }
}

KERNEL(max_pooling_undone_float)
#endif
