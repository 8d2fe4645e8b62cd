# SPDX-License-Identifier: Apache-2.0
"""Comparison with another checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.before import contender
from benchmarks.measure import Skipped
from benchmarks.network import one_pool
from benchmarks.setup import Setup
from delegate import DeviceInfo
from tests.support.process import ROOT
from tests.support.tiers import slow
from tflite_opencl.interpreters.runtime import find_runtime


@slow
def test_times_of_other_checkout(device: DeviceInfo, tmp_path: Path) -> None:
    setup = Setup(find_runtime(), tmp_path, tune="off")
    with contender(ROOT, setup.written("one", one_pool()), setup, device) as result:
        times = result.measure(result.run, 3, 1)
    assert times.runs == 3
    assert 0 < times.min_ms <= times.median_ms <= times.total_ms


def test_missing_folder(device: DeviceInfo, tmp_path: Path) -> None:
    setup = Setup(find_runtime(), tmp_path, tune="off")
    (tmp_path / "delegate.py").write_text("raise SystemExit(7)")
    model = setup.written("one", one_pool())
    with (
        pytest.raises(Skipped, match="does not run the model: exit code 7"),
        contender(tmp_path, model, setup, device),
    ):
        pass
