# SPDX-License-Identifier: Apache-2.0
"""What a call costs is a figure of a run and of the driver's events; no test looks at its size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import calls
from benchmarks.rows import ROWS
from benchmarks.setup import Setup
from delegate import DeviceInfo
from tests.support.deal import any_driver
from tflite_opencl.common.runtime import find_runtime

pytestmark = any_driver


def test_a_run_is_split_into_its_kernel_and_the_rest(device: DeviceInfo, tmp_path: Path) -> None:
    setup = Setup(find_runtime(), tmp_path, str(device.index), runs=1, tune="off")
    result = calls.beside_kernels(ROWS["calls"], setup)
    (figure,), (note,) = result.figures, result.notes
    kernel_ms = float(note.split()[3]) / 1e3
    assert kernel_ms >= 0  # rusticl 22.3 says 0 of all kernels
    assert figure.value == pytest.approx(result.paths["OpenCL"].min_ms - kernel_ms, abs=1e-4)
    assert figure.not_judged
    assert "runs: a figure needs" in figure.not_judged or "PoCL" in figure.not_judged
