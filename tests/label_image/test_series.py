# SPDX-License-Identifier: Apache-2.0
"""Many pictures through all paths: what comes of each, and paths that fail or lie in the middle."""

from __future__ import annotations

import logging
import os
import time
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
from label_image.compare import Distances, Outcome, Sample, Totals
from label_image.decoder import Format
from label_image.path import Path as OnePath
from label_image.paths import Paths
from label_image.series import Series
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import chain_model, op, t
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
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
) -> Iterator[Paths]:
    model = model or pooling_model()
    graph = read_model(model)
    opencl = None if device is None else Options(device.index, **(options or {}))
    nothing = np.zeros(SIZE, graph.inputs[0].dtype)
    full = Job(model, nothing, False, batch, opencl=opencl, reference=True, warmup_runs=1, **job)
    with opened(Paths(full, RUNTIME, graph, compares_all=compares_all)) as made:
        yield made


@contextmanager
def opened(made: Paths) -> Iterator[Paths]:
    """Give all paths of a run."""
    with made:
        made.open()
        made.open_others()
        yield made


def outcomes_of(made: Paths, paths: Sequence[str], dtype: str = "uint8") -> list[Outcome]:
    return list(Series(made).outcomes(paths, Format(SIZE, dtype)))


def expected(paths: Sequence[str], model: bytes = b"", dtype: str = "uint8") -> list[list[Any]]:
    """Return the reference kernels' outputs for each picture, as lists."""
    made = interpreter(model or pooling_model())
    return [
        [output.tolist() for output in invoke(made, [to_input(load_picture(path), SIZE, dtype)])]
        for path in paths
    ]


def got(outcomes: Sequence[Outcome]) -> list[list[Any]]:
    return [[output.tolist() for output in outcome.outputs] for outcome in outcomes]


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize("batch", [None, 1, 3, 7, 8])
def test_the_cpu_classifies_every_picture_in_order(paths: list[str], batch: int | None) -> None:
    with series(batch=batch) as made:
        outcomes = outcomes_of(made, paths)
        assert [outcome.path for outcome in outcomes] == paths
        assert got(outcomes) == expected(paths)
        assert made.judgement.gpu is None
        assert made.judgement.cpu is not None
        assert made.judgement.cpu.pictures == made.judgement.totals.classified == 7
        assert made.judgement.failure == ""
        assert made.judgement.totals.decoding_seconds > 0
        assert 1 <= made.judgement.totals.processes <= 7
    assert outcomes[0].distances is None


@pytest.mark.parametrize("batch", [None, 2, 3])
def test_unreadable_pictures_leave_the_others_alone(
    paths: list[str], tmp_path: Path, batch: int | None
) -> None:
    bad = str(tmp_path / "bad.png")
    Path(bad).write_bytes(b"no picture")
    mixed = [bad, paths[0], bad, bad, bad, bad, bad, bad, bad, paths[1], paths[2], bad]
    with series(batch=batch) as made:
        outcomes = outcomes_of(made, mixed)
        assert [outcome.path for outcome in outcomes] == mixed
        assert [bool(outcome.error) for outcome in outcomes] == [path == bad for path in mixed]
        assert got([each for each in outcomes if not each.error]) == expected(paths[:3])
        assert (made.judgement.totals.classified, made.judgement.totals.unreadable) == (3, 9)


def test_no_picture_at_all_is_fine() -> None:
    with series() as made:
        assert outcomes_of(made, []) == []


def test_a_model_that_tflite_cannot_run_is_an_error() -> None:
    pixels, result = t(SIZE, "uint8", 0.5), t(SIZE, "uint8", 0.5)
    model = chain_model([op("fake-op", [pixels], [result], is_custom=True)])
    with pytest.raises(RunError, match="Failed to allocate tensors!"), series(model=model):
        pass


