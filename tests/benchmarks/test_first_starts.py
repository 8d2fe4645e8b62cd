# SPDX-License-Identifier: Apache-2.0
"""Comparison of a first start with a tuned one: times and choices."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import first_starts
from benchmarks.measure import PathTimes

LINES = {
    "quick": [],
    "full": [
        "node 0 (CONV_2D): tiled 4x4 300 us, tiled 8x8 100 us",
        "node 1 (CONV_2D): tiled 4x4 200 us, tiled 8x8 100 us",
        "node 2 (ADD): vector 16 100 us, vector 8 99 us",
        "whole: 0, one by one 213 us, 0, persistent 125 us",
        "graph on a device",
    ],
}


def test_times_and_different_choices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = []

    class Model:
        def __init__(self, model: str, device: str | None, tune: str) -> None:
            assert (model, device) == ("m.tflite", "pocl")
            folders.append(os.environ["TFLITE_OPENCL_CACHE"])
            self.input_details = [SimpleNamespace(shape=(1, 2), dtype=np.uint8)]
            for line in LINES[tune]:
                logging.getLogger("delegate").debug("%s", line)

        def run(self, inputs: object) -> None: ...

        def close(self) -> None: ...

    def timed(contenders: object, runs: int) -> dict[str, PathTimes]:
        least = {"first start": 3.0, "tuned": 2.0}
        return {name: PathTimes(1, ms, ms, 1, 1, (1, 1)) for name, ms in least.items()}

    monkeypatch.setenv("TFLITE_OPENCL_CACHE", "mine")
    monkeypatch.setattr(first_starts, "Model", Model)
    monkeypatch.setattr(first_starts, "timed", timed)
    setup: Any = SimpleNamespace(device="pocl", runs=9, model=lambda name: (f"{name}.tflite", ""))
    assert first_starts.first_starts(["m"], setup).splitlines() == [
        "m: first start 3.000 ms, tuned 2.000 ms, 1.50 times as long",
        "  whole: 0, one by one 213 us, 0, persistent 125 us",
        "  CONV_2D: 'tiled 8x8' before 'tiled 4x4', 2.50 times as fast in 2 sizes",
    ]
    assert len({*folders, "mine"}) == 3
    assert os.environ["TFLITE_OPENCL_CACHE"] == "mine"
    assert not any(map(os.path.exists, folders))
