# SPDX-License-Identifier: Apache-2.0
"""What a run costs as one quantity grows: width, resolution, batch, threads. Prints nothing.

A series is a function that yields a place on its axis, and the milliseconds of each line there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from benchmarks.measure import Contender, Skipped, repeated, timed
from benchmarks.networks import RESOLUTIONS, WIDTHS, mobilenet_v1
from benchmarks.onnx_model import onnx_model
from benchmarks.peers import ONNX_RUNTIME, OPENVINO, Peers, Workload, onnx_runtime, openvino
from benchmarks.processes import output
from benchmarks.results import OPENCL, Sweep, load
from benchmarks.setup import POCL, THREAD_VARIABLES, V1, Setup
from delegate import DelegateError, Model
from delegate.inspect import write_model

BATCHES = (1, 2, 4, 8, 16, 32)
_RUNS = 100
_BATCH_RUNS = 20  # of each batch size: large ones take long
_OFFICIAL = {(0.25, 128), (0.75, 192), (1.0, 224)}  # what ../shared has
Points = Iterator[tuple[float, Mapping[str, float]]]


def measured(name: str, setup: Setup) -> Sweep:
    """Return a series by its name; one that cannot be measured here has no line, and says why."""
    title, x_label, points = _SERIES[name]
    lines: dict[str, list[tuple[float, float]]] = {}
    notes: list[str] = []
    try:
        for x, result in points(setup, notes):
            for line, min_ms in result.items():
                lines.setdefault(line, []).append((x, min_ms))
    except Skipped as reason:
        return Sweep(name, title, "", "", {}, [f"skipped: {reason}"])
    except (DelegateError, OSError, RuntimeError, ValueError) as error:
        return Sweep(name, title, "", "", {}, [f"failed: {error}"])
    ours_first = dict(sorted(lines.items(), key=lambda line: line[0].split(", ")[0] != OPENCL))
    return Sweep(name, title, x_label, "minimum, ms a picture", ours_first, notes)


def by_size(setup: Setup, notes: list[str]) -> Points:
    """Measure MobileNet V1 at every width and resolution, against the default CPU kernels."""
    info = setup.find(POCL)
    peer = setup.runtime.kernels("auto")
    notes.append(f"MobileNet V1, uint8, batch 1, {setup.threads} threads, {info.name}")
    for resolution in RESOLUTIONS:
        for width in WIDTHS:
            model = _family_model(setup, width, resolution)
            workload = setup.workload(model)
            ours = workload.interpreter("auto", [setup.delegate(model, info)])
            theirs = workload.interpreter("auto")
            contenders = [Contender(OPENCL, ours.invoke), Contender(peer, theirs.invoke)]
            paths = timed(contenders, min(setup.runs, _RUNS))
            yield width, {f"{name}, {resolution}": times.min_ms for name, times in paths.items()}


def by_batch(setup: Setup, notes: list[str]) -> Points:
    """Measure V1 in batches, through Model and in the runtimes that take batches."""
    info = setup.find(POCL)
    model, note = setup.model(V1)
    workload = setup.workload(model)
    notes += [f"{V1}, {setup.threads} threads, {info.name}", *([note] if note else [])]
    one_by_one = workload.interpreter("auto").invoke
    for batch in BATCHES:
        with setup.opened(model, info.index, batch) as ours:
            result = _peers(workload, ours, one_by_one, batch)
            paths = timed(result.contenders, min(setup.runs, _BATCH_RUNS))
        if batch == BATCHES[0]:
            notes += [f"{name}: {reason}" for name, reason in result.missing.items()]
        yield batch, {name: times.min_ms / batch for name, times in paths.items()}


def _peers(workload: Workload, ours: Model, one_by_one: Callable[[], object], batch: int) -> Peers:
    """Return our model and whoever else takes batches, or pictures one by one."""
    pictures = np.repeat(workload.inputs[0], batch, axis=0)
    planes = np.repeat(workload.picture, batch, axis=0)
    graph, threads = workload.graph, workload.threads
    peer = f"{workload.runtime.kernels('auto')}, one by one"
    available = Peers([Contender(OPENCL, partial(ours.run, pictures))])
    available.add(peer, lambda: repeated(one_by_one, batch))
    available.add(ONNX_RUNTIME, lambda: onnx_runtime(onnx_model(graph, batch), planes, threads))
    available.add(OPENVINO, lambda: openvino(onnx_model(graph, batch), [planes], threads))
    return available


def by_threads(setup: Setup, notes: list[str]) -> Points:
    """Measure V1 with one thread, two, ... up to all cores, each in a process of its own."""
    info = setup.find(POCL)
    model, note = setup.model(V1)
    notes += [f"{V1}, batch 1, {info.name}", *([note] if note else [])]
    wanted = (OPENCL, setup.runtime.kernels("auto"), ONNX_RUNTIME, OPENVINO)
    counts = [2**power for power in range(setup.threads.bit_length()) if 2**power < setup.threads]
    for threads in (*counts, setup.threads):
        result = setup.folder / "threads.json"
        words = (
            *("-m", "benchmarks", model, "--device", str(info.index), "--threads", str(threads)),
            *("--tune", setup.tune, "--count", str(min(setup.runs, _RUNS)), "--json", str(result)),
        )
        # PoCL reads its number of threads once, when it is loaded.
        output(words, dict.fromkeys(THREAD_VARIABLES, str(threads)))
        (row,) = load(result).rows
        yield threads, {name: each.min_ms for name, each in row.paths.items() if name in wanted}


def _family_model(setup: Setup, width: float, resolution: int) -> str:
    if (width, resolution) in _OFFICIAL:
        with contextlib.suppress(Skipped):
            return setup.model(f"mobilenet_v1_{width}_{resolution}_quant")[0]
    return setup.written(f"v1_{width}_{resolution}", write_model(mobilenet_v1(width, resolution)))


_SERIES: Mapping[str, tuple[str, str, Callable[[Setup, list[str]], Points]]] = {
    "width": ("Cost against width multiplier and resolution", "width multiplier", by_size),
    "batch": ("Cost against batch", "pictures a batch", by_batch),
    "threads": ("Cost against threads", "threads", by_threads),
}
NAMES = tuple(_SERIES)
