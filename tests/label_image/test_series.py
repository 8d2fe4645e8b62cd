# SPDX-License-Identifier: Apache-2.0
"""Many pictures through all paths: what comes of each, and paths that fail or lie in the middle."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceError, DeviceInfo, Options
from delegate.inspect import read_model
from delegate.run.copy_strategies import CopyStrategy
from delegate.run.executor import Executor
from label_image.compare import CPU, Distances, Outcome
from label_image.decoder import Format
from label_image.path import OpenPath
from label_image.paths import open_paths
from label_image.series import Series
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import chain_model, op, t
from tests.support.tiers import slow
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.job import Job
from tflite_opencl.oracle.difference import Difference
from tflite_opencl.pictures.image import load_picture, to_input

SIZE = (1, 4, 4, 3)
SAME = Distances(*[Difference(0)] * 3)
PARTLY = {"exclude_ops": ["RESHAPE"], "min_nodes_per_partition": 1}


def pooling_model(dtype: str = "uint8") -> bytes:
    """Return a model that gives each channel's average."""
    scale = None if dtype == "float32" else 0.5
    pixels, pooled = t(SIZE, dtype, scale), t((1, 1, 1, 3), dtype, scale)
    window = {"stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4}
    return chain_model(
        [
            op("AVERAGE_POOL_2D", [pixels], [pooled], {"padding": "VALID", **window}),
            op("RESHAPE", [pooled], [t((1, 3), dtype, scale)], {"new_shape": [1, 3]}),
        ]
    )


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Return seven pictures of different colours."""
    rng = np.random.default_rng(2)
    names = [str(tmp_path / f"{number}.png") for number in range(7)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (6, 5, 3)).astype(np.uint8)).save(name)
    return names


@contextmanager
def series(
    device: DeviceInfo | None = None,
    batch: int | None = None,
    model: bytes = b"",
    options: dict[str, Any] | None = None,
    compares_all: bool = True,
    **job: Any,
) -> Iterator[Series]:
    model = model or pooling_model()
    opencl = None if device is None else Options(device.index, **(options or {}))
    nothing = np.zeros(SIZE, read_model(model).inputs[0].dtype)
    full = Job(model, nothing, False, batch, opencl=opencl, reference=True, warmup_runs=1, **job)
    with opened(full, compares_all) as run:
        yield run


@contextmanager
def opened(job: Job, compares_all: bool = True, **arguments: Any) -> Iterator[Series]:
    """Open all paths of a run; `arguments`: of open_paths."""
    graph = read_model(job.model)
    with open_paths(job, RUNTIME, graph, compares_all=compares_all, **arguments) as paths:
        yield Series(paths, compares_all=compares_all)


def outcomes_of(run: Series, paths: Sequence[str], dtype: str = "uint8") -> list[Outcome]:
    return list(run.outcomes(paths, Format(SIZE, dtype)))


def expected(paths: Sequence[str], model: bytes = b"", dtype: str = "uint8") -> list[list[Any]]:
    """Return the reference kernels' outputs for each picture, as lists."""
    reference = interpreter(model or pooling_model())
    return [
        [
            output.tolist()
            for output in invoke(reference, [to_input(load_picture(path), SIZE, dtype)])
        ]
        for path in paths
    ]


def got(outcomes: Sequence[Outcome]) -> list[list[Any]]:
    return [[output.tolist() for output in outcome.outputs] for outcome in outcomes]


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize("batch", [None, 1, 3, 7, 8])
def test_the_cpu_classifies_every_picture_in_order(paths: list[str], batch: int | None) -> None:
    with series(batch=batch) as run:
        outcomes = outcomes_of(run, paths)
        assert [outcome.path for outcome in outcomes] == paths
        assert got(outcomes) == expected(paths)
        assert run.judgement.results.gpu is None
        assert run.judgement.results.cpu is not None
        assert run.judgement.results.cpu.pictures == run.judgement.totals.classified == 7
        assert run.judgement.failure == ""
        assert run.judgement.totals.decoding_seconds > 0
        assert 1 <= run.judgement.totals.processes <= 7
    assert outcomes[0].distances is None


@pytest.mark.parametrize("batch", [None, 2, 3])
def test_unreadable_pictures_leave_the_others_alone(
    paths: list[str], tmp_path: Path, batch: int | None
) -> None:
    bad = str(tmp_path / "bad.png")
    Path(bad).write_bytes(b"no picture")
    mixed = [bad, paths[0], bad, bad, bad, bad, bad, bad, bad, paths[1], paths[2], bad]
    with series(batch=batch) as run:
        outcomes = outcomes_of(run, mixed)
        assert [outcome.path for outcome in outcomes] == mixed
        assert [bool(outcome.error) for outcome in outcomes] == [path == bad for path in mixed]
        assert got([each for each in outcomes if not each.error]) == expected(paths[:3])
        assert (run.judgement.totals.classified, run.judgement.totals.unreadable) == (3, 9)


def test_no_picture_at_all_is_fine() -> None:
    with series() as run:
        assert outcomes_of(run, []) == []


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_every_picture_is_compared_with_cpu_and_reference(
    device: DeviceInfo, paths: list[str], batch: int | None
) -> None:
    with series(device, batch) as run:
        outcomes = outcomes_of(run, paths)
        assert got(outcomes) == expected(paths)
        for outcome in outcomes:
            assert outcome.distances == SAME
        totals = run.judgement.totals
        assert totals.distances == SAME
        assert run.judgement.results.gpu is not None
        assert run.judgement.results.cpu is not None
        assert run.judgement.results.gpu.pictures == run.judgement.results.cpu.pictures == 7
        assert run.judgement.results.gpu.batch == (batch or 1)
        assert (run.judgement.failure, totals.wrong) == ("", 0)


def test_a_part_left_to_the_cpu_is_compared_on_reference_kernels(
    device: DeviceInfo, paths: list[str]
) -> None:
    with series(device, 2, options=PARTLY) as run:
        outcomes = outcomes_of(run, paths)
        assert got(outcomes) == expected(paths)
        assert run.judgement.totals.distances.gpu_to_reference == Difference(0)
        assert run.judgement.results.gpu is not None
        assert run.judgement.results.gpu.delegation is not None
        assert run.judgement.results.gpu.delegation.delegated == 1


@slow
def test_the_reference_kernels_may_be_the_cpu_s_own(device: DeviceInfo, paths: list[str]) -> None:
    with series(device, 2, cpu_kernels="reference") as run:
        assert got(outcomes_of(run, paths)) == expected(paths)
        assert run.judgement.totals.distances == SAME


def lie(monkeypatch: pytest.MonkeyPatch, pictures: set[int]) -> None:
    """Make OpenCL wrong by 5 for these pictures, counted as they run one by one."""
    honest = OpenPath.run
    seen = 0

    def run(self: OpenPath, pixels: Any) -> Any:
        nonlocal seen
        result = honest(self, pixels)
        if self.facts.delegation is not None:
            for number, outputs in enumerate(result.outputs):
                if seen + number in pictures:
                    outputs[0][0, 1] ^= 4
            seen += len(result.outputs)
        return result

    monkeypatch.setattr(OpenPath, "run", run)


def test_a_device_that_computes_wrongly_loses_those_pictures_to_the_cpu(
    device: DeviceInfo,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lie(monkeypatch, {2, 5})
    with series(device, 3) as run:
        outcomes = outcomes_of(run, paths)
        assert got(outcomes) == expected(paths)
        wrong = [number for number, each in enumerate(outcomes) if each.is_wrong]
        assert wrong == [2, 5]
        assert run.judgement.totals.wrong == 2
        assert run.judgement.failure == (
            f"{device.name} computes wrongly: its outputs are up to 4 quanta from TFLite's "
            "reference kernels, in 2 of 7 pictures"
        )
    (error,) = messages(caplog, logging.ERROR)
    assert error == (
        f"{device.name} computes wrongly: its outputs for {paths[2]} are up to 4 quanta from "
        "TFLite's reference kernels"
    )
    assert messages(caplog, logging.WARNING) == ["the results of such pictures are the CPU's"]


@pytest.mark.parametrize("batch", [None, 3, 8])
def test_a_sample_of_the_pictures_is_compared(
    device: DeviceInfo, paths: list[str], batch: int | None
) -> None:
    with series(device, batch, compares_all=False) as run:
        outcomes = outcomes_of(run, paths * 30)
        assert got(outcomes) == expected(paths) * 30
        compared = [number for number, each in enumerate(outcomes) if each.distances]
        # Comparing this model takes no time: all that are due have their turn.
        assert compared == [*range(8), 101, 202]
        assert run.judgement.totals.distances == SAME
        assert (run.judgement.totals.compared, run.judgement.failure) == (10, "")
        assert run.judgement.results.cpu is not None
        assert run.judgement.results.cpu.pictures == 10


@slow
@pytest.mark.parametrize(("batch", "uncompared"), [(None, 93), (8, 88)])
def test_a_wrong_sample_is_reported_and_ends_the_sampling(
    device: DeviceInfo,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    batch: int | None,
    uncompared: int,
) -> None:
    # Of the batch of picture 101, which is compared, no picture was shown before.
    lie(monkeypatch, {100, *range(101, 210)})
    with series(device, batch, compares_all=False) as run:
        outcomes = outcomes_of(run, paths * 30)
        wrong = [number for number, each in enumerate(outcomes) if each.is_wrong]
        assert wrong == [*range(101 if batch is None else 100, 210)]
        honest = expected(paths) * 30
        assert [got([outcomes[number]]) for number in wrong] == [[honest[n]] for n in wrong]
        compared = sum(each.distances is not None for each in outcomes)
        assert compared == 210 - uncompared
        assert run.judgement.failure == (
            f"{device.name} computes wrongly: its outputs are up to 4 quanta from TFLite's "
            f"reference kernels, in {len(wrong)} of {compared} pictures that were compared"
        )
    (error,) = messages(caplog, logging.ERROR)
    assert "computes wrongly" in error
    assert messages(caplog, logging.WARNING) == [
        "the results of such pictures are the CPU's",
        f"{uncompared} pictures before were not compared: from now on each one is",
    ]


@pytest.mark.parametrize("batch", [None, 2])
def test_a_device_that_fails_in_the_middle_leaves_the_rest_to_the_cpu(
    device: DeviceInfo,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    batch: int | None,
) -> None:
    honest = Executor._checked
    runs = 0

    def fails(self: Executor, inputs: Any, outputs: Any) -> CopyStrategy:
        nonlocal runs
        runs += 1
        if runs > 3:
            raise DeviceError("running: CL_DEVICE_NOT_AVAILABLE")
        return honest(self, inputs, outputs)

    with series(device, batch) as run:
        monkeypatch.setattr(Executor, "_checked", fails)
        outcomes = outcomes_of(run, paths)
        assert got(outcomes) == expected(paths)
        assert run.judgement.results.gpu is None
        assert run.judgement.failure == "running: CL_DEVICE_NOT_AVAILABLE"
        done = 3 * (batch or 1)
        compared = [outcome.distances is not None for outcome in outcomes]
        assert compared == [True] * done + [False] * (7 - done)
    assert messages(caplog, logging.ERROR) == ["running: CL_DEVICE_NOT_AVAILABLE"]
    assert messages(caplog, logging.WARNING) == ["the CPU runs the model instead"]


def test_a_cpu_that_fails_is_left_out_of_the_comparison(
    device: DeviceInfo, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = OpenPath.run

    def fails(self: OpenPath, pixels: Any) -> Any:
        if self is run._paths._open.get(CPU):
            raise RunError("Failed to invoke tflite!")
        return honest(self, pixels)

    with series(device, 2) as run:
        monkeypatch.setattr(OpenPath, "run", fails)
        outcomes = outcomes_of(run, paths)
        assert got(outcomes) == expected(paths)
        assert run.judgement.results.cpu is None
        assert run.judgement.results.reasons["cpu"] == "Failed to invoke tflite!"
        assert run.judgement.totals.distances.gpu_to_reference == Difference(0)
        assert run.judgement.totals.distances.gpu_to_cpu == Difference(
            None, "Failed to invoke tflite!"
        )


@slow
def test_leaving_in_the_middle_ends_the_processes(paths: list[str]) -> None:
    before = set(os.listdir("/proc"))
    with series() as run:
        outcomes = run.outcomes(paths * 50, Format(SIZE, "uint8"))
        next(outcomes)
        outcomes.close()
    children = [
        pid
        for pid in set(os.listdir("/proc")) - before
        if pid.isdecimal() and _parent(pid) == os.getpid()
    ]
    assert children == []


def _parent(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_floats_are_compared_if_requested(device: DeviceInfo, paths: list[str]) -> None:
    model = pooling_model("float32")
    job = Job(model, np.zeros(SIZE, np.float32), opencl=Options(device.index), reference=True)
    with opened(job, floats=True) as run:
        outcomes_of(run, paths, "float32")
        assert run.judgement.totals.distances is not None
        assert run.judgement.totals.distances.gpu_to_reference.floats is not None
        assert run.judgement.totals.distances.gpu_to_reference.floats < 1e-3
