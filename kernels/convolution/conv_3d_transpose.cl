// SPDX-License-Identifier: Apache-2.0
// Macros: LANES output channels, 1 in the plain kernel, and TILE_W pixels a work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "conv_3d.clh"
#include "taps.clh"

// output[n,d,y,x,o] = bias[o] + the sum of input[n,d',y',x',i] * weights[kd,ky,kx,i,o] where
// d' * stride - pad + kd * dilation = d, and y and x alike, clamped; an item's pixels lie a stride
// apart, so that each meets the same taps with neighbouring input pixels   NDHWC; the weights of
// the file, DHWOI, were turned
// Source: reference/conv3d_transpose.h
// tile: TILE_ITEMS blocks of TILE_W pixels of a row x LANES channels; tiles: ceil(ITEMS /
// TILE_ITEMS)
TILE(conv_3d_transpose_float) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    CHANNELS_AND_PIXELS(item);
    int phase = pixels / ROW_BLOCKS % PHASES;
    int row = pixels / ROW_BLOCKS / PHASES;
    int columns = (OUT_W - phase + STRIDE_W - 1) / STRIDE_W;
    int x = phase + min(pixels % ROW_BLOCKS * TILE_W, columns - TILE_W) * STRIDE_W;
    int y = row % OUT_H + PAD_TOP;
    int d = row / OUT_H % OUT_D + PAD_FRONT;
    int n = row / OUT_H / OUT_D;
    for (int kd = 0; kd < KERNEL_D; kd++) {
      int from_d = d - TAP(kd, KERNEL_D) * DILATION_D;
      int in_d = from_d / STRIDE_D;
      if (from_d < 0 || in_d * STRIDE_D != from_d || in_d >= IN_D) continue;
      for (int ky = 0; ky < KERNEL_H; ky++) {
        int from_y = y - TAP(ky, KERNEL_H) * DILATION_H;
        int in_y = from_y / STRIDE_H;
        if (from_y < 0 || in_y * STRIDE_H != from_y || in_y >= IN_H) continue;
        for (int kx = 0; kx < KERNEL_W; kx++) {
          int from_x = x + PAD_LEFT - TAP(kx, KERNEL_W) * DILATION_W;
          int in_x = from_x / STRIDE_W;
          if (in_x * STRIDE_W != from_x) continue;
          int row_of_taps = TAP(kd, KERNEL_D) * KERNEL_H + TAP(ky, KERNEL_H);
          ADD_TAP(row_of_taps * KERNEL_W + TAP(kx, KERNEL_W), in_x, 1)
        }
      }
    }
    WRITE_PIXELS(row * OUT_W + x, STRIDE_W)
  }
}

KERNEL(conv_3d_transpose_float)
