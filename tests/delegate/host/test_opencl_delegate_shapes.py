# SPDX-License-Identifier: Apache-2.0
"""Resized inputs, and repeated allocation of tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.errors import TooLarge
from delegate.graph import infer
from delegate.graph.fold import MOST_ELEMENTS, fold
from delegate.inspect import Graph, write_model
from delegate.launch import Constant
from delegate.run.executor import Executor
from delegate.run.weights import Weights
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke, refusals
from tests.support.model import graph_of, op, t
from tests.support.nets import THREE_PARTITIONS, assert_equal_outputs, conv_pool, delegate_for
from tests.support.schedules import constant_bytes
from tflite_opencl.models.build import numbers


def test_tensors_can_be_allocated_again(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    for inputs in inputs_for(THREE_PARTITIONS):
        ours.allocate_tensors()
        assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))
    assert len(delegate.partitions) == 3


@pytest.mark.parametrize("has_open_batch", [False, True], ids=["fixed-batch", "open-batch"])
def test_inputs_can_be_resized(device: DeviceInfo, has_open_batch: bool) -> None:
    graph = conv_pool(has_open_batch)
    model = write_model(graph)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    rng = np.random.default_rng(3)
    for batch in (1, 3, 1, 2, 2):
        picture = rng.integers(0, 256, (batch, 7, 6, 2)).astype(np.uint8)
        for interp in (ours, reference):
            interp.resize_tensor_input(0, picture.shape)
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, [picture]), invoke(reference, [picture]), f"{batch}")
    assert refusals(delegate) == {}


def counted_rows(rows: int) -> bytes:
    """Return a model that adds its index to each element of its input."""
    source, shape, total = t((rows,), "int32"), t((1,), "int32"), t((), "int32")
    counts, tensor = t((rows,), "int32"), t((rows,), "int32")
    nodes = [
        op("SHAPE", [source], [shape], {"out_type": "int32"}),
        op("GATHER", [shape, numbers(0)], [total], {"axis": 0, "batch_dims": 0}),
        op("RANGE", [numbers(0), total, numbers(1)], [counts]),
        op("ADD", [source, counts], [tensor]),
    ]
    return write_model(graph_of(nodes, [source], [tensor]))


@pytest.mark.parametrize("excluded", [[], ["RANGE"], ["SHAPE", "RANGE"]], ids=" ".join)
@pytest.mark.parametrize("rows", [MOST_ELEMENTS, MOST_ELEMENTS + 1])
def test_cpu_results_may_be_foldable_at_some_sizes_only(
    device: DeviceInfo, excluded: list[str], rows: int
) -> None:
    """A tensor is a constant or an input of its partition, depending on the resize."""
    model = counted_rows(rows)
    delegate = delegate_for(model, device, excluded)
    ours, reference = interpreter(model, delegate), interpreter(model)
    for count in (rows, 2 * MOST_ELEMENTS, 5, MOST_ELEMENTS + 1, MOST_ELEMENTS):
        given = [np.arange(count, dtype=np.int32) * 3]
        for interp in (ours, reference):
            interp.resize_tensor_input(0, (count,))
            interp.allocate_tensors()
        for _ in range(2):
            assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"{count} rows")


def test_graph_is_folded_once_per_resize(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[Graph] = []

    def counted(graph: Graph, inline: Any) -> Graph:
        known.append(fold(graph, inline))
        return known[-1]

    monkeypatch.setattr(infer, "fold", counted)
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    first = THREE_PARTITIONS.inputs[0]
    assert len(delegate.partitions) == 3
    for batch in (2, 3, 1):
        known.clear()
        picture = np.random.default_rng(batch).integers(0, 256, (batch, *first.shape[1:]))
        for interp in (ours, reference):
            interp.resize_tensor_input(first.index, picture.shape)
            interp.allocate_tensors()
        inputs = [picture.astype(first.dtype)]
        assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))
        assert len(known) == 1


def test_resize_uploads_no_constant_again(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Weights._put
    uploads: list[int] = []

    def counted(self: Weights, queue: Any, shelf: Any, constants: Sequence[Constant]) -> None:
        uploads.extend(constant.size_bytes for constant in constants)
        put(self, queue, shelf, constants)

    monkeypatch.setattr(Weights, "_put", counted)
    model = write_model(conv_pool())
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    first, size = len(uploads), constant_bytes(delegate._engine)
    assert first > 0
    picture = np.random.default_rng(3).integers(0, 256, (3, 7, 6, 2)).astype(np.uint8)
    for interp in (ours, reference):
        interp.resize_tensor_input(0, picture.shape)
        interp.allocate_tensors()
    assert_equal_outputs(invoke(ours, [picture]), invoke(reference, [picture]))
    assert len(uploads) == first
    assert constant_bytes(delegate._engine) == size
    delegate.close()
    assert constant_bytes(delegate._engine) == 0


def test_constants_of_old_size_are_freed_if_memory_is_full(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(conv_pool())
    delegate = delegate_for(model, device)
    ours, inputs = interpreter(model, delegate), inputs_for(conv_pool())[0]
    engine = delegate._engine
    executor, sizes = engine.executor, []

    def no_room_beside(*arguments: Any, **state: Any) -> Executor:
        sizes.append(constant_bytes(engine))
        if sizes[-1]:
            raise TooLarge("no room")
        return executor(*arguments, **state)

    monkeypatch.setattr(engine, "executor", no_room_beside)
    ours.resize_tensor_input(0, (2, 7, 6, 2))
    ours.allocate_tensors()
    picture = np.concatenate([inputs[0], inputs[0]])
    once, twice = invoke(interpreter(model), inputs)[0], invoke(ours, [picture])[0]
    assert (twice == np.concatenate([once, once])).all()
    assert len(sizes) == 2
    assert sizes[1] == 0


def test_inputs_can_be_resized_before_allocation(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    picture = np.random.default_rng(3).integers(0, 256, (4, 9, 5, 2)).astype(np.uint8)
    results = []
    for delegates in ([delegate_for(model, device)], []):
        interp = RUNTIME.interpreter(model, None, "reference", delegates)
        interp.resize_tensor_input(0, picture.shape)
        interp.allocate_tensors()
        results.append(invoke(interp, [picture]))
    assert results[0][0].shape == (4, 9, 5, 5)
    assert_equal_outputs(results[0], results[1])


def test_size_that_does_not_fit_runs_on_tflites_kernels(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    delegate = delegate_for(model, device)
    # The weights fit, also as GPU kernels pack them.
    delegate._engine.device.max_alloc_bytes = 20_000
    ours, inputs = interpreter(model, delegate), inputs_for(graph)[0]
    expected = invoke(interpreter(model), inputs)
    assert refusals(delegate) == {}
    assert_equal_outputs(invoke(ours, inputs), expected)
    reference, large = interpreter(model), np.repeat(inputs[0], 50, axis=0)
    for interp in (ours, reference):
        interp.resize_tensor_input(0, large.shape)
        interp.allocate_tensors()
    assert_equal_outputs(invoke(ours, [large]), invoke(reference, [large]))
    assert [*refusals(delegate)] == [0, 1]
    assert re.search(r"arena of 2\d{4} bytes: one buffer of this device", refusals(delegate)[0])
    ours.resize_tensor_input(0, (1, 7, 6, 2))
    ours.allocate_tensors()
    assert_equal_outputs(invoke(ours, inputs), expected)
    assert refusals(delegate) == {}
