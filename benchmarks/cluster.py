# SPDX-License-Identifier: Apache-2.0
"""The overhead of --scheduler: for a chunk, for many boards, and the memory of a long run.

The scheduler and the boards are processes of this machine. CPU times are shown next to wall
times, because they do not depend on other programs' load.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import psutil  # distributed needs it, too
from PIL import Image

from benchmarks.cluster_boards import SleepWork
from benchmarks.measure import Skipped
from benchmarks.processes import environment_of
from delegate.inspect import write_model
from tflite_opencl.cli.scheduler import Scheduler
from tflite_opencl.cluster.client import ANYWHERE, Cluster
from tflite_opencl.models.build import graph, node, numbers, tensor

_SECONDS = 5.0  # shortest measurement
_PROCESSES = 4  # most processes of boards: more boards share them
_WORKERS = (1, 2, 4)
_BOARDS = (*_WORKERS, 16, 64)
_CHUNK_S = (0.1, 0.5, 2.0)  # label_image's chunks take the last
_MIB = 1 << 20
_PICTURES, _SAMPLES = 100_000, (0.02, 0.1, 0.25, 0.5, 0.75, 1.0)
_READY_S, _LOOK_S = 120.0, 0.2


@dataclass(frozen=True, slots=True)
class ClusterProcesses:
    """A scheduler with its boards."""

    address: str
    scheduler: int  # process
    boards: Sequence[int]  # processes


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """Times of some chunks."""

    chunks: int
    seconds: float
    command: float  # CPU seconds, as all below
    scheduler: float
    boards: float

    def milliseconds(self, seconds: float) -> str:
        """Return one of these times per chunk."""
        return f"{1e3 * seconds / self.chunks:.2f}"


def cluster(parts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of Markdown tables; `parts`: names of PARTS."""
    for part in parts:
        yield f"{_machine()}\n"
        yield from PARTS[part]()
        yield ""


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield f"|{'---|' * len(names)}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _machine() -> str:
    """Return the state of the machine, for readers of the figures."""
    begin_s = time.process_time()
    sum(number for number in range(10**6))
    loop_ms, load = 1e3 * (time.process_time() - begin_s), os.getloadavg()[0]
    return (
        f"load {load:.1f} on {len(os.sched_getaffinity(0))} cores; "
        f"a loop of Python over 10^6 numbers takes {loop_ms:.0f} ms of a processor"
    )


def _chunks() -> Iterator[str]:
    """Yield the cost of an empty chunk, and of one with bytes."""
    yield from _head(
        *("workers", "chunk", "chunks/s", "ms a chunk and worker"),
        *("scheduler, CPU ms a chunk", "command, CPU ms", "worker, CPU ms"),
    )
    for count, content in [*((count, 0) for count in _WORKERS), (2, _MIB), (2, 16 * _MIB)]:
        with running_cluster(count) as there:
            spent = run_chunks(there, count, 0.0, os.urandom(content))
        size = f"{content // _MIB} MiB" if content else "nothing"
        each = spent.milliseconds(spent.seconds * count)
        parts = map(spent.milliseconds, (spent.scheduler, spent.command, spent.boards))
        rate = f"{spent.chunks / spent.seconds:.0f}"
        yield _line(str(count), size, rate, each, *parts)


def _boards() -> Iterator[str]:
    """Yield the utilisation of boards, and the load of this machine."""
    yield from _head(
        *("boards", "a chunk takes, s", "boards work", "chunks/s"),
        *("scheduler, CPU load", "command, CPU load", "all boards, CPU load"),
    )
    for count in _BOARDS:
        with running_cluster(count) as there:
            for seconds in _CHUNK_S:
                spent = run_chunks(there, count, seconds, b"")
                busy = spent.chunks * seconds / (count * spent.seconds)
                rate = f"{spent.chunks / spent.seconds:.1f}"
                loads = spent.scheduler, spent.command, spent.boards
                shown = (f"{each / spent.seconds:.0%}" for each in loads)
                yield _line(str(count), f"{seconds:g}", f"{busy:.1%}", rate, *shown)


def run_chunks(there: ClusterProcesses, count: int, seconds: float, content: bytes) -> ChunkTimes:
    """Send chunks that wait, and return the times; `content`: bytes sent with each."""
    with Cluster(Scheduler(there.address), needs_device=False) as reached:
        reached.begin(SleepWork(reached.name, None, False, 0.0))
        _until(lambda: reached.places().get(ANYWHERE, 0) >= count)

        def run(chunks: Iterator[tuple[float, bytes]]) -> int:
            return sum(1 for _ in reached.results({ANYWHERE: chunks}))

        run(itertools.repeat((0.0, content), 2 * count))  # connections are made
        end = time.monotonic() + max(_SECONDS, 4 * seconds)
        chunks = itertools.takewhile(
            lambda _: time.monotonic() < end, itertools.repeat((seconds, content))
        )
        before, begin_s = _processors(there), time.perf_counter()
        done = run(chunks)
        took_s, after = time.perf_counter() - begin_s, _processors(there)
    return ChunkTimes(done, took_s, *(b - a for a, b in zip(before, after, strict=True)))


