# SPDX-License-Identifier: Apache-2.0
"""Nodes on the device among nodes of the CPU whose tensors get their sizes during a run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from delegate import DeviceInfo
from delegate.inspect import Graph, Tensor, write_model
from tests.support.compare import interpreter, invoke
from tests.support.model import const, graph_of, op, t
from tests.support.nets import assert_equal_outputs, delegate_for
from tflite_opencl.common.build import numbers

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
