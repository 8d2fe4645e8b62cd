# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl obstacle`: line, exit code and JSON."""

from __future__ import annotations

import json

import pytest

from delegate import DeviceInfo
from tflite_opencl.boards import drivers
from tflite_opencl.command import main


@pytest.mark.parametrize("is_there", [True, False])
def test_text_and_json_agree(
    device: DeviceInfo,
    is_there: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(drivers, "ask_all", lambda: drivers.LoadedIcd((), None))
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((device,) * is_there, None))
    name = "pocl" if "Portable" in device.platform else "llvmpipe"
    code = 0 if is_there else 1
    assert main(["obstacle", name]) == code
    output = capsys.readouterr().out
    assert main(["obstacle", name, "--json", "-"]) == code
    facts = json.loads(capsys.readouterr().out)
    assert facts["family"] == name
    if is_there:
        assert output.startswith(f"{name}: device {device.index}, {device.name} (")
        assert (facts["obstacle"], facts["device"]["name"]) == (None, device.name)
    else:
        assert output == f"{name}: {facts['obstacle']}\n"
        assert facts["device"] is None
