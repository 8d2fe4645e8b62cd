# SPDX-License-Identifier: Apache-2.0
"""The set-up of a run: models, devices and the machine's description."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from benchmarks.measure import Skipped
from benchmarks.rows import ROWS
from benchmarks.setup import V1, Setup, machine
from delegate import DeviceInfo, NoDeviceError
from delegate.inspect import read_model
from tflite_opencl.interpreters.runtime import find_runtime


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """No models anywhere."""
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "made"
    folder.mkdir()
    return Setup(find_runtime(), folder, models=tmp_path)


def test_missing_model(setup: Setup) -> None:
    with pytest.raises(Skipped, match=r"there is no mobilenet_v2_1.0_224_quant.tflite"):
        setup.model("mobilenet_v2_1.0_224_quant")


def test_v1_has_replacement(setup: Setup) -> None:
    path, note = setup.model(V1)
    assert read_model(path).inputs[0].shape == (1, 224, 224, 3)
    assert "random weights" in note


def test_existing_model(setup: Setup) -> None:
    (setup.models / f"{V1}.tflite").write_bytes(b"")
    assert setup.model(V1) == (str(setup.models / f"{V1}.tflite"), "")


def test_devices(setup: Setup, device: DeviceInfo) -> None:
    assert setup.find("") is not None
    with pytest.raises(Skipped, match="no OpenCL device 'abacus'"):
        setup.find("abacus")
    chosen = Setup(setup.runtime, setup.folder, str(device.index))
    assert chosen.find("abacus") == device
    with pytest.raises(NoDeviceError):
        Setup(setup.runtime, setup.folder, "abacus").find("")


def test_long_rows_have_fewer_runs(setup: Setup) -> None:
    assert (ROWS["v1"].runs(setup), ROWS["v1-rusticl"].runs(setup)) == (200, 100)


@pytest.mark.usefixtures("device")
def test_unknown_machine() -> None:
    facts = machine(find_runtime(), 2, 0.5)
    assert facts["CPU"]
    assert facts["threads"] == "2, load 0.50 before"
    assert facts["OpenCL 0"]
    assert platform.node() not in re.findall(r"[\w.-]+", " ".join(facts.values()))
