# SPDX-License-Identifier: Apache-2.0
"""A driver with one fault: the written C program fails there, and passes on the same driver without
the fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.attacks.faults import NO_COMPILER
from tests.attacks.miscompiler import ABORT, Miscompilation, build_library
from tests.support.process import ROOT
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases

POOL = "average_pool_2d/int8/in1x7x5x3-k2x2-stride2x2-same"
MAXIMUM = "max_pool_2d/float32/in1x7x5x3-k2x2-stride2x2-same"
ROUNDING = "value + count / 2 : value - count / 2"

pytestmark = [
    slow,
    pytest.mark.device,
    pytest.mark.skipif(
        not Path("/usr/include/CL/cl.h").exists(),
        reason="no OpenCL headers: apt-get install opencl-headers ocl-icd-opencl-dev",
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = build_library(tmp_path_factory.mktemp("miscompiler"))
    if found is None or shutil.which("make") is None:
        pytest.skip(NO_COMPILER)
    return found


def model_of(case: str, folder: Path) -> str:
    path = folder / "model.tflite"
    made = next(each for each in all_cases() if each.name == case)
    path.write_bytes(write_model(made.make()))
    return str(path)


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=400, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("case", "fault", "kind", "shown"),
    [
        (POOL, Miscompilation(ROUNDING, "value : value"), "wrong result", "got"),
        (
            MAXIMUM,
            Miscompilation("int y_end =", "int y_begin ="),
            "build failure",
            "error",
        ),
        (MAXIMUM, Miscompilation("int y_end =", ABORT), "abort", "ABORT: ended by signal 6"),
    ],
    ids=["wrong", "build", "abort"],
)
def test_program_fails_with_the_fault_alone(
    case: str, fault: Miscompilation, kind: str, shown: str, library: Path, tmp_path: Path,
    device: DeviceInfo,
) -> None:  # fmt: skip
    environment = {**fault.environment(library), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    flags = ["--tflite_model", model_of(case, tmp_path), "--device", str(device.index)]
    command = [sys.executable, "-m", "tflite_opencl", "verify", *flags, "--fault", "bug"]
    told = run(command, tmp_path, **environment)
    assert told.returncode, told.stdout + told.stderr
    (folder,) = (tmp_path / "bug").iterdir()
    assert f"{kind} in" in told.stdout + told.stderr
    assert (folder / "kernel.cl").read_text().count("\n") < 80
    assert "#if" not in (folder / "kernel.cl").read_text()
    assert (folder / "main.c").read_text().count("\n") < 150
    assert kind in (folder / "README.md").read_text()
    made = run(["make", "CFLAGS=-std=c99 -Wall -Wextra -Werror"], folder)
    assert made.returncode == 0, made.stderr
    word = "rusticl" if device.platform == "rusticl" else device.platform
    wrong = run(["./fault", word], folder, **fault.environment(library))
    assert (wrong.returncode, shown in wrong.stdout) == (1, True), wrong.stdout
    right = run(["./fault", word], folder)
    assert right.returncode == 0, right.stdout


LITERAL = """
import sys
from pathlib import Path
from delegate import Options
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.faults.find import Suspect, write_faults
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.oracle.values import input_sets
graph = next(each for each in all_cases() if each.name == sys.argv[1]).make()
suspect = Suspect("fault", "node 0", lambda: Candidate(graph, input_sets(graph)[0]), ["plain"])
print(*write_faults(Path("bug"), [suspect], Options(device=sys.argv[2]), find_runtime()))
"""


def test_fault_of_a_literal_is_found(library: Path, tmp_path: Path, device: DeviceInfo) -> None:
    # Where the window is a parameter, no such text is in the source.
    fault = Miscompilation("#define KERNEL_H (2)", "#define KERNEL_H (1)")
    told = run(
        [sys.executable, "-c", LITERAL, POOL, str(device.index)], tmp_path,
        **fault.environment(library),
    )  # fmt: skip
    assert "wrong result in AVERAGE_POOL_2D" in told.stdout, told.stderr
