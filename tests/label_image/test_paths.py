# SPDX-License-Identifier: Apache-2.0
"""How a run with results ends: its exit code, and the last line."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from delegate import Verdict
from label_image.paths import Paths
from tests.support.model import graph_of, op
from tests.support.nets import image
from tflite_opencl.common.job import Delegation, Job


def paths(failure: str, lost: int | None) -> Paths[Any]:
    """Return paths of four nodes, of which so many were lost; None: without OpenCL."""
    made = Paths[Any](Job("m", np.zeros(1)), graph_of([op("ADD", [image()] * 2, [image()])]))
    made._gave_up = failure
    if lost is not None:
        verdicts = [Verdict(n, "ADD", "it died" if n < lost else None) for n in range(4)]
        taken = Delegation("a device", "a platform", "1", verdicts, [], lost=lost)
        made.gpu = SimpleNamespace(delegation=taken)
    return made


@pytest.mark.parametrize(
    ("failure", "lost", "code"),
    [("", 0, 0), ("", 2, 0), ("", 3, 3), ("", 4, 3), ("computes wrongly", 4, 2)],
)
def test_most_nodes_lost_is_an_error_of_its_own(
    failure: str, lost: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "label_image"):
        assert paths(failure, lost).exit_code() == code
    said = [line.split(":")[0] for line in caplog.messages]
    because = "because child processes died of their OpenCL kernels"
    assert said == ([f"the CPU ran {lost} of 4 nodes, {because}"] if code == 3 else [])


def test_a_run_on_the_cpu_has_lost_nothing() -> None:
    assert paths("", None).exit_code() == 0
