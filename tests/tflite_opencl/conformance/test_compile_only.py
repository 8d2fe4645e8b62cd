# SPDX-License-Identifier: Apache-2.0
"""`--compile_only` on a driver whose compiler is right, wrong, refuses or aborts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegate import DeviceInfo
from tests.attacks.faults import NO_COMPILER
from tests.attacks.miscompiler import ABORT, Miscompilation, build_library
from tests.support.process import ROOT
from tests.support.tiers import slow
from tflite_opencl.conformance.command import main
from tflite_opencl.console.exit_codes import USAGE

CASE = "max_pool_2d/float32/in1x7x5x3-k2x2-stride2x2-same"


@slow
@pytest.mark.device
@pytest.mark.parametrize(
    ("fault", "result", "words"),
    [
        # A run would find it.
        (Miscompilation("int x_end =", "int x_end = -1; int rest ="), "Pass", "builds: "),
        (Miscompilation("int y_end =", "int y_begin ="), "Fail", "is not built: "),
        (Miscompilation("int y_end =", ABORT), "Crash", "SIGABRT"),
    ],
    ids=["wrong", "build", "abort"],
)
def test_verdict_is_the_compilers(
    fault: Miscompilation, result: str, words: str, device: DeviceInfo, tmp_path: Path
) -> None:
    if (library := build_library(tmp_path)) is None:
        pytest.skip(NO_COMPILER)
    ended = subprocess.run(
        [sys.executable, "-m", "tflite_opencl.conformance", "--compile_only", "--filter", CASE,
         "--device", str(device.index), "--json", "run.json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **fault.environment(library)},
    )  # fmt: skip
    found = json.loads((tmp_path / "run.json").read_text())
    (case,) = found["cases"]
    assert (case["name"], case["result"]) == (CASE, result), ended.stderr
    assert words in case["detail"]
    assert ended.returncode == (result != "Pass")
    assert found["delegate"] == "opencl --compile_only"


@pytest.mark.parametrize("flags", [("--delegate", "xnnpack"), ("--reduce", CASE)])
def test_only_opencls_cases_are_compiled(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--compile_only", *flags]) == USAGE
    assert "--compile_only is for --delegate opencl" in capsys.readouterr().err
