# SPDX-License-Identifier: Apache-2.0
"""How a run with results ends: its exit code, and the last line."""

from __future__ import annotations

import logging

import pytest

from delegate import Verdict
from label_image.classify import exit_code
from tflite_opencl.common.job import Delegation


def taken(lost: int, count: int = 4) -> Delegation:
    verdicts = [
        Verdict(index, "ADD", "it died" if index < lost else None) for index in range(count)
    ]
    return Delegation("a device", "a platform", "1", verdicts, [], lost=lost)


@pytest.mark.parametrize(
    ("failure", "lost", "code"),
    [("", 0, 0), ("", 2, 0), ("", 3, 3), ("", 4, 3), ("computes wrongly", 4, 2)],
)
def test_most_nodes_lost_is_an_error_of_its_own(
    failure: str, lost: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "label_image"):
        assert exit_code(failure, taken(lost)) == code
    said = [line.split(":")[0] for line in caplog.messages]
    because = "because child processes died of their OpenCL kernels"
    assert said == ([f"the CPU ran {lost} of 4 nodes, {because}"] if code == 3 else [])


def test_a_run_on_the_cpu_has_lost_nothing() -> None:
    assert exit_code("", None) == 0