def _processors(there: ClusterProcesses) -> tuple[float, float, float]:
    """Return the CPU seconds of this process, the scheduler and the boards."""
    boards = sum(map(_processor_s, there.boards))
    return time.process_time(), _processor_s(there.scheduler), boards


def _processor_s(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def running_cluster(count: int) -> Iterator[ClusterProcesses]:
    """Yield a scheduler and boards, in separate processes. Raises: Skipped."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:

        def start(*command: str) -> int:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], env=environment_of(),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process.pid

        file = Path(folder, "scheduler.json")
        scheduler = start(
            *("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"),
            *("--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)),
        )
        _until(file.exists)
        address = json.loads(file.read_text())["address"]
        processes = min(count, _PROCESSES)
        first = [count * number // processes for number in range(processes + 1)]
        boards = [
            start("benchmarks.cluster_boards", address, str(a), str(b - a))
            for a, b in itertools.pairwise(first)
        ]
        with distributed.Client(address) as client:
            client.wait_for_workers(count, timeout=_READY_S)
        yield ClusterProcesses(address, scheduler, boards)


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _READY_S
    while not is_so():
        if time.monotonic() > end:
            raise Skipped("the scheduler or its boards do not start")
        time.sleep(0.05)


def _pictures(count: int = _PICTURES) -> Iterator[str]:
    """Yield the memory of label_image, of the scheduler and of two workers while they classify."""
    yield from _head(
        *("pictures", "seconds", "command, MiB", "scheduler, MiB"),
        *("a worker with its decoders, MiB", "command, CPU ms a picture"),
        "scheduler, CPU ms a picture",
    )
    with tempfile.TemporaryDirectory() as folder, running_cluster(2) as there:
        rows = Path(folder, "rows.jsonl")
        command = _classifier(Path(folder), count, there.address, rows)
        samples = [max(1, int(count * part)) for part in _SAMPLES]
        begin_s, done, read = time.monotonic(), 0, 0
        with subprocess.Popen(command, cwd=folder, env=environment_of(), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:  # fmt: skip
            while samples and process.poll() is None:
                time.sleep(_LOOK_S)
                if rows.exists():
                    with rows.open("rb") as file:
                        file.seek(read)
                        new = file.read()
                    done, read = done + new.count(b"\n"), read + len(new)
                if done >= samples[0]:
                    samples = [each for each in samples if each > done]
                    workers = sum(map(_memory, there.boards)) / len(there.boards)
                    memory = _memory(process.pid), _memory(there.scheduler), workers
                    seconds = f"{time.monotonic() - begin_s:.0f}"
                    spent = map(_processor_s, (process.pid, there.scheduler))
                    yield _line(
                        f"{done:,}", seconds, *(f"{each:.0f}" for each in memory),
                        *(f"{1e3 * each / done:.3f}" for each in spent),
                    )  # fmt: skip
            _, output = process.communicate()
        if process.returncode:
            raise Skipped(f"label_image ended with {process.returncode}: {output.decode()[-200:]}")


def _classifier(folder: Path, count: int, address: str, rows: Path) -> list[str]:
    """Write small pictures; return the command that classifies them."""
    picture, pooled, flat, shares = (
        tensor(shape, "uint8", scale)
        for shape, scale in (
            ((1, 8, 8, 3), 0.5), ((1, 1, 1, 3), 0.5), ((1, 3), 0.5), ((1, 3), 1 / 256),
        )
    )  # fmt: skip
    window = {"stride_w": 8, "stride_h": 8, "filter_width": 8, "filter_height": 8}
    nodes = [
        node("AVERAGE_POOL_2D", [picture], [pooled], {"padding": "VALID", **window}),
        node("RESHAPE", [pooled, numbers((1, 3))], [flat], {"new_shape": [1, 3]}),
        node("SOFTMAX", [flat], [shares], {"beta": 0.1}),
    ]
    (folder / "model.tflite").write_bytes(write_model(graph(nodes)))
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    first, pictures = folder / "first.bmp", folder / "pictures"
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(first)
    pictures.mkdir()
    for number in range(count):
        (pictures / f"{number:06}.bmp").write_bytes(first.read_bytes())
    return [
        *(sys.executable, "-m", "label_image", "-m", "model.tflite", "-l", "labels.txt"),
        *("-i", "pictures", "--scheduler", address, "--json_lines", str(rows)),
    ]


def _memory(process: int) -> float:
    """Return the resident MiB of a process and its children."""
    result = 0
    with contextlib.suppress(psutil.Error):
        own = psutil.Process(process)
        for each in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has ended just now
                result += each.memory_info().rss
    return result / _MIB


PARTS: Mapping[str, Callable[[], Iterator[Any]]] = {
    "chunks": _chunks,
    "boards": _boards,
    "pictures": _pictures,
}
