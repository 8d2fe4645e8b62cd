# SPDX-License-Identifier: Apache-2.0
"""Whole processes: the wall time of label_image, and the peak memory of a run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.measure import compared
from benchmarks.network import one_pool
from benchmarks.results import Figure, RowResult
from benchmarks.setup import Setup, TableRow
from benchmarks.versus import not_judged, too_few
from delegate import DeviceInfo
from tflite_opencl.timing.timing import Times, measure, turns

_WARM_ROUNDS, _COLD_RUNS, _MEMORY_RUNS = 15, 3, 3
_MOST_SETTLING_RUNS = 12
_CHECKOUT = Path(__file__).resolve().parents[1]
_COLD, _WARM, _CPU = "first time ever", "warm cache", "CPU alone"


def wall_times(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Time `label_image` on the model with and without --use_gpu, each in a new process.

    First run: the caches of the delegate and of the driver are empty.
    """
    picture, labels = setup.folder / "picture.bmp", setup.folder / "labels.txt"
    values = np.random.default_rng(0).integers(0, 256, (600, 512, 3), np.uint8)
    Image.fromarray(values).save(picture)
    labels.write_text("".join(f"class {number}\n" for number in range(1001)))
    cpu = [
        *("-m", "label_image", "--tflite_model", model, "--image", str(picture)),
        *("--labels", str(labels), "-c", "1", "-t", str(setup.threads)),
    ]
    opencl = [*cpu, "--use_gpu", "--compare=false", "--device", str(info.index)]

    blocks: dict[str, dict[int, Times]] = {_WARM: {}, _CPU: {}, _COLD: {}}
    for round_ in range(min(_COLD_RUNS, setup.runs)):
        with tempfile.TemporaryDirectory(dir=setup.folder) as cache:
            blocks[_COLD][round_] = _timed(opencl, cache)
    rounds = min(_WARM_ROUNDS, setup.runs)
    with tempfile.TemporaryDirectory(dir=setup.folder) as cache:
        _settle(opencl, cache)
        for round_, (name, command) in turns([(_WARM, opencl), (_CPU, cpu)], rounds):
            blocks[name][round_] = _timed(command, cache)
    paths = compared(blocks)
    more_s = (paths[_WARM].min_ms - paths[_CPU].min_ms) / 1e3
    reason = not_judged(setup, info) or too_few(rounds, _WARM_ROUNDS)
    result = zip(row.goals, (paths[_COLD].min_ms / 1e3, more_s), strict=True)
    return RowResult(paths=paths, figures=[Figure(*each, reason) for each in result])


def memory(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Compare the peak memory of processes that run the model, each in a new process.

    The driver's part is what a process that opens the device and builds one small kernel needs
    beyond one that does all the same without a device.
    """
    small = setup.written("small", one_pool())
    with tempfile.TemporaryDirectory(dir=setup.folder) as cache:

        def command(what: str, path: str) -> list[str]:
            words = ["-m", "benchmarks.peak", what, path, str(setup.threads)]
            return [*words, str(info.index)] if what == "opencl" else words

        def peak(what: str, path: str, runs: int = _MEMORY_RUNS) -> float:
            outputs = (output(command(what, path), _caches(cache)) for _ in range(runs))
            return statistics.median(map(float, outputs)) / 1e6

        first = peak("opencl", model, 1)
        for path in (model, small):
            _settle(command("opencl", path), cache)
        with_delegate, cpu = peak("opencl", model), peak("cpu", model)
        driver = peak("opencl", small) - peak("modules", small)
    more = with_delegate - cpu - driver
    return RowResult(
        figures=[Figure(row.goals[0], more, not_judged(setup, info))],
        notes=[
            f"peak: CPU {cpu:.0f} MB, with the delegate {with_delegate:.0f} MB, of which the "
            f"driver's own {driver:.0f} MB; medians of {_MEMORY_RUNS} processes each",
            f"the first time, while the driver compiles: {first:.0f} MB",
        ],
    )


def _caches(folder: str) -> Mapping[str, str]:
    """Return the environment that puts every cache into this folder."""
    places = ("TFLITE_OPENCL_CACHE", "POCL_CACHE_DIR", "XDG_CACHE_HOME")
    return {name: str(Path(folder, name.lower())) for name in places}


def _settle(command: Sequence[str], cache: str) -> None:
    """Run a command until it does not change the cache: nothing is left to build or tune."""
    ours = Path(_caches(cache)["TFLITE_OPENCL_CACHE"])
    result: object = None
    for _ in range(_MOST_SETTLING_RUNS):
        output(command, _caches(cache))
        left = {path: path.stat().st_mtime_ns for path in ours.rglob("*")}
        if left == result:
            return
        result = left


def _timed(command: Sequence[str], cache: str) -> Times:
    return measure(lambda: output(command, _caches(cache)), 1, 0)


def output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the output of Python with these arguments, in this checkout.

    Raises: RuntimeError: it ended with another code than 0.
    """
    child = subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment_of(environment),
        check=False,
    )
    if child.returncode != 0:
        lines = [line for line in child.stderr.splitlines() if line.strip()]
        telling = [line for line in lines if "Error" in line or line.startswith("WARNING")]
        shown = (telling or lines or ["nothing was said"])[-1]
        raise RuntimeError(f"{' '.join(command[:2])} ended with {child.returncode}: {shown}")
    return child.stdout


def environment_of(more: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the environment of a process that has this checkout's packages."""
    paths = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": paths, **(more or {})}
