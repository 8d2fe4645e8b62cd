// SPDX-License-Identifier: Apache-2.0
// Macros: for the vector kernel LANES channels and TILE_W output pixels of a row a work-item, and
// IS_ALIGNED, 1 where its vectors lie at multiples of their size.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "float.clh"
#include "hybrid.clh"

#if USES_DEPTHWISE_CONV_2D_HYBRID
// output[n,y,x,o] = bias[o] + the scales of picture n and channel o times the sum over the
// in-bounds window of input[..,o / depth_multiplier] * weights[ky,kx,o], clamped. The input is what
// quantize_row.cl makes of pictures, less their zero points   NHWC, 1HWO
// Source: integer_ops/depthwise_conv.h DepthwiseConvHybridPerChannel
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(depthwise_conv_2d_hybrid) {
  global const short* input = (global const short*)(arena + INPUT);
  global const char* weights = (global const char*)(constants + WEIGHTS);
  global const float* channel = (global const float*)(constants + CHANNELS);
  int out_c = OUT_C;
  FLOAT_BOUNDS(float);
  EACH_ITEM_OR_NONE (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    int sum = 0;
    EACH_TAP_INSIDE (ky, kx) {
      int source = input[((n * IN_H + in_y) * IN_W + in_x) * IN_C + o / DEPTH_MULTIPLIER];
      sum += source * (int)weights[(ky * KERNEL_W + kx) * out_c + o];
    }
    float scale = ((global const float*)(arena + ROW_SCALES))[n];
    ((global float*)(arena + OUTPUT))[element] =
        HYBRID_RESULT((float)sum, scale, channel[o], channel[out_c + o], low, high);
  }
}

KERNEL(depthwise_conv_2d_hybrid)
#endif

#if USES_DEPTHWISE_CONV_2D_VECTOR_HYBRID
#define INTS JOIN(int, LANES)
#define FLOATS JOIN(float, LANES)
#if IS_ALIGNED
#define LOAD_SHORTS(from) (*(global const JOIN(short, LANES)*)(from))
#else
#define LOAD_SHORTS(from) JOIN(vload, LANES)(0, from)
#endif
#include "short_windows.clh"

// The same for a depth multiplier of 1, LANES channels and TILE_W neighbouring pixels at a time. A
// pixel out of bounds reads zeros kept among the constants. The last block of pixels or channels
// overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks of LANES channels x TILE_W pixels, channels first; tiles:
// ceil(blocks / TILE_ITEMS)
TILE(depthwise_conv_2d_vector_hybrid) {
  int out_c = OUT_C;
  FLOAT_BOUNDS(FLOATS);
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    LOCATE_BLOCK(item, out_c);
    global const float* channel = (global const float*)(constants + CHANNELS) + c;
    INTS sum[TILE_W];
    LOCAL(sum_windows)(arena, constants, params, c, n, y, x, out_c, sum);
    FLOATS picture = ((global const float*)(arena + ROW_SCALES))[n];
    FLOATS scale = LOAD_FLOATS(0, channel);
    FLOATS bias = LOAD_FLOATS(0, channel + out_c);
    UNROLLED (p, TILE_W) {
      FLOATS value = JOIN(convert_float, LANES)(sum[p]);
      FLOATS result = HYBRID_RESULT(value, picture, scale, bias, low, high);
      STORE_FLOATS(result, 0,
                   (global float*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x + p) * out_c + c);
    }
  }
}

KERNEL(depthwise_conv_2d_vector_hybrid)
#endif
