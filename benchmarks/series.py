# SPDX-License-Identifier: Apache-2.0
"""What a run costs as one quantity grows: width, resolution, batch, threads. Prints nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.family import RESOLUTIONS, WIDTHS, mobilenet_v1
from benchmarks.measure import Contender, compared, in_turns
from benchmarks.missing import Skipped
from benchmarks.onnx_model import onnx_model
from benchmarks.peers import ONNX_RUNTIME, OPENVINO, Workload, onnx_runtime, openvino
from benchmarks.results import OPENCL, Series, load
from benchmarks.setup import POCL, THREAD_VARIABLES, V1, Setup
from benchmarks.versus import new_delegate
from delegate import DelegateError, Model
from delegate.inspect import write_model

BATCHES = (1, 2, 4, 8, 16, 32)
_RUNS = 100
_BATCH_RUNS = 20  # of each batch size: large ones take long
_CHECKOUT = Path(__file__).resolve().parents[1]
_OFFICIAL = {(0.25, 128), (0.75, 192), (1.0, 224)}  # what ../shared has


def measured(name: str, setup: Setup) -> Series:
    """Return a series by its name; one that cannot be measured here has no line, and says why."""
    title, make = _SERIES[name]
    try:
        return make(setup)
    except Skipped as reason:
        return Series(name, title, "", "", {}, [f"skipped: {reason}"])
    except (DelegateError, OSError, RuntimeError, ValueError) as error:
        return Series(name, title, "", "", {}, [f"failed: {error}"])


def by_size(setup: Setup) -> Series:
    """Measure MobileNet V1 at every width and resolution, against the default CPU kernels."""
    info = setup.find(POCL)
    peer = setup.runtime.kernels("auto")
    lines: dict[str, list[tuple[float, float]]] = {}
    for resolution in RESOLUTIONS:
        for width in WIDTHS:
            model = _family_model(setup, width, resolution)
            workload = Workload(model, setup.runtime, setup.threads)
            ours = workload.interpreter("auto", [new_delegate(model, info, setup)])
            contenders = [Contender(OPENCL, ours), Contender(peer, workload.interpreter("auto"))]
            paths = compared(in_turns(contenders, min(setup.runs, _RUNS)), OPENCL)
            for name, times in paths.items():
                lines.setdefault(f"{name}, {resolution}", []).append((width, times.min_ms))
    return Series(
        "width",
        _SERIES["width"][0],
        "width multiplier",
        "minimum, ms a picture",
        dict(sorted(lines.items(), key=lambda line: line[0].split(", ")[0] != OPENCL)),
        [f"MobileNet V1, uint8, batch 1, {setup.threads} threads, {info.name}"],
    )


def by_batch(setup: Setup) -> Series:
    """Measure V1 in batches, through Model and in the runtimes that take batches."""
    info = setup.find(POCL)
    model, note = setup.model(V1)
    workload = Workload(model, setup.runtime, setup.threads)
    lines: dict[str, list[tuple[float, float]]] = {}
    notes = [f"{V1}, {setup.threads} threads, {info.name}", *([note] if note else [])]
    peer = f"{setup.runtime.kernels('auto')}, one by one"
    one_by_one = workload.interpreter("auto")
    for batch in BATCHES:
        with contextlib.closing(Model(model, info.index, batch=batch, tune=setup.tune)) as ours:
            pictures = np.repeat(workload.inputs[0], batch, axis=0)
            contenders = [Contender(OPENCL, partial(ours.run, pictures))]
            contenders.append(Contender(peer, _repeated(one_by_one, batch)))
            for name, make in _onnx_peers(workload, batch).items():
                try:
                    contenders.append(Contender(name, make()))
                except Skipped as reason:
                    if batch == BATCHES[0]:
                        notes.append(f"{name}: {reason}")
            paths = compared(in_turns(contenders, min(setup.runs, _BATCH_RUNS)), OPENCL)
        for name, times in paths.items():
            lines.setdefault(name, []).append((batch, times.min_ms / batch))
    return Series(
        "batch", _SERIES["batch"][0], "pictures a batch", "minimum, ms a picture", lines, notes
    )


def by_threads(setup: Setup) -> Series:
    """Measure V1 with one thread, two, ... up to all cores, each in a process of its own."""
    info = setup.find(POCL)
    model, note = setup.model(V1)
    counts = [2**power for power in range(setup.threads.bit_length()) if 2**power < setup.threads]
    lines: dict[str, list[tuple[float, float]]] = {}
    for threads in (*counts, setup.threads):
        paths = _in_child(setup, model, info.index, threads)
        for name, min_ms in paths.items():
            lines.setdefault(name, []).append((threads, min_ms))
    return Series(
        "threads",
        _SERIES["threads"][0],
        "threads",
        "minimum, ms a picture",
        lines,
        [f"{V1}, batch 1, {info.name}", *([note] if note else [])],
    )


def _family_model(setup: Setup, width: float, resolution: int) -> str:
    if (width, resolution) in _OFFICIAL:
        with contextlib.suppress(Skipped):
            return setup.model(f"mobilenet_v1_{width}_{resolution}_quant")[0]
    path = setup.folder / f"v1_{width}_{resolution}.tflite"
    if not path.is_file():
        path.write_bytes(write_model(mobilenet_v1(width, resolution)))
    return str(path)


def _onnx_peers(workload: Workload, batch: int) -> Mapping[str, Callable[[], Callable[[], object]]]:
    def network() -> bytes:
        return onnx_model(workload.graph, batch)

    pictures = np.repeat(workload.picture, batch, axis=0)
    threads = workload.threads
    return {
        ONNX_RUNTIME: lambda: onnx_runtime(network(), pictures, threads),
        OPENVINO: lambda: openvino(network(), [pictures], threads),
    }


def _repeated(run: Callable[[], object], times: int) -> Callable[[], object]:
    def several() -> None:
        for _ in range(times):
            run()

    return several


def _in_child(setup: Setup, model: str, device: int, threads: int) -> Mapping[str, float]:
    # PoCL reads its number of threads once, when it is loaded.
    counts = dict.fromkeys(THREAD_VARIABLES, str(threads))
    result = setup.folder / "threads.json"
    paths = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH", ""))))
    command = [
        *(sys.executable, "-m", "benchmarks", model, "--device", str(device)),
        *(
            "--threads",
            str(threads),
            "--tune",
            setup.tune,
            "--count",
            str(min(setup.runs, _RUNS)),
            "--json",
            str(result),
        ),
    ]
    child = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **counts, "PYTHONPATH": paths},
        check=False,
    )
    if child.returncode != 0:
        raise RuntimeError(f"with {threads} threads: {child.stderr.strip().splitlines()[-1:]}")
    (row,) = load(result).rows
    wanted = (OPENCL, setup.runtime.kernels("auto"), ONNX_RUNTIME, OPENVINO)
    return {name: times.min_ms for name, times in row.paths.items() if name in wanted}


_SERIES: Mapping[str, tuple[str, Callable[[Setup], Series]]] = {
    "width": ("Cost against width multiplier and resolution", by_size),
    "batch": ("Cost against batch", by_batch),
    "threads": ("Cost against threads", by_threads),
}
NAMES = tuple(_SERIES)
