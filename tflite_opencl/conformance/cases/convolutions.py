# SPDX-License-Identifier: Apache-2.0
"""Ops with weights: tile edges, kernels, strides, zero points, multipliers, storage formats."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._convolution import KINDS, ConvCase, fully_connected
from tflite_opencl.models.build import (
    FUSED,
    Array,
    Case,
    case,
    constant,
    graph,
    node,
    seeded,
    sizes,
    tensor,
)

_BOTH = ("SAME", "VALID")
_depthwise = partial(ConvCase, op="DEPTHWISE_CONV_2D")
_transposed = partial(ConvCase, op="TRANSPOSE_CONV")
# h, w, c -> out_c: odd primes, powers of two and their neighbours, a single pixel or channel.
SHAPES = (
    ((7, 5, 3), 8), ((8, 8, 8), 16), ((9, 7, 17), 15), ((5, 13, 4), 33), ((6, 16, 16), 1),
    ((11, 6, 1), 31), ((5, 5, 32), 64),
)  # fmt: skip
_KERNELS = ((1, 1), (3, 3), (5, 5), (1, 3), (3, 1), (2, 2))


def cases(convolutions: Callable[[str], Iterator[ConvCase]]) -> Iterator[Case]:
    """Yield the cases of one of the functions below, which return the convolutions of a type."""
    for kind in KINDS:
        for each in convolutions(kind):
            if each.fits:
                yield case(each.op.lower(), kind, str(each), each.graph, kind)


def conv_2d(kind: str) -> Iterator[ConvCase]:
    """Yield CONV_2Ds: also dilation and groups."""
    for (size, out_c), kernel, stride, padding in itertools.product(
        SHAPES, _KERNELS, ((1, 1), (2, 2)), _BOTH
    ):
        yield ConvCase(size=size, out_c=out_c, kernel=kernel, stride=stride, padding=padding)
    yield from _edges(ConvCase(size=(7, 6, 5)))
    yield from _edges(ConvCase(size=(6, 4, 16), kernel=(1, 1), out_c=24))
    yield from _zero_points(ConvCase(size=(6, 7, 3)), kind)
    yield from _zero_points(ConvCase(size=(4, 7, 9), kernel=(1, 1)), kind)
    for dilation, padding in itertools.product(((2, 2), (1, 3), (3, 2)), _BOTH):
        yield ConvCase(size=(9, 11, 4), dilation=dilation, padding=padding)
    for stride in ((1, 2), (2, 1), (3, 3), (4, 2)):
        yield ConvCase(size=(10, 9, 4), stride=stride)
    for size, out_c in (((1, 1, 1), 1), ((1, 1, 129), 7), ((1, 33, 3), 5), ((65, 1, 2), 3)):
        yield ConvCase(size=size, kernel=(1, 1), out_c=out_c)
        yield ConvCase(size=size, out_c=out_c)
    yield ConvCase(size=(4, 4, 6), kernel=(7, 7))  # a kernel larger than the picture
    if kind != "16x8":
        for groups in (2, 4):
            yield ConvCase(size=(5, 6, 8), out_c=12, groups=groups)


def depthwise_conv_2d(kind: str) -> Iterator[ConvCase]:
    """Yield DEPTHWISE_CONV_2Ds: also depth multipliers, and vector edges."""
    for size, kernel, stride, padding in itertools.product(
        ((7, 5, 3), (8, 8, 8), (5, 9, 17), (6, 7, 32), (4, 13, 1), (9, 4, 15)),
        ((3, 3), (5, 5), (1, 1), (3, 1)),
        ((1, 1), (2, 2)),
        _BOTH,
    ):
        yield _depthwise(size=size, kernel=kernel, stride=stride, padding=padding)
    for depth, size in itertools.product((2, 3, 8), ((5, 6, 1), (7, 5, 3), (4, 4, 9))):
        yield _depthwise(size=size, depth_multiplier=depth)
    yield from _edges(_depthwise(size=(7, 6, 8)))
    yield from _zero_points(_depthwise(size=(6, 5, 8)), kind)
    for dilation, padding in itertools.product(((2, 2), (3, 1)), _BOTH):
        yield _depthwise(size=(9, 11, 4), dilation=dilation, padding=padding)
    for size in ((1, 1, 1), (1, 1, 65), (1, 17, 4), (33, 1, 5)):
        yield _depthwise(size=size)
    yield _depthwise(size=(3, 3, 8), kernel=(7, 7))
    yield _depthwise(size=(7, 7, 33), kernel=(7, 7), padding="VALID")


def transpose_conv(kind: str) -> Iterator[ConvCase]:
    """Yield TRANSPOSE_CONVs: kernels smaller and larger than the stride."""
    for (size, out_c), kernel, stride, padding in itertools.product(
        (((4, 5, 3), 8), ((3, 3, 16), 5), ((1, 1, 7), 1)),
        ((3, 3), (2, 2), (4, 4)),
        ((1, 1), (2, 2), (3, 3)),
        _BOTH,
    ):
        if padding == "VALID" or stride[0] <= kernel[0]:
            yield _transposed(size=size, out_c=out_c, kernel=kernel, stride=stride, padding=padding)
    base = _transposed(size=(4, 3, 5), stride=(2, 2))
    yield from _zero_points(base, kind)
    for multiplier in (2.0**-18, 1 / 3, 1.0, 1.5):
        yield replace(base, multiplier=multiplier)
    for fused in ("RELU", "RELU6"):
        yield replace(base, fused=fused)
    for batch in (2, 3):
        yield _transposed(size=(3, 4, 5), stride=(2, 2), batch=batch)
    yield _transposed(size=(3, 4, 5), stride=(2, 2), has_bias=False)
    yield _transposed(size=(3, 4, 5), stride=(2, 1), kernel=(3, 2))


def _edges(base: ConvCase) -> Iterator[ConvCase]:
    """Yield variants of the base in a single parameter other than shape, kernel and stride."""
    for fused, padding in itertools.product(("RELU", "RELU6", "RELU_N1_TO_1"), _BOTH):
        yield replace(base, fused=fused, padding=padding)
    for batch in (2, 3, 5):
        yield replace(base, batch=batch)
    for multiplier in (2.0**-20, 2.0**-14, 1e-4, 1 / 3, 0.75, 0.999, 1.0, 1.25, 4):
        yield replace(base, multiplier=multiplier)
    if base.op != "CONV_2D":  # CONV_2D requires one
        yield replace(base, has_bias=False)
    yield replace(base, batch=2, stride=(2, 2), fused="RELU6")


def _zero_points(base: ConvCase, kind: str) -> Iterator[ConvCase]:
    """Yield the base with zero points at the limits of the range.

    CONV_2D rejects them for int8 weights, and the other two ignore them.
    """
    if kind in ("uint8", "int8", "int8-per-channel"):
        low, high = (0, 255) if kind == "uint8" else (-128, 127)
        ends = (low, high) if kind == "uint8" or base.op != "CONV_2D" else ()
        weights = ends if kind == "uint8" else (0, *ends)
        for zeros in itertools.product((low, high), weights, (low, high)):
            yield replace(base, zeros=zeros)


# Rows, terms and columns of products with computed weights.
_MATRICES: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((1,), 1, 1),
    ((3,), 11, 9),
    ((2, 9), 24, 33),
)
SIDES = ((1, 1), (3, 5), (16, 16), (17, 33), (64, 10), (129, 31), (256, 100), (8, 257))


def fully_connected_layers() -> Iterator[Case]:
    """Yield the cases of FULLY_CONNECTED: also batches and keep_num_dims."""
    for kind in KINDS:
        for (in_c, out_c), batch in itertools.product(SIDES, ((1,), (3,), (2, 3))):
            yield fully_connected_case(kind, batch, in_c, out_c)
        for fused in FUSED[1:]:
            yield fully_connected_case(kind, (2,), 20, 11, fused.lower(), fused=fused)
        for batch in ((2, 3), (2, 2, 3)):
            yield fully_connected_case(kind, batch, 12, 5, "keep_dims", keep_num_dims=True)
        yield fully_connected_case(kind, (2,), 21, 9, "no_bias", has_bias=False)
        if kind in ("uint8", "int8"):
            low, high = (0, 255) if kind == "uint8" else (-128, 127)
            weights = (low, high) if kind == "uint8" else (0, low, high)
            for a, c, b in itertools.product((low, high), (low, high), weights):
                yield fully_connected_case(kind, (2,), 19, 13, f"zeros{a}_{b}_{c}", zeros=(a, b, c))
            for zeros in ((low, high, 3), (high, low, 3)):
                words = "zeros{}_{}_{}".format(*zeros)
                yield fully_connected_case(kind, (9,), 70, 13, words, zeros=zeros)
        for batch, in_c, out_c in _MATRICES if kind in ("uint8", "int8", "float32") else ():
            given: dict[str, Any] = {"is_computed": True, "fused": "RELU6"}
            yield fully_connected_case(kind, batch, in_c, out_c, "computed", **given)
            given = {"is_computed": True, "has_bias": False}
            yield fully_connected_case(kind, batch, in_c, out_c, "computed-no_bias", **given)
        if kind != "float32":
            for multiplier in (2.0**-20, 2.0**-12, 1 / 3, 0.75, 1.0, 1.5):
                words = f"multiplier{multiplier:.4g}"
                yield fully_connected_case(kind, (2,), 18, 14, words, multiplier=multiplier)


def fully_connected_case(
    kind: str, batch: tuple[int, ...], in_c: int, out_c: int, words: str = "", **options: Any
) -> Case:
    """Return the case of one FULLY_CONNECTED; `words`: its variant."""
    detail = "-".join(filter(None, [f"in{sizes((*batch, in_c))}", f"out{out_c}", words]))
    make = partial(fully_connected, kind, batch, in_c, out_c, **options)
    return case("fully_connected", kind, detail, make)


# Source: Mesa's src/gallium/targets/teflon/test_teflon.cpp
_CHANNELS = (1, 32, 120, 128, 160, 256)
_TEFLON_SIZES = (3, 5, 8, 80, 112)
# The reference kernels' throughput per second; larger cases require --heavy.
_HEAVY = 60_000_000


def teflon() -> Iterator[Case]:
    """Yield the grid that Mesa's test_teflon runs: channels, kernels, sizes, strides, signs."""
    for kind in ("uint8", "int8"):
        for side, kernel, in_c, out_c, stride, padding in itertools.product(
            _TEFLON_SIZES, (1, 3, 5), _CHANNELS, _CHANNELS, (1, 2), _BOTH
        ):
            yield from _teflon(
                ConvCase(
                    size=(side, side, in_c), out_c=out_c, kernel=(kernel, kernel),
                    stride=(stride, stride), padding=padding,
                ),
                kind,
            )  # fmt: skip
        for side, channels, stride, padding in itertools.product(
            _TEFLON_SIZES, _CHANNELS[1:], (1, 2), _BOTH
        ):
            size, strides = (side, side, channels), (stride, stride)
            yield from _teflon(_depthwise(size=size, stride=strides, padding=padding), kind)
        for side, channels, fused in itertools.product(_TEFLON_SIZES, _CHANNELS, FUSED[:3]):
            detail = f"add-in{side}x{side}x{channels}"
            detail += "" if fused == "NONE" else f"-{fused.lower()}"
            yield case("teflon", kind, detail, _add, side, channels, fused, kind, op="ADD")


