# SPDX-License-Identifier: Apache-2.0
"""label_image on a small model with a failing OpenCL library, and the outcomes of its runs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image

from delegate.guard.children.trials import SELF_TEST
from delegate.guard.store import BANS, CHOICES, FACTS, TRIALS, Store, stores
from delegate.run.copy_strategies import COPY_CHOICE
from tests.attacks.faults import CHILDREN, COMMAND, STATUSES, Fault, calls_of
from tests.support.command import FILES, ROWS, pooling_nodes
from tests.support.model import chain_model, const, op, t
from tests.support.process import ROOT

# Allowed outcomes of a run. Any other is a finding.
RIGHT = "right rows, exit 0"
LEFT = "right rows, exit 0, a WARN that the CPU has nodes"
CPU = "an ERROR, the CPU's rows, exit 2"
LOST = "right rows, exit 3, an ERROR that the CPU has most nodes"
ALLOWED = (RIGHT, LEFT, CPU, LOST)

LIMIT_SECONDS = 240  # for a run
# label_image waits a minute or two for a hanging child, for slow boards; the tests wait less.
_START = """
import sys
from delegate.guard.children import helper
from label_image.__main__ import main
helper.STEP_SECONDS, helper.BETWEEN_SECONDS = 15, 30
sys.exit(main())
"""
COMMAND_LINE = (sys.executable, "-c", _START, *FILES, "--use_gpu")
DEVICE_TIMEOUT = 20  # seconds, if the device dies or hangs later: enough for a busy machine
_MOST_WARM_UPS = 6
# Calls whose data can be lost or changed.
_LIES = {
    "clEnqueueNDRangeKernel": ("skip",),
    "clEnqueueReadBuffer": ("skip", "flip"),
    "clEnqueueWriteBuffer": ("skip", "flip"),
    "clEnqueueMapBuffer": ("flip",),
}
_DEATHS = ("abort", "crash", "hang")


@dataclass(frozen=True, slots=True)
class Attack:
    """A kind of failure, injected at the calls of a run.

    Attributes:
        name: for the table; forgets: folders and tables that are removed from the cache, so that
            child processes do their work again; arguments: for label_image.
    """

    name: str
    forgets: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    def faults(self, call: str, nth: int) -> Iterator[Fault]:
        """Yield the faults for one call."""
        if self.name == "error":
            yield Fault(call, nth, "error", status=STATUSES[nth % len(STATUSES)])
        elif self.name == "lost":
            yield Fault(call, nth, "error", lasts=True)
        elif self.name == "lie":
            yield from (Fault(call, nth, kind) for kind in _LIES.get(call, ()))
        else:
            yield Fault(call, nth, _DEATHS[nth % len(_DEATHS)], place=CHILDREN)

    @property
    def place(self) -> str:
        """The processes whose calls are counted."""
        return CHILDREN if "death" in self.name else COMMAND


WORK = "plans", "constants", "programs", TRIALS, BANS, CHOICES  # of a model, not of its device
ATTACKS = (
    Attack("error"),
    Attack("lost"),
    Attack("lie"),
    # Untuned: otherwise the children that tune would die, and the run would succeed.
    Attack("death", arguments=("--device_timeout", str(DEVICE_TIMEOUT), "--tune", "off")),
    Attack("cold death", forgets=("devices", "records", "icds", "plans", "constants", "programs")),
    Attack("kernel death", forgets=WORK),
)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The end of a run."""

    code: int | None  # None: it did not end
    lines: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """One of ALLOWED, or a description of the fault."""
        rows = [line for line in self.lines if line in ROWS or line.startswith("INFO: 0.")]
        messages = [line for line in self.lines if line.startswith(("WARN: ", "ERROR: "))]
        if self.code is None:
            return "no end within its time"
        if self.code < 0:
            return f"died with {signal.Signals(-self.code).name}"
        if any(line.startswith("Traceback") for line in self.lines):
            return "a traceback"
        if self.code not in (0, 2, 3):
            return f"exit {self.code}: {messages[-1] if messages else ''}"
        if rows != ROWS:
            return f"wrong rows, exit {self.code}: {rows}"
        if self.code == 2:
            has_error = any(line.startswith("ERROR: ") for line in messages)
            return CPU if has_error else "exit 2, no ERROR"
        if self.code == 3:
            is_lost = messages and messages[-1].startswith("ERROR: the CPU ran ")
            return LOST if is_lost else "exit 3, no ERROR"
        if any("3 of 3 on OpenCL" in line for line in self.lines):
            return RIGHT
        return LEFT if messages else "the CPU has nodes, and no line says so"


