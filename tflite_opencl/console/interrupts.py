# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, remembered: not all code passes on the KeyboardInterrupt that Python raises in it.

A callback of C code that catches it gives the C code an error. Python drops it where it comes
before the callback's first line, in a finaliser, or in a weak reference's callback. It waits for
the end of a blocking call that it comes just before.
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
    """Raise KeyboardInterrupt at Ctrl-C, as Python does, and remember it for `check`.

    A shell that starts a command in the background lets it ignore Ctrl-C: here it does not.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _was_pressed
        is_first, _was_pressed = not _was_pressed, True
        if not (_is_held and is_first):
            raise KeyboardInterrupt

    def dropped(exception: UnraisableHookArgs) -> None:
        # `check` raises a dropped KeyboardInterrupt again: no "Exception ignored" is to be printed.
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
    """Raise KeyboardInterrupt if Ctrl-C was pressed: to be called after each call of TFLite."""
    if _was_pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def ending_here() -> Iterator[None]:
    """Let Ctrl-C end what is inside and nothing else; it was not pressed before."""
    global _was_pressed
    try:
        yield
    except KeyboardInterrupt:
        pass
    except Exception:
        if not _was_pressed:  # else it is what Ctrl-C broke off
            raise
    _was_pressed = False


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Do what is inside as a whole: the first Ctrl-C is only remembered, a second one is raised."""
    global _is_held
    _is_held = True
    try:
        yield
    finally:
        _is_held = False
