# SPDX-License-Identifier: Apache-2.0
"""Weights and biases of float32 convolutions: checked, and packed as their kernels read them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant
from delegate.ops._numbers.integers import ceil_div


def require_float_weights(weights: Tensor) -> None:
    """Check the weights of a node whose input and output are float32.

    Raises:
        Unsupported: weights of another type, or not finite: kernels multiply them by zeros where a
            window leaves the input, which TFLite skips, and where vectors are filled up.
    """
    if weights.dtype != "float32":
        raise Unsupported(f"hybrid: {weights.dtype} weights with float32 activations")
    if weights.data is not None and not np.isfinite(weights.data).all():
        raise Unsupported("a weight is not finite: times a padding zero it is not zero")


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


def zeros(count: int) -> Constant:
    """Return `count` floats of zero, and room for one vector more."""
    return Constant(4 * (count + 16), lambda: np.zeros(count + 16, np.float32))


def packed(values: NDArray[np.float32], lanes: int, vectors: int = 1) -> NDArray[np.float32]:
    """Return (out_c, taps, in_c) weights in the order a block of channels reads them.

    Shapes:
        -> (blocks, taps, in_c, vectors * lanes); vectors that would pass the last channel end
        with it
    """
    out_c, taps, in_c = values.shape
    blocks = ceil_div(out_c, lanes * vectors)
    starts = np.minimum(np.arange(blocks * vectors) * lanes, out_c - lanes)
    rows = values[starts[:, None] + np.arange(lanes)].reshape(blocks, -1, taps, in_c)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1))
