# SPDX-License-Identifier: Apache-2.0
"""The environment variable for the device applies to every command that uses one."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.support.nets import conv_pool
from tflite_opencl.boards import drivers
from tflite_opencl.cli.flags import device_asked
from tflite_opencl.command import main
from tflite_opencl.conformance.flags import parse


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_DEVICE", "no such")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(conv_pool()))
    return str(path)


def test_flag_overrides_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [device_asked(flag) for flag in ("pocl", "", None)] == ["pocl", "no such", "no such"]
    assert parse([]).device == "no such"
    monkeypatch.setenv("TFLITE_OPENCL_DEVICE", "")
    assert device_asked(None) is None


@pytest.mark.parametrize(
    "words", ["graph", "tune", "verify -m", "compare -c 1 --paths opencl -m", "kernels"]
)
def test_subcommands_use_device_of_variable(
    device: DeviceInfo,
    model: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((device,), None))
    assert main([*words.split(), model]) == (1 if "compare" in words else 2)
    output = capsys.readouterr()
    assert "device matches 'no such'; " in output.out + output.err
