# SPDX-License-Identifier: Apache-2.0
"""Paths that stay open: every picture's outputs, whatever runs them and however many at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceError, DeviceInfo, NoDeviceError, Options
from delegate.inspect import Graph, read_model, write_model
from delegate.run.executor import Executor
from label_image.open_path import open_path
from label_image.path import BusyClock, OpenPath
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import chain_model, const, op, t
from tests.support.nets import POOL, conv_pool, image
from tflite_opencl.console.errors import DelegateFailed, RunError
from tflite_opencl.harness.job import Job

FLAT = chain_model(
    [
        op("AVERAGE_POOL_2D", [image()], [(pooled := image())], POOL),
        op("RESHAPE", [pooled], [t((1, 18), "uint8", 0.5, 128)], {"new_shape": [1, 18]}),
    ]
)
REVERSED = chain_model(
    [op("REVERSE_V2", [image(), const(np.zeros(1, np.int32))], [image()])],
)
# An op that OpenCL does not have.
NOT_OURS = chain_model(
    [
        op(
            "REVERSE_SEQUENCE",
            [image(), const(np.full(1, 2, np.int32))],
            [image()],
            {"seq_dim": 1, "batch_dim": 0},
        )
    ],
)


def pictures(graph: Graph, count: int) -> NDArray[Any]:
    shape = (count, *graph.inputs[0].shape[1:])
    return np.random.default_rng(count).integers(0, 256, shape).astype(np.uint8)


@contextmanager
def opened(
    model: bytes, batch: int | None = None, opencl: Options | None = None, **job: Any
) -> Iterator[tuple[OpenPath, Graph]]:
    graph = read_model(model)
    nothing = np.zeros(graph.inputs[0].shape, np.uint8)
    full = Job(
        model=model, input=nothing, batch=batch, opencl=opencl, cpu_kernels="reference", **job
    )
    with open_path(full, RUNTIME, graph) as path:
        yield path, graph


def on(device: DeviceInfo, **options: Any) -> Options:
    return Options(device.index, **options)


def assert_exact(path: OpenPath, model: bytes, graph: Graph, count: int) -> None:
    """Assert that each picture's outputs are the reference kernels', in their shapes."""
    pixels = pictures(graph, count)
    rest = [np.zeros(tensor.shape, tensor.dtype) for tensor in graph.inputs[1:]]
    reference = interpreter(model)
    result = path.run(pixels)
    assert len(result.outputs) == count
    for number, outputs in enumerate(result.outputs):
        expected = invoke(reference, [pixels[number : number + 1], *rest])
        assert [o.tolist() for o in outputs] == [o.tolist() for o in expected]


@pytest.mark.parametrize("batch", [None, 1])
def test_the_cpu_runs_one_by_one_without_a_batch(batch: int | None) -> None:
    model = write_model(conv_pool())
    with opened(model, batch) as (path, graph):
        assert path.facts.batch == 1
        assert path.facts.delegation is None
        assert_exact(path, model, graph, 4)


@pytest.mark.parametrize("has_open_batch", [False, True])
def test_the_cpu_runs_a_batch_at_once_where_the_model_can_be_resized(has_open_batch: bool) -> None:
    model = write_model(conv_pool(has_open_batch))
    with opened(model, 3) as (path, graph):
        assert path.facts.batch == 3
        for count in (3, 2, 3, 1):
            assert_exact(path, model, graph, count)


@pytest.mark.parametrize("model", [FLAT, REVERSED], ids=["fixed-reshape", "mixes-pictures"])
def test_the_cpu_runs_one_by_one_where_the_model_has_no_batch(model: bytes) -> None:
    with opened(model, 3) as (path, graph):
        assert path.facts.batch == 1
        assert_exact(path, model, graph, 3)


def test_other_inputs_are_zeros() -> None:
    model = chain_model([op("ADD", [image(), image()], [image()])])
    for batch in (None, 3):
        with opened(model, batch) as (path, graph):
            assert_exact(path, model, graph, 3)


def test_results_add_up() -> None:
    with opened(write_model(conv_pool())) as (path, graph):
        begin_s = time.perf_counter()
        batches = [path.run(pictures(graph, count)) for count in (4, 1)]
        result = path.facts.plus(batches[0]).plus(batches[1])
        assert 0 < result.seconds <= time.perf_counter() - begin_s
        assert (path.facts.pictures, result.pictures) == (0, 5)
        assert result.load_ms > 0


def test_a_batch_whose_end_is_not_yet_counted_has_its_time() -> None:
    clock = BusyClock()
    clock.count(1)
    time.sleep(0.01)
    first, _ = clock.take()
    assert first >= 0.01
    clock.count(-1)
    assert clock.take()[0] < first


def test_a_model_that_tflite_cannot_run_is_an_error() -> None:
    model = chain_model([op("fake-op", [image()], [image()], is_custom=True)])
    with pytest.raises(RunError, match="Failed to allocate tensors!"), opened(model, 3):
        pass


def test_no_device_is_an_error_of_its_own() -> None:
    with pytest.raises(NoDeviceError), opened(FLAT, 3, Options("no such device")):
        pass


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_opencl_runs_a_whole_model_at_once(device: DeviceInfo, batch: int) -> None:
    with opened(FLAT, batch, on(device)) as (path, graph):
        assert path.facts.batch == batch
        assert path.facts.delegation is not None
        assert (path.facts.delegation.device, path.facts.delegation.driver) == (
            device.name,
            device.driver,
        )
        assert path.facts.delegation.verdicts == (
            (0, "AVERAGE_POOL_2D", None),
            (1, "RESHAPE", None),
        )
        assert path.facts.delegation.partitions == ((0, 1),)
        assert_exact(path, FLAT, graph, batch)
        assert_exact(path, FLAT, graph, 1)


def test_opencl_goes_through_tflite_without_a_batch(device: DeviceInfo) -> None:
    with opened(FLAT, None, on(device)) as (path, graph):
        assert path.facts.batch == 1
        assert path.facts.delegation is not None
        assert path.facts.delegation.delegated == 2
        assert_exact(path, FLAT, graph, 3)


@pytest.mark.parametrize(
    ("model", "options", "why", "delegated"),
    [
        (
            FLAT,
            {"exclude_ops": ["RESHAPE"], "min_nodes_per_partition": 1},
            "--exclude_ops leaves nodes to the CPU",
            1,
        ),
        (FLAT, {"min_nodes_per_partition": 3}, "--min_nodes_per_partition leaves", 0),
        (FLAT, {"placement": "offload:1000000"}, "--placement leaves nodes to the CPU", 2),
        (NOT_OURS, {}, "node 0 (REVERSE_SEQUENCE): op REVERSE_SEQUENCE is not implemented", 0),
    ],
    ids=["excluded", "too-small", "placed", "not-supported"],
)
def test_the_reason_to_run_one_by_one_is_logged(
    device: DeviceInfo,
    caplog: pytest.LogCaptureFixture,
    model: bytes,
    options: dict[str, Any],
    why: str,
    delegated: int,
) -> None:
    with opened(model, 3, on(device, **options)) as (path, graph):
        warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == (1 if delegated else 2)  # the second: it took none
        assert warnings[0].startswith(
            f"--batch: OpenCL runs the pictures one by one through TFLite: {why}"
        )
        assert path.facts.batch == 1
        assert path.facts.delegation is not None
        assert path.facts.delegation.delegated == delegated
        assert_exact(path, model, graph, 3)


@pytest.mark.parametrize("batch", [None, 2])
def test_a_device_that_fails_can_be_recovered_from(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, batch: int | None
) -> None:
    def fails(self: Executor, inputs: Any, outputs: Any) -> None:
        raise DeviceError("running: CL_OUT_OF_RESOURCES")

    with opened(FLAT, batch, on(device)) as (path, graph):
        path.run(pictures(graph, 2))
        monkeypatch.setattr(Executor, "_checked", fails)
        with pytest.raises(DelegateFailed, match="CL_OUT_OF_RESOURCES"):
            path.run(pictures(graph, 2))
