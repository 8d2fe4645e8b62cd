# SPDX-License-Identifier: Apache-2.0
"""Remembers Ctrl-C, because KeyboardInterrupt does not propagate through all code.

A callback from C turns it into an error of the C code. Python drops it if it arrives before the
callback's first line, in a finaliser, or in a weak reference's callback. If it arrives just
before a blocking call, it is raised only after the call.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_was_pressed = False
_is_held = False


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, as Python does, and remember it for `check`.

    A shell starts background commands with SIGINT ignored; this handles it even there.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _was_pressed
        is_first, _was_pressed = not _was_pressed, True
        if not (_is_held and is_first):
            raise KeyboardInterrupt

    def dropped(exception: UnraisableHookArgs) -> None:
        # `check` raises a dropped KeyboardInterrupt again: suppress "Exception ignored".
        if not isinstance(exception.exc_value, KeyboardInterrupt):
            hook(exception)

    global _was_pressed
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    handler = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = hook
        _was_pressed = False


def was_pressed() -> bool:
    """Whether Ctrl-C was pressed."""
    return _was_pressed


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed: call it after each call into TFLite."""
    if _was_pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def ending_here() -> Iterator[None]:
    """Let Ctrl-C end only the code inside; it was not pressed before."""
    global _was_pressed
    try:
        yield
    except KeyboardInterrupt:
        pass
    except Exception:
        if not _was_pressed:  # otherwise a consequence of Ctrl-C
            raise
    _was_pressed = False


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Defer the first Ctrl-C until after the code inside; a second one is raised immediately."""
    global _is_held
    _is_held = True
    try:
        yield
    finally:
        _is_held = False
