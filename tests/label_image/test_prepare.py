# SPDX-License-Identifier: Apache-2.0
"""What a run does only where somebody sees it on a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from label_image import flags
from label_image.prepare import prepare
from tests.support.command import pooling_model
from tests.support.model import t
from tflite_opencl.harness.job import Job


def job(folder: Path, *words: str) -> Job:
    """Return the job of a command line."""
    path = folder / "model.tflite"
    path.write_bytes(pooling_model(t((1, 4, 4, 3), "uint8", 1.0, 0)))
    settings = flags.parse(["-m", str(path), "--use_gpu", *words])
    return prepare(settings).job(np.zeros((1, 4, 4, 3), np.uint8))


@pytest.mark.parametrize(
    ("is_terminal", "words", "tune", "is_longer"),
    [
        (False, [], "quick", False),
        (True, [], "quick", True),
        (True, ["--profiling", "1"], "full", True),
        (True, ["--tune", "quick"], "quick", True),
        (True, ["--compare=false"], "quick", False),
        (False, ["--tune", "full"], "full", False),
    ],
)
def test_a_long_start_and_a_long_comparison_are_for_a_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    words: list[str],
    tune: str,
    is_longer: bool,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    monkeypatch.setattr(sys, "stderr", Terminal())
    asked = job(tmp_path, *words)
    assert asked.opencl is not None
    assert (asked.opencl.tune, asked.longer_s > 0) == (tune, is_longer)
