# SPDX-License-Identifier: Apache-2.0
"""Nodes on the device next to CPU nodes with dynamic tensors."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.graph.infer import likely_shapes
from delegate.inspect import Graph, Tensor, with_input_shapes, write_model
from tests.support.compare import RUNTIME, interpreter, invoke, refusals
from tests.support.model import const, graph_of, op, t
from tests.support.nets import assert_equal_outputs, delegate_for
from tests.support.shared import model_path
from tests.support.tiers import slow
from tflite_opencl.models.build import numbers

ON_THE_CPU = ("MEAN", "SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE", "MUL")


def flattened() -> Graph:
    """Return sums, a mean, Keras' Flatten and one more node."""

    def made(*shape: int) -> Tensor:
        return t((1, *shape), "int8", 0.05, 0, shape_signature=(-1, *shape))

    one = const(np.full((1, 1, 1, 1), 40, np.int8), 0.05, 0)
    tensors = [made(8, 8, 8) for _ in range(10)]
    nodes = [op("ADD", [a, one], [b]) for a, b in pairwise(tensors)]
    mean, flat, result = made(8, 8, 1), made(64), made(64)
    shape, batch, sizes = t((4,), "int32"), t((), "int32"), t((2,), "int32")
    begin, end = numbers([0]), numbers([1])
    nodes += [
        op("MEAN", [tensors[-1], numbers([3])], [mean], {"keep_dims": True}, version=2),
        op("SHAPE", [mean], [shape], {"out_type": "int32"}),
        op("STRIDED_SLICE", [shape, begin, end, end], [batch], {"shrink_axis_mask": 1}),
        op("PACK", [batch, numbers(64)], [sizes], {"values_count": 2}),
        op("RESHAPE", [mean, sizes], [flat]),
        op("MUL", [flat, flat], [result]),
    ]
    return graph_of(nodes)


def test_cpu_nodes_are_not_prepared_again_during_a_run(device: DeviceInfo) -> None:
    """TFLite would prepare them by their indices before delegation, and crash."""
    model = write_model(flattened())
    delegate = delegate_for(model, device, ON_THE_CPU)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert delegate.partitions == [[*range(9)]]
    rng = np.random.default_rng(1)
    for batch in (1, 1, 3, 3, 1, 2, 2):
        values = rng.integers(-128, 128, (batch, 8, 8, 8)).astype(np.int8)
        for interp in (ours, reference):
            interp.resize_tensor_input(0, values.shape)
            interp.allocate_tensors()
        for run in range(3):
            given = [np.roll(values, run)]
            assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"batch {batch}")


def upsampled() -> Graph:
    """Return two Conv2DTranspose of Keras, whose sizes are computed from the input's shape."""
    rng = np.random.default_rng(3)

    def made(*shape: int) -> Tensor:
        return t((1, *shape), "int8", 0.05, 3, shape_signature=(-1, *shape))

    source = made(4, 4, 3)
    nodes = []
    for side in (8, 16):
        before, result, after = made(*source.shape[1:]), made(side, side, 3), made(side, side, 3)
        shape, batch, sizes = t((4,), "int32"), t((), "int32"), t((4,), "int32")
        weights = const(rng.integers(-127, 128, (3, 2, 2, 3)).astype(np.int8), 0.02)
        parts = [shape, numbers([0]), numbers([1]), numbers([1])]
        sides = [numbers(side), numbers(side), numbers(3)]
        strides = {"padding": "SAME", "stride_w": 2, "stride_h": 2}
        nodes += [
            op("ABS", [source], [before]),
            op("SHAPE", [before], [shape], {"out_type": "int32"}),
            op("STRIDED_SLICE", parts, [batch], {"shrink_axis_mask": 1}),
            op("PACK", [batch, *sides], [sizes], {"values_count": 4}),
            op("TRANSPOSE_CONV", [sizes, weights, before], [result], strides, version=2),
            op("RELU", [result], [after], version=2),
        ]
        source = after
    return graph_of(nodes)


OPS = ("ABS", "SHAPE", "STRIDED_SLICE", "PACK", "TRANSPOSE_CONV", "RELU")