class Bed:
    """A test bed: a model, a picture, and a warm cache."""

    def __init__(
        self, folder: Path, library: Path, device: str, transfer: str = "", like: Bed | None = None
    ) -> None:
        """Warm up the cache.

        `device`: words of its name; `transfer`: the copy strategy, "" for the measured one;
        `like`: another bed of the device, whose cache is copied.

        Raises: RuntimeError: the run fails without a fault.
        """
        self._folder, self._library, self._device = folder, library, device
        self._numbers = itertools.count()
        write_files(folder)
        self._warm = folder / "warm"
        if like is None:
            self._warm.mkdir()
            self._warm_up()
        else:
            shutil.copytree(like._warm, self._warm)
        if transfer:
            _choose(transfer, self._warm)
            forget(self._warm, "plans")  # with another copy strategy
            self._warm_up()
        self._calls: dict[str, Counter[str]] = {}

    def calls(self, attack: Attack) -> Counter[str]:
        """Return the number of calls of each function in the processes that an attack targets."""
        if attack.name not in self._calls:
            counts = self._counted(attack.arguments, self._cache(attack))
            self._calls[attack.name] = counts[attack.place]
        return self._calls[attack.name]

    def faults(self, attack: Attack, most: int | None = None) -> Iterator[Fault]:
        """Yield an attack's faults at up to `most` calls of each function (None: at all)."""
        for call, count in sorted(self.calls(attack).items()):
            number = count if most is None else min(most, count)
            places = {int(place) for place in np.linspace(1, count, number)}
            for nth in sorted(places):
                yield from attack.faults(call, nth)

    def run(self, attack: Attack, fault: Fault) -> FinishedRun:
        """Run label_image with the fault, in a copy of the cache."""
        copy = self._cache(attack)
        if attack.forgets:
            # Only once, because the call with this number would end every new child, too.
            fault = replace(fault, once=str(copy / "died"))
        try:
            return self._run(attack.arguments, copy, fault.environment)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _warm_up(self) -> None:
        """Run until starts have nothing left to build or measure."""
        seen: Counter[str] = Counter()
        for _ in range(_MOST_WARM_UPS):
            calls = self._counted((), self._warm)[COMMAND]
            if calls == seen:
                break
            seen = calls

    def _cache(self, attack: Attack) -> Path:
        cache = self._folder / f"cache{next(self._numbers)}"
        shutil.copytree(self._warm, cache)
        forget(cache, *attack.forgets)
        return cache

    def _counted(self, arguments: Sequence[str], cache: Path) -> dict[str, Counter[str]]:
        counts = self._folder / "counts"
        counts.unlink(missing_ok=True)
        ran = self._run(arguments, cache, {"FAULT_COUNTS": str(counts)})
        if ran.outcome != RIGHT:
            raise RuntimeError(f"without a fault: {ran.outcome}: {ran.lines}")
        return calls_of(counts)

    def _run(
        self, arguments: Sequence[str], cache: Path, environment: dict[str, str]
    ) -> FinishedRun:
        variables = {
            **environment,
            "LD_PRELOAD": str(self._library),
            "TFLITE_OPENCL_CACHE": str(cache),
        }
        return run_label_image(self._folder, self._device, *arguments, **variables)


def forget(cache_folder: Path, *names: str) -> None:
    """Remove folders from a cache, and tables from its devices' files.

    TRIALS leaves out self-tests, which SELF_TEST removes.
    """
    for name in names:
        shutil.rmtree(cache_folder / name, ignore_errors=True)
    with patch.dict(os.environ, TFLITE_OPENCL_CACHE=str(cache_folder)):
        for store in stores():
            tables = {table: {*store.load(table)} for table in (FACTS, TRIALS, BANS, CHOICES)}
            tables[TRIALS] -= {*proofs_in(store)}
            for name in tables.keys() & {*names}:
                store.save(name, {}, gone=tables[name])
            if SELF_TEST in names:
                store.save(TRIALS, {}, gone=proofs_in(store))


def proofs_in(store: Store) -> dict[str, str]:
    """Return the stored results of a device's self-tests."""
    trials = store.load(TRIALS)
    return {key: how for key, how in trials.items() if json.loads(key)[0] == SELF_TEST}


def _choose(transfer: str, cache_folder: Path) -> None:
    """Store a copy strategy as the measured choice."""
    with patch.dict(os.environ, TFLITE_OPENCL_CACHE=str(cache_folder)):
        # A slow machine's first start measures nothing.
        known = [store for store in stores() if store.load(TRIALS)]
        assert known, "no start has tried anything"
        for store in known:
            store.save(CHOICES, {COPY_CHOICE: transfer})


def run_label_image(
    folder: Path, device: str, *arguments: str, seconds: float = LIMIT_SECONDS, **environment: str
) -> FinishedRun:
    """Run the command in a folder with the files of `write_files`; kill it after `seconds`."""
    child = subprocess.Popen(
        [*COMMAND_LINE, "--device", device, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        _, errors = child.communicate()
        return FinishedRun(None, tuple(errors.splitlines()))
    return FinishedRun(child.returncode, tuple(errors.splitlines()))


def write_files(folder: Path) -> None:
    """Write a model, a picture and labels whose result is ROWS; its weights matter."""
    pixels, copied = (t((1, 4, 4, 3), "uint8", 0.5, 0) for _ in range(2))
    weights = const(255 * np.eye(3, dtype=np.uint8).reshape(3, 1, 1, 3), 1 / 255, 0)
    bias = const(np.zeros(3, np.int32), 0.5 / 255)
    window = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
    nodes = [op("CONV_2D", [pixels, weights, bias], [copied], window), *pooling_nodes(copied)]
    (folder / "model.tflite").write_bytes(chain_model(nodes))
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    Image.new("RGB", (4, 4), (51, 204, 102)).save(folder / "picture.bmp")