@needs_tflite
def test_without_a_device_the_cpu_runs_them_all(
    paths: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    graph, options = read_model(pooling_model()), Options("no such device")
    job = Job(pooling_model(), np.zeros(SIZE, np.uint8), batch=2, opencl=options)
    with opened(Paths(job, RUNTIME, graph)) as made:
        assert got(outcomes_of(made, paths)) == expected(paths)
        assert "no such device" in made.judgement.failure
    assert messages(caplog, logging.WARNING) == ["the CPU runs the model instead"]


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_every_picture_is_compared_with_cpu_and_reference(
    device: DeviceInfo, paths: list[str], batch: int | None
) -> None:
    with series(device, batch) as made:
        outcomes = outcomes_of(made, paths)
        assert got(outcomes) == expected(paths)
        for outcome in outcomes:
            assert outcome.distances == SAME
        totals = made.judgement.totals
        assert totals.distances == SAME
        assert made.judgement.gpu is not None
        assert made.judgement.cpu is not None
        assert made.judgement.gpu.pictures == made.judgement.cpu.pictures == 7
        assert made.judgement.gpu.batch == (batch or 1)
        assert (made.judgement.failure, totals.wrong) == ("", 0)


def test_without_comparison_only_opencl_runs(device: DeviceInfo, paths: list[str]) -> None:
    graph = read_model(pooling_model())
    job = Job(pooling_model(), np.zeros(SIZE, np.uint8), batch=2, opencl=Options(device.index))
    with opened(Paths(job, RUNTIME, graph)) as made:
        outcomes = outcomes_of(made, paths)
        assert got(outcomes) == expected(paths)
        assert made.judgement.cpu is None
        assert {outcome.distances for outcome in outcomes} == {None}


def test_a_part_left_to_the_cpu_is_compared_on_reference_kernels(
    device: DeviceInfo, paths: list[str]
) -> None:
    with series(device, 2, options=PARTLY) as made:
        outcomes = outcomes_of(made, paths)
        assert got(outcomes) == expected(paths)
        assert made.judgement.totals.distances.gpu_to_reference == Difference(0)
        assert made.judgement.gpu is not None
        assert made.judgement.gpu.delegation is not None
        assert made.judgement.gpu.delegation.delegated == 1


@slow
def test_the_reference_kernels_may_be_the_cpu_s_own(device: DeviceInfo, paths: list[str]) -> None:
    with series(device, 2, cpu_kernels="reference") as made:
        assert got(outcomes_of(made, paths)) == expected(paths)
        assert made.judgement.totals.distances == SAME


def test_floats_are_not_compared_in_quanta(device: DeviceInfo, paths: list[str]) -> None:
    with series(device, 2, pooling_model("float32")) as made:
        outcomes = outcomes_of(made, paths, "float32")
        assert np.allclose(
            np.array(got(outcomes)), np.array(expected(paths, pooling_model("float32"), "float32"))
        )
        why = Difference(None, "the outputs are not quantised")
        assert made.judgement.totals.distances == Distances(why, why, why)


def lie(monkeypatch: pytest.MonkeyPatch, pictures: set[int]) -> None:
    """Make OpenCL wrong by 5 for these pictures, counted as they run one by one."""
    honest = OnePath.run
    seen = 0

    def run(self: OnePath, pixels: Any) -> Any:
        nonlocal seen
        outputs = honest(self, pixels)
        if self.delegation is not None:
            for number in range(len(outputs)):
                if seen + number in pictures:
                    outputs[number][0][0, 1] ^= 4
            seen += len(outputs)
        return outputs

    monkeypatch.setattr(OnePath, "run", run)


def test_a_device_that_computes_wrongly_loses_those_pictures_to_the_cpu(
    device: DeviceInfo,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lie(monkeypatch, {2, 5})
    with series(device, 3) as made:
        outcomes = outcomes_of(made, paths)
        assert got(outcomes) == expected(paths)
        wrong = [number for number, each in enumerate(outcomes) if each.is_wrong]
        assert wrong == [2, 5]
        assert made.judgement.totals.wrong == 2
        assert made.judgement.failure == (
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
    with series(device, batch, compares_all=False) as made:
        outcomes = outcomes_of(made, paths * 30)
        assert got(outcomes) == expected(paths) * 30
        compared = [number for number, each in enumerate(outcomes) if each.distances]
        # Comparing this model takes no time: all that are due have their turn.
        assert compared == [*range(8), 101, 202]
        assert made.judgement.totals.distances == SAME
        assert (made.judgement.totals.compared, made.judgement.failure) == (10, "")
        assert made.judgement.cpu is not None
        assert made.judgement.cpu.pictures == 10


@slow
@pytest.mark.parametrize(("batch", "uncompared"), [(None, 93), (8, 88)])
def test_a_sample_that_is_wrong_is_told_as_loudly_and_ends_the_sampling(
    device: DeviceInfo,
    paths: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    batch: int | None,
    uncompared: int,
) -> None:
    # Of the batch of picture 101, which is compared, no picture was shown before.
    lie(monkeypatch, {100, *range(101, 210)})
    with series(device, batch, compares_all=False) as made:
        outcomes = outcomes_of(made, paths * 30)
        wrong = [number for number, each in enumerate(outcomes) if each.is_wrong]
        assert wrong == [*range(101 if batch is None else 100, 210)]
        honest = expected(paths) * 30
        assert [got([outcomes[number]]) for number in wrong] == [[honest[n]] for n in wrong]
        compared = sum(each.distances is not None for each in outcomes)
        assert compared == 210 - uncompared
        assert made.judgement.failure == (
            f"{device.name} computes wrongly: its outputs are up to 4 quanta from TFLite's "
            f"reference kernels, in {len(wrong)} of {compared} pictures that were compared"
        )
    (error,) = messages(caplog, logging.ERROR)
    assert "computes wrongly" in error
    assert messages(caplog, logging.WARNING) == [
        "the results of such pictures are the CPU's",
        f"{uncompared} pictures before were not compared: from now on each one is",
    ]


def test_the_first_picture_is_compared_and_others_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 50.0
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    sample = Sample(is_all=False)
    assert sample.takes(0)
    sample.count(1, 0.4)
    assert sample.takes(1)  # 0.8 s in all are below a second
    sample.count(1, 0.4)
    assert not sample.takes(2)  # 1.2 s are not
    assert not sample.takes(101)
    now_s += 11.9
    assert not sample.takes(202)
    now_s += 0.2  # a tenth of 12.1 s
    assert sample.takes(202)
    assert not sample.takes(203)


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

    with series(device, batch) as made:
        monkeypatch.setattr(Executor, "_checked", fails)
        outcomes = outcomes_of(made, paths)
        assert got(outcomes) == expected(paths)
        assert made.judgement.gpu is None
        assert made.judgement.failure == "running: CL_DEVICE_NOT_AVAILABLE"
        done = 3 * (batch or 1)
        compared = [outcome.distances is not None for outcome in outcomes]
        assert compared == [True] * done + [False] * (7 - done)
    assert messages(caplog, logging.ERROR) == ["running: CL_DEVICE_NOT_AVAILABLE"]
    assert messages(caplog, logging.WARNING) == ["the CPU runs the model instead"]


def test_a_cpu_that_fails_is_left_out_of_the_comparison(
    device: DeviceInfo, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = OnePath.run

    def fails(self: OnePath, pixels: Any) -> Any:
        if self is made.judgement.cpu:
            raise RunError("Failed to invoke tflite!")
        return honest(self, pixels)

    with series(device, 2) as made:
        monkeypatch.setattr(OnePath, "run", fails)
        outcomes = outcomes_of(made, paths)
        assert got(outcomes) == expected(paths)
        assert made.judgement.cpu is None
        assert made.judgement.reasons["cpu"] == "Failed to invoke tflite!"
        assert made.judgement.totals.distances.gpu_to_reference == Difference(0)
        assert made.judgement.totals.distances.gpu_to_cpu == Difference(
            None, "Failed to invoke tflite!"
        )


@slow
def test_leaving_in_the_middle_ends_the_processes(paths: list[str]) -> None:
    before = set(os.listdir("/proc"))
    with series() as made:
        outcomes = Series(made).outcomes(paths * 50, Format(SIZE, "uint8"))
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


def test_the_largest_difference_of_all_pictures_counts() -> None:
    totals = Totals()
    for quanta in (0, 3, 1):
        ours = Difference(quanta)
        totals = totals.plus(
            Outcome("a", "", (), Distances(ours, Difference(2), Difference(None, "why")))
        )
    totals = totals.plus(Outcome("b", "not there"))
    assert totals.distances.gpu_to_reference == Difference(3)
    assert totals.distances.cpu_to_reference == Difference(2)
    assert totals.distances.gpu_to_cpu == Difference(None, "why")
    assert (totals.classified, totals.unreadable, totals.wrong) == (3, 1, 2)


def test_each_output_has_its_own_largest_difference() -> None:
    totals = Totals()
    for each in ((0, 0.5), (3, 0.25), (1, 0.0)):
        ours = Difference(each[0], "", each)
        totals = totals.plus(Outcome("a", "", (), Distances(ours, ours, ours)))
    assert totals.distances is not None
    assert totals.distances.gpu_to_reference.each == (3, 0.5)
    assert (totals.distances.gpu_to_reference.quanta, totals.distances.gpu_to_reference.floats) == (
        3,
        0.5,
    )


def test_floats_are_compared_where_asked(device: DeviceInfo, paths: list[str]) -> None:
    model = pooling_model("float32")
    job = Job(model, np.zeros(SIZE, np.float32), opencl=Options(device.index), reference=True)
    with opened(Paths(job, RUNTIME, read_model(model), floats=True)) as made:
        outcomes_of(made, paths, "float32")
        assert made.judgement.totals.distances is not None
        assert made.judgement.totals.distances.gpu_to_reference.floats is not None
        assert made.judgement.totals.distances.gpu_to_reference.floats < 1e-3
