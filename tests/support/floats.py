# SPDX-License-Identifier: Apache-2.0
"""Float ops: results in float64, and bounds of the rounding error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import reject
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.format.reader import read_model
from delegate.inspect import Node, sum_bound
from tests.support.cases import RUN, Strategy, forced, strategy_on
from tests.support.compare import Arrays, Bounds, assert_within, interpreter
from tests.support.model import chain_model

Doubles = NDArray[np.float64]
LIMITS = {
    "NONE": (-np.inf, np.inf),
    "RELU": (0.0, np.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


def exact_doubles(node: Node, source: NDArray[Any]) -> tuple[Doubles, Doubles]:
    """Return a float node's result in float64, and the bound of a float32 result's error.

    For CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, AVERAGE_POOL_2D and MAX_POOL_2D.
    """
    low, high = LIMITS[node.options.get("fused_activation_function", "NONE")]
    values, magnitudes, terms = _sums(node, source.astype(np.float64))
    return np.clip(values, low, high), sum_bound(magnitudes, terms)


def _sums(node: Node, source: Doubles) -> tuple[Doubles, Doubles, int]:
    constants = [tensor.data for tensor in node.inputs[1:] if tensor is not None]
    if node.op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        taps, inside = _windows(node, source, node.options["filter_height"], "filter_width")
        if node.op == "MAX_POOL_2D":
            values = np.where(inside, taps, -np.inf).max(3)
            return values, np.zeros_like(values), 0  # a maximum is exact
        count = inside.sum(3)
        return taps.sum(3) / count, np.abs(taps).sum(3) / count, taps.shape[3]
    weights = np.asarray(constants[0], np.float64)
    bias = np.asarray(constants[1], np.float64) if len(constants) > 1 else np.zeros(1)
    if node.op == "FULLY_CONNECTED":
        rows = source.reshape(-1, weights.shape[1])
        shape = node.outputs[0].shape
        return (
            (rows @ weights.T + bias).reshape(shape),
            (np.abs(rows) @ np.abs(weights).T + np.abs(bias)).reshape(shape),
            weights.shape[1] + 1,
        )
    taps, _ = _windows(node, source, weights.shape[1], weights.shape[2])
    if node.op == "CONV_2D":
        kernel, how = weights.reshape(len(weights), -1, weights.shape[3]), "nhwtc,otc->nhwo"
        terms = kernel[0].size + 1
    else:
        kernel, how = weights.reshape(-1, weights.shape[3]), "nhwtc,tc->nhwc"
        taps = np.repeat(taps, weights.shape[3] // source.shape[3], 4)
        terms = len(kernel) + 1
    values = np.einsum(how, taps, kernel, optimize=True) + bias
    magnitudes = np.einsum(how, np.abs(taps), np.abs(kernel), optimize=True) + np.abs(bias)
    return values, magnitudes, terms


def _windows(
    node: Node, source: Doubles, kernel_h: int, kernel_w: int | str
) -> tuple[Doubles, NDArray[np.bool_]]:
    """Return each output pixel's taps (n, oh, ow, taps, c), and which are in bounds."""
    options = node.options
    width = options[kernel_w] if isinstance(kernel_w, str) else kernel_w
    rows, row_inside = _places(node, 1, kernel_h, options["stride_h"], "dilation_h_factor")
    columns, column_inside = _places(node, 2, width, options["stride_w"], "dilation_w_factor")
    inside = row_inside[:, None, :, None] & column_inside[None, :, None, :]
    taps = source[:, rows[:, None, :, None], columns[None, :, None, :]]
    taps = np.where(inside[None, ..., None], taps, 0)
    n, oh, ow, kh, kw, c = taps.shape
    shape = (1, oh, ow, kh * kw, 1)
    return taps.reshape(n, oh, ow, kh * kw, c), np.broadcast_to(
        inside.reshape(shape), (n, oh, ow, kh * kw, c)
    )


def _places(
    node: Node, axis: int, kernel: int, stride: int, dilation_name: str
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the indices (outputs, taps) along an axis, and which of them are in bounds."""
    (source, *_), (result,) = node.inputs, node.outputs
    assert source is not None
    size, count = source.shape[axis], result.shape[axis]
    dilation = node.options.get(dilation_name, 1)
    extent = (kernel - 1) * dilation + 1
    before = max(0, (count - 1) * stride + extent - size) // 2
    before = before if node.options["padding"] == "SAME" else 0
    places = np.arange(count)[:, None] * stride - before + np.arange(kernel) * dilation
    inside = (places >= 0) & (places < size)
    return np.where(inside, places, 0), inside


def assert_float_strategies(
    node: Node,
    device: DeviceInfo,
    strategy: Strategy,
    bounds: Callable[[Arrays], Bounds] | None = None,
) -> list[str]:
    """Assert that each alternative of a node is within its bound; return their names.

    A strategy that names an alternative has only that one. `bounds`: as in `assert_within`, for
    ops that `exact_doubles` does not cover.
    """
    model = chain_model([node])
    names = [alternative.name for alternative in ops.lower(node, strategy.target)]
    if strategy.alternative:
        names = [name for name in names if strategy.alternative in (name, name.split()[0])]
    for name in names:
        with forced(replace(strategy, alternative=name)) as taken:
            assert_within(
                model, device, bounds or (lambda inputs: [exact_doubles(node, inputs[0])[1]])
            )
        assert set(taken) == {name}
    RUN.update(node.op for node in read_model(model).nodes)
    return names


def assert_float_or_refused(
    node: Node,
    device: DeviceInfo,
    strategy: Strategy,
    bounds: Callable[[Arrays], Bounds] | None = None,
) -> None:
    """Assert the same for a drawn node; reject one that TFLite itself does not run."""
    try:
        interpreter(chain_model([node]))
    except (RuntimeError, ValueError):
        reject()
    assert_float_strategies(node, device, strategy_on(device, strategy), bounds)


def kinds(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the class of each value: NaN, infinite, nearly the largest float, or any other."""
    most = 0.999 * float(np.finfo(np.float32).max)
    classes = [np.isnan(values), values == np.inf, values == -np.inf]
    return np.select([*classes, values >= most, values <= -most], [1, 2, 3, 4, 5], 0)
