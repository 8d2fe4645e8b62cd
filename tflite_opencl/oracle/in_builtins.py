# SPDX-License-Identifier: Apache-2.0
"""Rewrites graphs to equivalent ones that consist of ops with TFLite kernels.

TFLite's packages lack MediaPipe's ops and 3D pooling, and its own kernels lack float16: there
the oracle is the same node in float32, with results rounded to half precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from delegate.inspect import (
    MAX_POOL_3D,
    MAX_POOLING,
    MAX_UNPOOLING,
    POOLS_3D,
    TRANSPOSE_CONV_BIAS,
    Graph,
    Node,
    Tensor,
    as_transpose_conv,
    pool_3d_of,
    pooling_of,
    widened,
    write_model,
)
from tflite_opencl.models.build import Array, node

_LEAST = np.finfo(np.float32).min


def in_builtins(graph: Graph) -> Graph:
    """Return the graph with unsupported nodes replaced by nodes that TFLite's kernels run.

    Tensors keep their indices. Malformed nodes are kept, and so are models of several graphs: the
    runtime rejects them.
    """
    if graph.subgraphs > 1 or not any(map(_way_of, graph.nodes)):
        return graph
    made = _Made([*graph.tensors])
    for each in graph.nodes:
        way = _way_of(each)
        if way is None:
            made.nodes.append(each)
            continue
        before = len(made.tensors), len(made.nodes)
        try:
            way(made, each)
        except ValueError:
            del made.tensors[before[0] :], made.nodes[before[1] :]
            made.nodes.append(each)
    return replace(graph, tensors=tuple(made.tensors), nodes=tuple(made.nodes))


def replaced_nodes(graph: Graph) -> str:
    """Describe which nodes `in_builtins` replaces, and how; "": none."""
    if in_builtins(graph) is graph:
        return ""
    ways = {True: "in float32, rounded to the nearest half", False: "as nodes that TFLite has"}
    found: dict[bool, list[str]] = {}
    for each in filter(_way_of, graph.nodes):
        found.setdefault(widened(each) is not None, []).append(each.op)
    return "; ".join(
        f"{', '.join(dict.fromkeys(ops))} {ways[is_float16]}" for is_float16, ops in found.items()
    )


def model_in_builtins(graph: Graph, model: bytes | str) -> bytes | str:
    """Return the model of `in_builtins`; `model`: the original, returned if nothing changes."""
    own = in_builtins(graph)
    return model if own is graph else write_model(own)


@dataclass(slots=True)
class _Made:
    """A graph under construction."""

    tensors: list[Tensor]
    nodes: list[Node] = field(default_factory=list)

    def tensor(self, shape: Sequence[int], dtype: str, data: Array | None = None) -> Tensor:
        index = len(self.tensors)
        self.tensors.append(Tensor(index, f"made {index}", tuple(shape), dtype, data=data))
        return self.tensors[-1]

    def like(self, of: Tensor, shape: Sequence[int]) -> Tensor:
        """Return a tensor of the same type and quantisation."""
        made = self.tensor(shape, of.dtype)
        self.tensors[-1] = replace(made, quantization=of.quantization)
        return self.tensors[-1]

    def constant(self, values: Any, dtype: str = "int32") -> Tensor:
        data = np.asarray(values, dtype)
        return self.tensor(data.shape, dtype, data)

    def add(
        self, op: str, inputs: Sequence[Tensor], into: Tensor | Sequence[int], **options: Any
    ) -> Tensor:
        """Add a node; `into`: its output, or the output's shape, with the first input's type."""
        dtype = options.pop("dtype", inputs[0].dtype)
        output = into if isinstance(into, Tensor) else self.tensor(into, dtype)
        self.nodes.append(node(op, inputs, [output], options))
        return output

    def reshaped(self, x: Tensor, into: Tensor | Sequence[int]) -> Tensor:
        shape = into.shape if isinstance(into, Tensor) else tuple(into)
        return self.add("RESHAPE", [x, self.constant(shape)], into, new_shape=shape)


def _transpose_conv(made: _Made, of: Node) -> None:
    builtin = as_transpose_conv(of)
    assert builtin.inputs[0] is not None
    shape = replace(builtin.inputs[0], index=len(made.tensors))
    made.tensors.append(shape)
    made.nodes.append(replace(builtin, inputs=(shape, *builtin.inputs[1:])))


def _max_pooling(made: _Made, of: Node) -> None:
    """Gather each window's values, with the lowest float out of bounds, and take the first
    maximum.
    """
    (source,), (result, places), options = of.inputs, of.outputs, pooling_of(of)
    assert source is not None
    (batch, height, width, depth), (_, rows, columns, _) = source.shape, result.shape
    taps = options["filter_height"], options["filter_width"]
    both = zip((height, width), (rows, columns), taps, "hw", strict=True)
    inside = []
    for size, count, tap, axis in both:
        stride = options[f"stride_{axis}"]
        cut = max(0, (count - 1) * stride + tap - size) // 2
        inside.append(np.arange(count)[:, None] * stride - cut + np.arange(tap))
    ys, xs = inside[0][:, None, :, None], inside[1][None, :, None, :]
    is_out = (ys < 0) | (ys >= height) | (xs < 0) | (xs >= width)
    from_where = np.where(is_out, height * width, ys * width + xs)
    flat = made.reshaped(source, (batch, height * width, depth))
    least = made.constant(np.full((batch, 1, depth), _LEAST), "float32")
    plain = {"fused_activation_function": "NONE"}
    sizes = batch, height * width + 1, depth
    flat = made.add("CONCATENATION", [flat, least], sizes, axis=1, **plain)
    count, window = batch * rows * columns, taps[0] * taps[1]
    picked = (batch, rows * columns * window, depth)
    x = made.add("GATHER", [flat, made.constant(from_where.reshape(-1))], picked, axis=1)
    x = made.reshaped(x, (count, window, depth))
    axis_of = made.constant(1)
    most = made.add("REDUCE_MAX", [x, made.constant([1])], (count, depth), keep_dims=False)
    if options["fused_activation_function"] != "NONE":
        most = made.add(options["fused_activation_function"], [most], (count, depth))
    made.reshaped(most, result)
    place = made.add("ARG_MAX", [x, axis_of], (count, depth), dtype="int32", output_type="int32")
    place = made.add("CAST", [place], (count, depth), dtype="float32")
    place = made.add("ADD", [place, made.constant(0.1, "float32")], (count, depth), **plain)
    made.reshaped(place, places)


def _max_unpooling(made: _Made, of: Node) -> None:
    """Compare each position with all of a window; then interleave the windows' rows."""
    (source, places), (result,), options = of.inputs, of.outputs, pooling_of(of)
    assert source is not None
    assert places is not None
    batch, rows, columns, depth = source.shape
    high, wide = options["filter_height"], options["filter_width"]
    count, window = batch * rows * columns, high * wide
    values, place = (made.reshaped(each, (count, 1, depth)) for each in (source, places))
    place = made.add("CAST", [place], place.shape, dtype="int32")
    taps = made.constant(np.arange(window).reshape(1, window, 1))
    whole = (count, window, depth)
    is_there = made.add("EQUAL", [place, taps], whole, dtype="bool")
    zero = made.constant(np.zeros((1, 1, 1)), "float32")
    x = made.add("SELECT_V2", [is_there, values, zero], whole, dtype="float32")
    x = made.reshaped(x, (batch * rows, columns, high, wide, depth))
    turned = (batch * rows, high, columns, wide, depth)
    x = made.add("TRANSPOSE", [x, made.constant([0, 2, 1, 3, 4])], turned)
    made.reshaped(x, result)


