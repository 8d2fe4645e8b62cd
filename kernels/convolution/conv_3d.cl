// SPDX-License-Identifier: Apache-2.0
// Macros: LANES output channels, 1 in the plain kernel, and TILE_W pixels a work-item.
#pragma OPENCL FP_CONTRACT OFF
#include "kernel.clh"
#include "float.clh"
#include "conv_3d.clh"

// output[n,d,y,x,o] = bias[o] + the sum over the in-bounds window of input[n,d',y',x',i] *
// weights[kd,ky,kx,i,o], clamped   NDHWC, DHWIO
// Source: reference/conv3d.h
// tile: TILE_ITEMS blocks of TILE_W pixels of a row x LANES channels; tiles: ceil(ITEMS /
// TILE_ITEMS)
TILE(conv_3d_float) {
  EACH_ITEM_OR_NONE (item, tile, ITEMS) {
    CHANNELS_AND_PIXELS(item);
    int row = pixels / ROW_BLOCKS;
    int x = min(pixels % ROW_BLOCKS * TILE_W, OUT_W - TILE_W);
    int y = row % OUT_H * STRIDE_H - PAD_TOP;
    int d = row / OUT_H % OUT_D * STRIDE_D - PAD_FRONT;
    int n = row / OUT_H / OUT_D;
    for (int kd = 0; kd < KERNEL_D; kd++) {
      int in_d = d + kd * DILATION_D;
      if (in_d < 0 || in_d >= IN_D) continue;
      for (int ky = 0; ky < KERNEL_H; ky++) {
        int in_y = y + ky * DILATION_H;
        if (in_y < 0 || in_y >= IN_H) continue;
        for (int kx = 0; kx < KERNEL_W; kx++)
          ADD_TAP((kd * KERNEL_H + ky) * KERNEL_W + kx, x * STRIDE_W - PAD_LEFT + kx * DILATION_W,
                  STRIDE_W)
      }
    }
    WRITE_PIXELS(row * OUT_W + x, 1)
  }
}

KERNEL(conv_3d_float)
