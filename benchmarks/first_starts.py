# SPDX-License-Identifier: Apache-2.0
"""The difference between a first start and a tuned one, and the choices that cause it.

A first start runs lower()'s first alternative of each node, and the expected dispatch mode.
So this shows what the order of alternatives, or that expectation, should be on a device.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.measure import Contender, timed
from benchmarks.setup import SHUFFLENET, SQUEEZENET, V1, V2_FLOAT, Setup
from delegate import Model

MODELS = (V1, SHUFFLENET, SQUEEZENET, V2_FLOAT)
_CACHE = "TFLITE_OPENCL_CACHE"
_FIRST, _TUNED = "first start", "tuned"
_WORTH = 1.05  # relative time: smaller differences are noise
# Messages of the logger `delegate` about measurements: "node 3 (CONV_2D): tiled 610 us, plain 718
# us" in lower()'s order, and "whole: 0, one by one 1579 us".
_NODE = re.compile(r"node \d+ \((\w+)\): (.* us)$")
_CHOICE = re.compile(r"(?:, |^)(.+?) (\d+) us")


def first_starts(models: Sequence[str | Path], setup: Setup) -> str:
    """Return a table of both times for each model, then the choices that differ.

    Raises: Skipped: a model is not there.
    """
    lines = []
    for name in models:
        with _log_lines() as log_lines:
            times = _times(setup.model(name)[0], setup)
        ratio = times[_FIRST] / times[_TUNED]
        lines += [
            f"{Path(name).name}: first start {times[_FIRST]:.3f} ms, tuned {times[_TUNED]:.3f} ms, "
            f"{ratio:.2f} times as long",
            *(f"  {line}" for line in log_lines if line.startswith("whole: ")),
            *_other_choices(log_lines),
        ]
    return "\n".join(lines)


def _times(model: str, setup: Setup) -> dict[str, float]:
    """Return the shortest run of both in milliseconds, interleaved."""
    with (
        closing(_opened(model, setup, "quick")) as first,
        closing(_opened(model, setup, "full")) as tuned,
    ):
        inputs = [np.zeros(each.shape, each.dtype) for each in first.input_details]
        both = {_FIRST: first, _TUNED: tuned}
        contenders = [Contender(name, partial(one.run, inputs)) for name, one in both.items()]
        return {name: times.min_ms for name, times in timed(contenders, setup.runs).items()}


def _opened(model: str, setup: Setup, tune: str) -> Model:
    """Return a model opened with an empty cache."""
    old_cache = os.environ.get(_CACHE)
    with tempfile.TemporaryDirectory() as empty:
        os.environ[_CACHE] = empty
        try:
            return Model(model, setup.device, tune=tune)
        finally:
            del os.environ[_CACHE]
            if old_cache is not None:
                os.environ[_CACHE] = old_cache


@contextmanager
def _log_lines() -> Iterator[list[str]]:
    """Yield a list that gets the delegate's log lines."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("delegate")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _other_choices(told: Sequence[str]) -> list[str]:
    """Return how often, and by how much, the first alternative was not the fastest."""
    ratios: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for op, choices in (match.groups() for line in told if (match := _NODE.match(line))):
        times = [(name, int(us)) for name, us in _CHOICE.findall(choices)]
        (first, taken), (best, least) = times[0], min(times, key=lambda each: each[1])
        if taken > _WORTH * least:
            ratios[op, first, best].append(taken / max(least, 1))
    return [
        f"  {op}: '{best}' before '{first}', {fmean(each):.2f} times as fast in {len(each)} sizes"
        for (op, first, best), each in sorted(ratios.items())
    ]
