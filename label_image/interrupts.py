# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, remembered: TFLite's C code does not pass on a callback's KeyboardInterrupt.

A callback that catches it gives TFLite an error. Python drops it where it comes before the
callback's first line, and TFLite then goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_pressed = threading.Event()


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C, as Python does, and remember it for `check`."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _pressed.set()
        raise KeyboardInterrupt

    def dropped(exception: UnraisableHookArgs) -> None:
        # `check` raises a dropped KeyboardInterrupt again: no "Exception ignored" is to be printed.
        if not isinstance(exception.exc_value, KeyboardInterrupt):
            hook(exception)

    hook, sys.unraisablehook = sys.unraisablehook, dropped
    handler = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = hook
        _pressed.clear()


def was_pressed() -> bool:
    """Whether Ctrl-C was pressed."""
    return _pressed.is_set()


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed: to be called after each call of TFLite."""
    if was_pressed():
        raise KeyboardInterrupt
