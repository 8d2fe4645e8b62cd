# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at the one place where Python cannot raise it: before a callback's first line."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate.tflite.callbacks import NativeDelegate
from tests.support.command import FILES, Run
from tests.support.deal import any_driver

pytestmark = any_driver


@pytest.mark.parametrize("callback", ["_prepare_delegate", "_init", "_prepare_kernel", "_invoke"])
@pytest.mark.parametrize("words", [("-c", "9"), ("picture.bmp",)], ids=["one", "several"])
def test_ctrl_c_that_a_callback_drops_is_130_without_a_line(
    device: DeviceInfo,
    files: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    callback: str,
    words: tuple[str, ...],
) -> None:
    calls = 0

    def interrupted(self: NativeDelegate, *arguments: Any) -> int:
        nonlocal calls
        calls += 1
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(NativeDelegate, callback, interrupted)
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), *words)
    assert ran.code == 130
    assert calls == 1
    assert [line for line in ran.err if not line.startswith(("INFO: ", "WARN: "))] == []
