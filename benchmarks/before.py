# SPDX-License-Identifier: Apache-2.0
"""An older checkout of this project as a contender, in its own process."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import Contender, Skipped
from benchmarks.setup import Setup
from delegate import DeviceInfo
from tflite_opencl.timing.timing import Times

_CHILD = Path(__file__).with_name("before_peer.py")
NAME = "OpenCL before"


@contextlib.contextmanager
def contender(checkout: Path, model: str, setup: Setup, info: DeviceInfo) -> Iterator[Contender]:
    """Yield the older delegate on a model and a device, after its first run.

    Raises: Skipped: it does not run the model.
    """
    inputs = str(setup.folder / "inputs.npz")
    np.savez(inputs, *setup.workload(model).inputs)
    interpreter = setup.runtime.module.__name__
    given = [model, inputs, interpreter, info.index, setup.tune, setup.threads]
    child = subprocess.Popen(
        [sys.executable, _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(checkout)},
    )

    def ask(question: object) -> list[float]:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(f"{json.dumps(question)}\n")
            child.stdin.flush()
            results: list[float] = json.loads(child.stdout.readline())
        except (OSError, ValueError):
            status = child.wait()
            raise Skipped(f"{checkout.name} does not run the model: exit code {status}") from None
        return results

    def timed(_: Callable[[], object], count: int, warmup: int) -> Times:
        runs_ms = ask(warmup + count)[warmup:]
        total = sum(runs_ms)
        return Times(total / count, min(runs_ms), statistics.median(runs_ms), total, 0.0, count)

    try:
        ask(given)
        yield Contender(NAME, lambda: ask(1), measure=timed)
    finally:
        child.kill()
        child.communicate()