def _pool_3d(made: _Made, of: Node) -> None:
    """Pool over each slice, then over the depth; averages of integers are rounded at the end."""
    (source,), (result,), options = of.inputs, of.outputs, pool_3d_of(of)
    assert source is not None
    if of.op != MAX_POOL_3D and source.dtype != "float32":
        _average_of_integers(made, source, result, options)
        return
    (n, d, h, w, c), (_, od, oh, ow, _) = source.shape, result.shape
    op = "MAX_POOL_2D" if of.op == MAX_POOL_3D else "AVERAGE_POOL_2D"
    plain = {"padding": options["padding"], "fused_activation_function": "NONE"}
    x = made.reshaped(source, made.like(source, (n * d, h, w, c)))
    x = made.add(
        op, [x], made.like(source, (n * d, oh, ow, c)), **plain,
        filter_height=options["filter_h"], filter_width=options["filter_w"],
        stride_h=options["stride_h"], stride_w=options["stride_w"],
    )  # fmt: skip
    x = made.reshaped(x, made.like(source, (n, d, oh * ow, c)))
    x = made.add(
        op, [x], made.like(source, (n, od, oh * ow, c)), **plain,
        filter_height=options["filter_d"], filter_width=1,
        stride_h=options["stride_d"], stride_w=1,
    )  # fmt: skip
    made.reshaped(x, result)