@pytest.mark.parametrize("draw", range(8))
def test_sizes_computed_from_shapes_are_known_after_cpu_nodes(
    draw: int, device: DeviceInfo
) -> None:
    model = write_model(upsampled())
    excluded = ["TRANSPOSE_CONV", *random.Random(draw).sample(OPS, draw % 4)]
    delegate = delegate_for(model, device, excluded)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert {each.op for each in delegate.verdicts if not each.is_taken} == {*excluded}
    rng = np.random.default_rng(draw)
    for batch in (1, 3, 1, 2):
        shape = (batch, 4, 4, 3)
        for interp in (ours, reference):
            interp.resize_tensor_input(0, shape)
            interp.allocate_tensors()
        for run in range(5):
            given = [rng.integers(-128, 128, shape).astype(np.int8)]
            where = f"batch {batch}, run {run}"
            assert_equal_outputs(invoke(ours, given), invoke(reference, given), where)


@slow
def test_other_nodes_of_u_net_are_claimed(device: DeviceInfo) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("this TFLite has no hybrid TRANSPOSE_CONV")
    path = model_path("converters/unet_dr")
    delegate = delegate_for(path, device, ["TRANSPOSE_CONV"])
    ours = interpreter(path, delegate)
    assert [each.op for each in delegate.verdicts if not each.is_taken] == ["TRANSPOSE_CONV"] * 2
    given = [np.random.default_rng(1).normal(size=(1, 64, 64, 3)).astype(np.float32)]
    (got,), (expected,) = invoke(ours, given), invoke(interpreter(path), given)
    # Floats in the middle of two int8 values may round to either.
    np.testing.assert_allclose(got, expected, atol=0.02)


def open_sizes(is_open: bool = True) -> Graph:
    """Return a strided VALID window after a PAD, as in MobileNetV3."""
    rng = np.random.default_rng(0)

    def image(size: int) -> Tensor:
        return t((1, size, size, 8), "int8", 0.05, 3, shape_signature=signature)

    def weights(*shape: int) -> Tensor:
        return const(rng.integers(-127, 128, shape).astype(np.int8), 0.01, 0)

    signature = (1, -1, -1, 8) if is_open else ()
    source, padded, first, last = image(1), image(5), image(1), image(1)
    window = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "depth_multiplier": 1}
    bias = const(np.zeros(8, np.int32), 0.0005)
    return graph_of(
        [
            op("PAD", [source, numbers([[0, 0], [2, 2], [2, 2], [0, 0]])], [padded]),
            op("DEPTHWISE_CONV_2D", [padded, weights(1, 5, 5, 8), bias], [first], window),
            op("DEPTHWISE_CONV_2D", [first, weights(1, 3, 3, 8), bias], [last], window),
        ]
    )


def test_verdicts_use_sizes_of_run_not_placeholders(device: DeviceInfo) -> None:
    model = write_model(open_sizes())
    delegate = delegate_for(model, device, min_nodes_per_partition=0)
    arguments = (model, None, "reference")
    ours = RUNTIME.interpreter(*arguments, [delegate])
    reference = RUNTIME.interpreter(*arguments, [])
    rng = np.random.default_rng(1)
    for size in ((64, 48), (224, 224), (9, 7)):
        values = rng.integers(-128, 128, (1, *size, 8)).astype(np.int8)
        for interp in (ours, reference):
            interp.resize_tensor_input(0, values.shape)
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, [values]), invoke(reference, [values]), f"{size}")
        assert refusals(delegate) == {}
    assert delegate.partitions == [[0, 1, 2]]


def test_only_dynamic_sizes_are_assumed() -> None:
    graph = open_sizes()
    (source,) = graph.inputs
    shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
    assert likely_shapes(graph, shapes)[source.index] == (1, 224, 224, 8)
    for given in ((1, 64, 1, 8), (3, 1, 1, 8)):  # after a resize by the caller
        resized = {**shapes, source.index: given}
        assert likely_shapes(graph, resized) == resized
    assert likely_shapes(open_sizes(is_open=False), shapes) == shapes


def test_static_sizes_are_those_of_the_run() -> None:
    """TFLite resizes after the claim, from the file's sizes to the requested ones."""
    graph = open_sizes()
    (source,) = graph.inputs
    shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
    for size in ((1, 64, 48, 8), (1, 1, 9, 8), (1, 1, 1, 8)):
        resized_graph = with_input_shapes(graph, {0: size})
        assert likely_shapes(resized_graph, shapes)[source.index] == size
        resized = {**shapes, source.index: (1, 5, 5, 8)}
        assert likely_shapes(resized_graph, resized) == resized
    batch = with_input_shapes(graph, {0: (4, 64, 48, 8)})
    assert likely_shapes(batch, shapes)[source.index] == (1, 64, 48, 8)
