# SPDX-License-Identifier: Apache-2.0
"""Nodes on the device among nodes of the CPU whose tensors get their sizes during a run."""

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
    """Return sums, a mean and Flatten as Keras writes it, and one node behind that."""

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


def test_nodes_of_the_cpu_that_ran_are_not_prepared_again_during_a_run(
    device: DeviceInfo,
) -> None:
    """TFLite would prepare them by their numbers before delegation, and end the process."""
    model = write_model(flattened())
    delegate = delegate_for(model, device, ON_THE_CPU)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert delegate.partitions == [[*range(9)]]
    rng = np.random.default_rng(1)
    for batch in (1, 1, 3, 3, 1, 2, 2):
        values = rng.integers(-128, 128, (batch, 8, 8, 8)).astype(np.int8)
        for made in (ours, reference):
            made.resize_tensor_input(0, values.shape)
            made.allocate_tensors()
        for run in range(3):
            given = [np.roll(values, run)]
            assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"batch {batch}")


def upsampled() -> Graph:
    """Return what Keras makes of Conv2DTranspose, twice: its size is one of the input's shape."""
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
def test_sizes_that_follow_from_shapes_are_known_behind_nodes_of_the_cpu(
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
        for made in (ours, reference):
            made.resize_tensor_input(0, shape)
            made.allocate_tensors()
        for run in range(5):
            given = [rng.integers(-128, 128, shape).astype(np.int8)]
            where = f"batch {batch}, run {run}"
            assert_equal_outputs(invoke(ours, given), invoke(reference, given), where)


@slow
def test_behind_a_u_net_s_nodes_of_the_cpu_all_others_are_taken(device: DeviceInfo) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("this TFLite has no hybrid TRANSPOSE_CONV")
    path = model_path("converters/unet_dr")
    delegate = delegate_for(path, device, ["TRANSPOSE_CONV"])
    ours = interpreter(path, delegate)
    assert [each.op for each in delegate.verdicts if not each.is_taken] == ["TRANSPOSE_CONV"] * 2
    given = [np.random.default_rng(1).normal(size=(1, 64, 64, 3)).astype(np.float32)]
    (got,), (expected,) = invoke(ours, given), invoke(interpreter(path), given)
    # Floats that lie in the middle between two of int8 become the one or the other.
    np.testing.assert_allclose(got, expected, atol=0.02)


def open_sizes(is_open: bool = True) -> Graph:
    """Return a strided window without padding behind a PAD, as in MobileNetV3."""
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


def test_nodes_are_judged_by_the_sizes_of_a_run_and_not_by_the_file_s_placeholder(
    device: DeviceInfo,
) -> None:
    model = write_model(open_sizes())
    delegate = delegate_for(model, device, min_nodes_per_partition=0)
    arguments = (model, None, "reference")
    ours = RUNTIME.interpreter(*arguments, [delegate])
    reference = RUNTIME.interpreter(*arguments, [])
    rng = np.random.default_rng(1)
    for size in ((64, 48), (224, 224), (9, 7)):
        values = rng.integers(-128, 128, (1, *size, 8)).astype(np.int8)
        for made in (ours, reference):
            made.resize_tensor_input(0, values.shape)
            made.allocate_tensors()
        assert_equal_outputs(invoke(ours, [values]), invoke(reference, [values]), f"{size}")
        assert refusals(delegate) == {}
    assert delegate.partitions == [[0, 1, 2]]


def test_only_open_sizes_are_guessed() -> None:
    graph = open_sizes()
    (source,) = graph.inputs
    shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
    assert likely_shapes(graph, shapes)[source.index] == (1, 224, 224, 8)
    for given in ((1, 64, 1, 8), (3, 1, 1, 8)):  # the caller has resized it
        resized = {**shapes, source.index: given}
        assert likely_shapes(graph, resized) == resized
    assert likely_shapes(open_sizes(is_open=False), shapes) == shapes


def test_sizes_that_the_graph_has_already_are_those_of_the_run() -> None:
    """TFLite resizes after the nodes were judged, from what the file has to what is asked for."""
    graph = open_sizes()
    (source,) = graph.inputs
    shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
    for size in ((1, 64, 48, 8), (1, 1, 9, 8), (1, 1, 1, 8)):
        asked = with_input_shapes(graph, {0: size})
        assert likely_shapes(asked, shapes)[source.index] == size
        resized = {**shapes, source.index: (1, 5, 5, 8)}
        assert likely_shapes(asked, resized) == resized
    batch = with_input_shapes(graph, {0: (4, 64, 48, 8)})
    assert likely_shapes(batch, shapes)[source.index] == (1, 64, 48, 8)
