# SPDX-License-Identifier: Apache-2.0
"""The ladder on a driver without and with a fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegate import DeviceInfo, Options
from tests.attacks.faults import NO_COMPILER
from tests.attacks.miscompiler import ABORT, Miscompilation, build_library
from tests.support.process import ROOT
from tests.support.tiers import slow
from tflite_opencl.bringup.subcommand import _climbed
from tflite_opencl.faults.trial import RIGHT, Replayer
from tflite_opencl.interpreters.runtime import runtime_if_any

CLIMB = """
import sys
from delegate import Options
from tflite_opencl.bringup.subcommand import _climbed
from tflite_opencl.faults.trial import Replayer
with Replayer(Options(device=sys.argv[1]), None, is_bare=True) as replayer:
    for outcome in _climbed(replayer, "bug"):
        print(outcome.line)
"""


@slow
@pytest.mark.device
def test_every_step_passes(device: DeviceInfo, tmp_path: Path) -> None:
    with Replayer(Options(device=device.index), runtime_if_any(), is_bare=True) as replayer:
        outcomes = [*_climbed(replayer, str(tmp_path / "bug"))]
    failing = [each for each in outcomes if each.kind != RIGHT]
    assert [each.line for each in failing if not each.is_avoided] == []
    written = {str(path) for path in (tmp_path / "bug").glob("*")}
    assert written == {each.folder for each in failing}
    assert len([each for each in outcomes if each.is_avoided]) == 4


@slow
@pytest.mark.device
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Miscompilation("kept[15 - l]", "kept[14 - l + (l > 14)]"), "wrong result"),
        (Miscompilation("mul_hi(", ABORT), "abort"),
        (Miscompilation("mul24(", "mul23("), "build failure"),
    ],
)
def test_fault_costs_its_steps_alone(
    fault: Miscompilation, words: str, device: DeviceInfo, tmp_path: Path
) -> None:
    library = build_library(tmp_path)
    if library is None:
        pytest.skip(NO_COMPILER)
    shown = subprocess.run(
        [sys.executable, "-c", CLIMB, str(device.index)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **fault.environment(library)},
    ).stdout.splitlines()  # fmt: skip
    failing = [line for line in shown if " FAIL " in line and "kernels do without" not in line]
    assert 1 <= len(failing) <= 2
    assert all(words in line for line in failing)
    folders = [tmp_path / line.rpartition(" -> ")[2] for line in failing]
    assert all((folder / "main.c").exists() for folder in folders)