def _average_of_integers(
    made: _Made, source: Tensor, result: Tensor, options: dict[str, Any]
) -> None:
    """Gather each window's values as int32, zeros out of bounds; sum and divide."""
    (n, *sizes, c), places = source.shape, result.shape[1:4]
    at, inside = np.zeros(1, np.int64), np.ones(1, bool)
    for size, count, axis in zip(sizes, places, "dhw", strict=True):
        stride, taps = options[f"stride_{axis}"], options[f"filter_{axis}"]
        is_same = options["padding"] == "SAME"
        cut = max(0, (count - 1) * stride + taps - size) // 2 if is_same else 0
        own = np.arange(count)[:, None] * stride - cut + np.arange(taps)
        at = at[..., None, None] * size + own
        inside = inside[..., None, None] & (own >= 0) & (own < size)
    # (1, od, kd, oh, kh, ow, kw) -> (pixels, taps)
    pixels = math.prod(places)
    at, inside = (each[0].transpose(0, 2, 4, 1, 3, 5).reshape(pixels, -1) for each in (at, inside))
    whole, window = math.prod(sizes), at.shape[1]
    x = made.reshaped(source, made.like(source, (n, whole, c)))
    x = made.add("CAST", [x], x.shape, dtype="int32")
    plain = {"fused_activation_function": "NONE"}
    zeros = made.constant(np.zeros((n, 1, c)))
    x = made.add("CONCATENATION", [x, zeros], (n, whole + 1, c), axis=1, **plain)
    from_where = made.constant(np.where(inside, at, whole).reshape(-1))
    x = made.add("GATHER", [x, from_where], (n, pixels * window, c), axis=1)
    x = made.reshaped(x, (n * pixels, window, c))
    x = made.add("SUM", [x, made.constant([1])], (n * pixels, c), keep_dims=False)
    counts = np.tile(inside.sum(1), n)[:, None]
    half, zero = made.constant(counts // 2), made.constant([0])
    is_above = made.add("GREATER", [x, zero], x.shape, dtype="bool")
    more, less = (made.add(op, [x, half], x.shape, **plain) for op in ("ADD", "SUB"))
    x = made.add("SELECT_V2", [is_above, more, less], x.shape, dtype="int32")
    x = made.add("DIV", [x, made.constant(counts)], x.shape, **plain)
    made.reshaped(made.add("CAST", [x], made.like(result, x.shape)), result)


def _on_float32(made: _Made, of: Node) -> None:
    """Insert CASTs before and after the node in float32; constants need none."""
    node_of_floats = widened(of)
    assert node_of_floats is not None
    own: dict[Tensor, Tensor] = {}

    def own_of(tensor: Tensor, wide: Tensor) -> Tensor:
        if tensor is wide:
            return tensor
        if tensor not in own:
            own[tensor] = made.tensor(wide.shape, wide.dtype, wide.data)
            if tensor.data is None and tensor not in of.outputs:
                made.add("CAST", [tensor], own[tensor])
        return own[tensor]

    pairs = zip(of.inputs, node_of_floats.inputs, strict=True)
    inputs = tuple(None if t is None or w is None else own_of(t, w) for t, w in pairs)
    outputs = tuple(map(own_of, of.outputs, node_of_floats.outputs))
    made.nodes.append(replace(of, inputs=inputs, outputs=outputs))
    for tensor, wide in zip(of.outputs, outputs, strict=True):
        if tensor is not wide:
            made.add("CAST", [wide], tensor)


def _way_of(node: Node) -> Callable[[_Made, Node], None] | None:
    if widened(node) is not None:
        return _on_float32
    return _WAYS.get(node.op) if node.is_custom else None


_WAYS: dict[str, Callable[[_Made, Node], None]] = {
    TRANSPOSE_CONV_BIAS: _transpose_conv,
    MAX_POOLING: _max_pooling,
    MAX_UNPOOLING: _max_unpooling,
    **dict.fromkeys(POOLS_3D, _pool_3d),
}
