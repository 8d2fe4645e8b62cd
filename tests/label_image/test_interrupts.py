# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at the one place where Python cannot raise it: before a callback's first line."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate.tflite.callbacks import NativeDelegate
from label_image import interrupts
from tests.support.command import FILES, Run


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
    assert all(line.startswith(("INFO: ", "WARN: ")) for line in ran.err)


def test_it_is_raised_at_once_and_again_by_each_check_until_the_end() -> None:
    with interrupts.remembered():
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupts.check()
    interrupts.check()


def test_python_s_handlers_come_back_and_see_what_is_no_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: seen.append(each.exc_value))
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    error = ValueError("in __del__")

    class Fails:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    with interrupts.remembered():
        Fails(KeyboardInterrupt())
        Fails(error)
    assert seen == [error]
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
