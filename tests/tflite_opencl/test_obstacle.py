# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl obstacle`: a line, a code, and the same as JSON."""

from __future__ import annotations

import json

import pytest

from delegate import DeviceInfo
from tflite_opencl.boards import drivers
from tflite_opencl.command import main


@pytest.mark.parametrize("is_there", [True, False])
def test_it_says_the_same_in_words_and_as_json(
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
    said = capsys.readouterr().out
    assert main(["obstacle", name, "--json", "-"]) == code
    facts = json.loads(capsys.readouterr().out)
    assert facts["family"] == name
    if is_there:
        assert said.startswith(f"{name}: device {device.index}, {device.name} (")
        assert (facts["obstacle"], facts["device"]["name"]) == (None, device.name)
    else:
        assert said == f"{name}: {facts['obstacle']}\n"
        assert facts["device"] is None
