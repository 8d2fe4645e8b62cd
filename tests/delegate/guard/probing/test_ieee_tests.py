# SPDX-License-Identifier: Apache-2.0
"""The self-tests of precision "ieee" pass here, and fail where a compiler departs from IEEE 754."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.guard.children.trials import PASSED
from delegate.guard.probing.probe import examine
from delegate.guard.probing.self_tests import feature_test
from delegate.isa import BY_NAME, DENORMALS, DIVISION, IEEE, tried_on
from delegate.run import programs
from delegate.run.device import Device

NAMES = (IEEE, DENORMALS, DIVISION)
POCL = "Portable Computing Language"


def result(device: DeviceInfo, name: str) -> str:
    return feature_test(Device(device), BY_NAME[name])


def test_they_run_only_for_this_precision(device: DeviceInfo) -> None:
    assert not {*NAMES} & {*tried_on(device.type)}
    assert {*NAMES} <= {*tried_on(device.type, is_ieee=True)}
    assert {*NAMES} <= examine(device, is_ieee=True).isa
    assert not {*NAMES} & examine(device).isa


@pytest.mark.parametrize(
    ("option", "failing"),
    [
        ("-cl-denorms-are-zero", DENORMALS),
        ("-cl-finite-math-only", DIVISION),
        ("-cl-fast-relaxed-math", DIVISION),
    ],
)
def test_fast_arithmetic_proves_nothing(
    device: DeviceInfo, option: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.platform != POCL:
        pytest.skip("this driver ignores the option")
    assert result(device, failing) == PASSED
    monkeypatch.setattr(programs, "OPTIONS", [*programs.OPTIONS, option])
    assert result(device, failing) != PASSED


def test_fused_steps_prove_nothing(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    if device.platform != POCL or "fma" not in flags:
        pytest.skip("this compiler fuses nothing")
    compiled = programs.Programs.compiled

    def fusing(self: programs.Programs, file: str, source: str) -> object:
        return compiled(self, file, source.replace("FP_CONTRACT OFF", "FP_CONTRACT ON"))

    monkeypatch.setattr(programs.Programs, "compiled", fusing)
    assert result(device, IEEE) == "other numbers than expected"


def test_no_build_option_changes_arithmetic(device: DeviceInfo) -> None:
    options = programs.Programs(Device(device)).options("conv_2d_float")
    assert not [each for each in options if "math" in each or "mad" in each or "denorms" in each]
