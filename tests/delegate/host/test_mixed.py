# SPDX-License-Identifier: Apache-2.0
"""Claimed nodes that are empty or no longer fit after a resize."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import partition_of
from delegate.host.mixed import split
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, refusals
from tests.support.model import const, graph_of, op, t
from tests.support.nets import assert_equal_outputs, delegate_for
from tflite_opencl.conformance.cases.loops import loop
from tflite_opencl.models.build import numbers
from tflite_opencl.oracle.in_builtins import model_in_builtins

EMPTY = "on TFLite's kernel at these shapes: shape 0x6: it is empty"


def quantised(*shape: int) -> Tensor:
    return t(shape, "int8", 0.05, 0)


def values(*shape: int) -> Tensor:
    return const(np.random.default_rng(1).integers(-99, 99, shape).astype(np.int8), 0.05, 0)


def between_sums(
    name: str, more: Sequence[Tensor | None], shape: Sequence[int], **options: Any
) -> Graph:
    """Return the graph of one node on rows of 6 values, between two sums that always run."""
    sizes = (2, 6), (2, 6), shape, shape
    source, first, result, last = (quantised(*each) for each in sizes)
    return graph_of(
        [
            op("ADD", [source, values(1, 1)], [first]),
            op(name, [first, *more], [result], options),
            op("ADD", [result, values(1, 1)], [last]),
        ]
    )


def resized(made: Any, *shape: int) -> None:
    made.resize_tensor_input(made.get_input_details()[0]["index"], shape)
    made.allocate_tensors()


EVERY = {
    "strided slice": between_sums(
        "STRIDED_SLICE", [numbers([1, 0]), numbers([9, 6]), numbers([1, 1])], (1, 6)
    ),
    "rows": between_sums("FULLY_CONNECTED", [values(4, 12), None], (1, 4)),
    "reshape": between_sums("RESHAPE", [numbers([-1, 4])], (3, 4), new_shape=[-1, 4]),
    "transpose": between_sums("TRANSPOSE", [numbers([1, 0])], (6, 2)),
    "pad": between_sums("PAD", [numbers([[1, 1], [0, 0]])], (4, 6)),
    "concatenation": between_sums("CONCATENATION", [values(2, 6)], (4, 6), axis=0),
}


@pytest.mark.parametrize("name", EVERY)
def test_resizes_to_and_from_zero_rows(device: DeviceInfo, name: str) -> None:
    """Sizes that TFLite runs also run with the delegate; what it refuses is an error."""
    model = write_model(EVERY[name])
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    rng = np.random.default_rng(2)
    for rows in (2, 0, 3, 1, 0, 4, 2):
        given = [rng.integers(-128, 128, (rows, 6)).astype(np.int8)]
        try:
            resized(reference, rows, 6)
        except RuntimeError:
            with pytest.raises(RuntimeError, match=r"OpenCL delegate: .*TFLite refuses it"):
                resized(ours, rows, 6)
            continue
        resized(ours, rows, 6)
        for _ in range(2):
            assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"{rows} rows")
        wanted = {1: EMPTY} if rows == 0 and name in ("pad", "concatenation") else {}
        assert refusals(delegate) == wanted


def test_node_on_tflites_kernel_is_reported_and_not_counted_as_delegated(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(EVERY["pad"])
    delegate = delegate_for(model, device, profiling=True)
    ours = interpreter(model, delegate)
    with caplog.at_level(logging.WARNING, "delegate"):
        resized(ours, 0, 6)
    assert caplog.messages == [f"node 1 (PAD) runs {EMPTY}"]
    assert [row.node for row in delegate.alternatives] == [0, 2]
    assert [row.node for row in delegate.step_through(ours.invoke)] == [0, 2]
    assert {row.node for row in delegate.profile()} <= {2}
    assert sum(len(run.launches) for run in delegate.timed_runs(ours.invoke)) == 1
    resized(ours, 2, 6)
    assert refusals(delegate) == {}
    assert [row.node for row in delegate.alternatives] == [0, 1, 2]


def test_trip_count_is_known_with_node_on_tflites_kernel(device: DeviceInfo) -> None:
    def turned(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        result = quantised(2, 6)
        return [op("REVERSE_V2", [own[0], numbers([1])], [result])], [result]

    source, padded = quantised(2, 6), quantised(4, 6)
    looping = loop(3, [source], turned)
    count, last = looping.outputs
    pad = op("PAD", [last, numbers([[1, 1], [0, 0]])], [padded])
    model = write_model(graph_of([looping, pad], [source], [count, padded]))
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    for rows in (0, 2, 0):
        for interp in (ours, reference):
            resized(interp, rows, 6)
        given = [np.arange(rows * 6, dtype=np.int8).reshape(rows, 6)]
        assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"{rows} rows")
        assert refusals(delegate) == ({} if rows else {1: EMPTY})


def test_tensor_that_is_empty_in_file(device: DeviceInfo) -> None:
    source, result = quantised(0, 6), quantised(0, 6)
    model = write_model(graph_of([op("ADD", [source, values(1, 6)], [result])]))
    delegate = delegate_for(model, device)
    ours = interpreter(model, delegate)
    assert refusals(delegate) == {}
    ours.invoke()
    assert tuple(ours.get_output_details()[0]["shape"]) == (0, 6)


def test_halves_without_rows(device: DeviceInfo) -> None:
    """TFLite has no MEAN of float16, so its kernel runs on float32."""
    sizes = (2, 6), (2, 6), (6,), (6,)
    source, first, mean, last = (t(each, "float16") for each in sizes)
    ones = const(np.ones(6, np.float16))
    graph = graph_of(
        [
            op("ADD", [source, ones], [first]),
            op("MEAN", [first, numbers([0])], [mean], {"keep_dims": False}),
            op("ADD", [mean, ones], [last]),
        ]
    )
    model = write_model(graph)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model_in_builtins(graph, model))
    for rows in (0, 2, 0):
        for interp in (ours, reference):
            resized(interp, rows, 6)
        given = [np.arange(rows * 6, dtype=np.float16).reshape(rows, 6)]
        assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"{rows} rows")
        assert refusals(delegate) == ({} if rows else {1: EMPTY})


def chain(count: int) -> Graph:
    tensors = [quantised(2, 6) for _ in range(count + 1)]
    return graph_of(
        [op("ADD", [tensors[i], values(1, 1)], [tensors[i + 1]]) for i in range(count)],
        outputs=[tensors[1], tensors[-1]],
    )


@pytest.mark.parametrize(
    ("apart", "expected"),
    [((), [[0, 1, 2, 3]]), ((1,), [[0], [1], [2, 3]]), ((0, 1), [[0], [1], [2, 3]])],
)
def test_partition_is_split_around_nodes(apart: Sequence[int], expected: list[Any]) -> None:
    graph = chain(4)
    whole = partition_of(graph, range(4))
    parts = split(whole, apart)
    assert [[*part.indices] for part in parts] == expected
    known = set(whole.inputs)
    for part in parts:
        assert known.issuperset(part.inputs)
        known.update(part.outputs)
    assert known.issuperset(whole.outputs)


def test_part_has_only_its_inlined_nodes() -> None:
    whole = partition_of(chain(4), range(4))
    parts = split(replace(whole, inlined={0: "IF", 2: "WHILE", 9: "WHILE"}), (1,))
    assert [dict(part.inlined) for part in parts] == [{0: "IF"}, {}, {2: "WHILE"}]


def test_split_preserves_nodes() -> None:
    whole = partition_of(chain(4), range(4))
    nodes: list[Node] = [node for part in split(whole, (2,)) for node in part.nodes]
    assert nodes == [*whole.nodes]
