// SPDX-License-Identifier: Apache-2.0
// Macros: ROUNDING, see wide.clh; for the vector kernel LANES channels and TILE_W output pixels of
// a row a work-item, and IS_ALIGNED, 1 where its vectors lie at multiples of their size.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "nhwc.clh"
#include "quantize.clh"
#include "quantize_wide.clh"
#include "store.clh"
#include "wide.clh"

#if USES_DEPTHWISE_CONV_2D_QUANT16
// output[n,y,x,o] = sum over the in-bounds window of input[..,o / depth_multiplier] *
// weights[ky,kx,o], plus bias, requantised and clamped   NHWC, 1HWO; int16, int8
// Source: integer_ops/depthwise_conv.h DepthwiseConvPerChannel, the int16 overload
// tile: TILE_ITEMS output elements, one a work-item; tiles: ceil(n*out_h*out_w*out_c / TILE_ITEMS)
TILE(depthwise_conv_2d_quant16) {
  global const short* input = (global const short*)(arena + INPUT);
  global const char* weights = (global const char*)(constants + WEIGHTS);
  global const int* channel = (global const int*)(constants + CHANNELS);
  global short* output = (global short*)(arena + OUTPUT);
  int out_c = OUT_C;
  EACH_ITEM (element, tile, ELEMENTS) {
    LOCATE_OUTPUT(element);
    uint low = as_uint(channel[o]);
    int high = channel[out_c + o];
    EACH_TAP_INSIDE (ky, kx) {
      int source = input[((n * IN_H + in_y) * IN_W + in_x) * IN_C + o / DEPTH_MULTIPLIER];
      int part = source * weights[(ky * KERNEL_W + kx) * out_c + o];
      LOCAL(add_part)(&high, &low, &part);
    }
    global const int* scaling = channel + 2 * out_c + o;
    int result = LOCAL(requantize_sum)(high, low, scaling[0], scaling[out_c], scaling[2 * out_c]);
    output[element] = (short)clamp(result, OUTPUT_MIN, OUTPUT_MAX);
  }
}

KERNEL(depthwise_conv_2d_quant16)
#endif

#if USES_DEPTHWISE_CONV_2D_VECTOR_QUANT16
#define SHORTS JOIN(short, LANES)
#if IS_ALIGNED
#define LOAD_INTS(from) (*(global const WIDE_INTS*)(from))
#define LOAD_SHORTS(from) (*(global const SHORTS*)(from))
#define STORE_SHORTS(results, to) (*(global SHORTS*)(to) = (results))
#else
#define LOAD_INTS(from) JOIN(vload, LANES)(0, from)
#define LOAD_SHORTS(from) JOIN(vload, LANES)(0, from)
#define STORE_SHORTS(results, to) STORE(SHORTS, results, to)
#endif
#include "short_windows.clh"
#define TO_SHORTS JOIN(convert_short, LANES)
DEFINE_STORE(SHORTS)

// The same for a depth multiplier of 1 and windows whose sums fit 32 bits, LANES channels and
// TILE_W neighbouring pixels at a time. A pixel out of bounds reads zeros kept among the constants.
// The last block of pixels or channels overlaps the one before it and writes the same values again.
// tile: TILE_ITEMS blocks of LANES channels x TILE_W pixels, channels first; tiles:
// ceil(blocks / TILE_ITEMS)
TILE(depthwise_conv_2d_vector_quant16) {
  int out_c = OUT_C;
  EACH_ITEM (item, tile, ITEMS) {
    LOCATE_BLOCK(item, out_c);
    global const int* channel = (global const int*)(constants + CHANNELS) + c;
    WIDE_INTS sum[TILE_W];
    LOCAL(sum_windows)(arena, constants, params, c, n, y, x, out_c, sum);
    WIDE_INTS a = LOAD_INTS(channel + 2 * out_c);
    WIDE_INTS b = LOAD_INTS(channel + 3 * out_c);
    WIDE_INTS last = LOAD_INTS(channel + 4 * out_c);
    WIDE_INTS least = OUTPUT_MIN;
    WIDE_INTS most = OUTPUT_MAX;
    UNROLLED (p, TILE_W) {
      WIDE_UINTS low = JOIN(as_uint, LANES)(LOAD_INTS(channel));
      WIDE_INTS high = LOAD_INTS(channel + out_c);
      LOCAL(add_part)(&high, &low, &sum[p]);
      WIDE_INTS result = LOCAL(requantize_sum)(high, low, a, b, last);
      global short* output =
          (global short*)(arena + OUTPUT) + ((n * OUT_H + y) * OUT_W + x + p) * out_c + c;
      STORE_SHORTS(TO_SHORTS(clamp(result, least, most)), output);
    }
  }
}

KERNEL(depthwise_conv_2d_vector_quant16)
#endif
