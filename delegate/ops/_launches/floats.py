# SPDX-License-Identifier: Apache-2.0
"""What ops on float32 share: types, biases, the bounds of a fused activation. Lowers nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant
from delegate.target import Target

# TFLite's bounds where there is no activation: an infinite sum becomes the largest float.
_LARGEST = float(np.finfo(np.float32).max)
_BOUNDS = {
    "NONE": (-_LARGEST, _LARGEST),
    "RELU": (0.0, _LARGEST),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


def require_float_weights(weights: Tensor) -> None:
    """Check the weights of a node whose input and output are float32.

    Raises:
        Unsupported: weights of another type.
    """
    if weights.dtype != "float32":
        raise Unsupported(f"hybrid: {weights.dtype} weights with float32 activations")


def float_bias(bias: Tensor | None, channels: int) -> Constant:
    """Return the bias as `channels` floats; zeros where there is none.

    Raises:
        Unsupported: a bias that is computed, of another type or length.
    """
    if bias is None:
        return Constant(4 * channels, lambda: np.zeros(channels, np.float32))
    values = bias.data
    if values is None:
        raise Unsupported("the bias is not a constant")
    if bias.dtype != "float32" or bias.shape != (channels,):
        raise Unsupported(f"bias {bias.dtype} of {bias.shape}: float32 of ({channels},) is needed")
    return Constant(4 * channels, lambda: values)


def activation_params(activation: object) -> dict[str, int]:
    """Return the fields for a fused activation's bounds, as the bits of floats.

    Raises:
        Unsupported: an activation that is no clamp.
    Source: tflite/kernels/kernel_util.h CalculateActivationRange
    """
    if activation not in _BOUNDS:
        known = ", ".join(_BOUNDS)
        raise Unsupported(f"fused activation {activation}: only {known}")
    low, high = _BOUNDS[str(activation)]
    return {"output_min": bits(low), "output_max": bits(high)}


def bits(value: float) -> int:
    """Return the bits of a float32, as an int32."""
    return int(np.float32(value).view(np.int32))


def zeros(count: int) -> Constant:
    """Return `count` floats of zero, and room for one vector more."""
    return Constant(4 * (count + 16), lambda: np.zeros(count + 16, np.float32))


def lanes_of(channels: int, target: Target, most: int = 16) -> int:
    """Return the widest vector that the device has and the channels fill; 0 for none."""
    widest = 4 if target.group_items > 1 else min(target.vector_width, most)
    return max((lanes for lanes in (16, 8, 4) if lanes <= min(widest, channels)), default=0)


def tile_w_of(pixels: int, most: int) -> int:
    """Return how many neighbouring pixels a work-item takes: those that waste least."""
    sizes = [size for size in (16, 14, 8, 7, 4, 2, 1) if size <= min(most, pixels)]
    # An item costs its pixels, and about two more for what does not depend on their number.
    return min(sizes, key=lambda size: -(-pixels // size) * (size + 2))


def tile_items(items: int, item_work: int, target: Target) -> int:
    """Return how many items a work-group takes.

    A group of one work-item is to be long beside what starting it costs; several a core, and as
    many for each, share the work well.
    Units:
        item_work: multiplications of vectors
    """
    if target.group_items > 1:
        return target.group_items
    wanted = items * item_work // (_TILE_WORK * target.compute_units)
    tiles = min(max(wanted, _LEAST_TILES), _MOST_TILES) * target.compute_units
    return max(1, -(-items // tiles))


_TILE_WORK = 4096  # about 1 us of a core that starts one such multiplication a cycle
_LEAST_TILES, _MOST_TILES = 4, 32  # of a core


def packed(values: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """Return (out_c, taps, in_c) weights in the order a block of channels reads them.

    Shapes:
        -> (blocks, taps, in_c, block); the last block ends with the last channel
    """
    out_c = values.shape[0]
    starts = np.minimum(np.arange(-(-out_c // block)) * block, out_c - block)
    rows = values[starts[:, None] + np.arange(block)]
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1))