def _teflon(convolution: ConvCase, kind: str) -> Iterator[Case]:
    if convolution.fits:
        name = f"teflon/{kind}/{convolution.op.lower()}-{convolution}"
        is_heavy = convolution.multiplications > _HEAVY
        make = partial(convolution.graph, kind)
        yield Case(name, convolution.op, kind, make, is_heavy=is_heavy)


def _add(side: int, channels: int, fused: str, kind: str) -> Graph:
    """Return a sum of two convolutions, which hardware may execute as a single operation."""
    convolution = ConvCase(size=(side, side, channels), kernel=(1, 1), out_c=channels)
    if side * side * channels * channels > _HEAVY // 2:
        convolution = replace(convolution, op="DEPTHWISE_CONV_2D")
    left = convolution.node(kind, None)
    right = convolution.node(kind, left.inputs[0])
    out = tensor((1, side, side, channels), kind, 0.4, 128 if kind == "uint8" else 0)
    inputs = [left.outputs[0], right.outputs[0]]
    return graph([left, right, node("ADD", inputs, [out], {"fused_activation_function": fused}, 2)])


_KEPT = 0.3  # fraction of nonzero sparse weights


def stored_weights() -> Iterator[Case]:
    """Yield the cases of weights stored as float16, or in sparse form (DENSIFY)."""
    for op, side in itertools.product(("CONV_2D", "DEPTHWISE_CONV_2D"), (1, 3)):
        convolution = ConvCase(op=op, size=(7, 6, 5), kernel=(side, side))
        detail = f"float16_weights-{op.lower()}-k{side}"
        yield case("chain", "float32", detail, _half_weights, convolution, op="chain")
    for kind, side in itertools.product(("float32", "int8"), (1, 3)):
        dense = partial(ConvCase(size=(7, 6, 5), kernel=(side, side)).graph, kind)
        yield case("densify", kind, f"conv_2d-k{side}", _sparse_weights, dense)
    for kind in ("float32", "int8"):
        dense = partial(fully_connected, kind, (2,), 24, 8)
        yield case("densify", kind, "fully_connected", _sparse_weights, dense)


def _with_weights(
    step: Node, op: str, version: int, store: Callable[[Tensor, Array], Tensor]
) -> Graph:
    """Return the graph of a node whose weights `op` decompresses from the output of `store`."""
    source, weights, *rest = step.inputs
    assert weights is not None
    assert weights.data is not None
    made = replace(weights, data=None)
    unpack = node(op, [store(weights, weights.data)], [made], {}, version)
    return graph([unpack, replace(step, inputs=(source, made, *rest))])


def _half_weights(convolution: ConvCase) -> Graph:
    """Return a float convolution with weights stored as float16."""
    step = convolution.node("float32", None)
    return _with_weights(step, "DEQUANTIZE", 3, lambda _, data: constant(data.astype(np.float16)))


def _sparse_weights(dense: Callable[[], Graph]) -> Graph:
    """Return a graph of one node with mostly zero weights in sparse form."""
    (step,) = dense().nodes

    def sparse(weights: Tensor, data: Array) -> Tensor:
        is_kept = seeded(step.op, weights.dtype).random(weights.shape) < _KEPT
        return replace(weights, data=(data * is_kept).astype(data.dtype), is_sparse=True)

    return _with_weights(step, "DENSIFY", 1, sparse)
