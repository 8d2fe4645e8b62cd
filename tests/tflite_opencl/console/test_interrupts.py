# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C is raised, remembered, and held back where something is done as a whole."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

import pytest

from tflite_opencl.console import interrupts


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_raised_at_once_and_again_by_each_check_until_the_end() -> None:
    with interrupts.remembered():
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            press()
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


def test_what_is_held_is_done_as_a_whole_unless_ctrl_c_is_pressed_twice() -> None:
    steps = []
    with interrupts.remembered():
        with interrupts.held():
            press()
            steps.append("first")
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with interrupts.held(), pytest.raises(KeyboardInterrupt):
            press()
    assert steps == ["first"]


def test_it_ends_what_may_end_and_what_follows_goes_on() -> None:
    with interrupts.remembered():
        with interrupts.ending_here():
            press()
        with interrupts.ending_here(), suppressed():
            press()
        interrupts.check()
        with pytest.raises(ValueError, match="its own"), interrupts.ending_here():
            raise ValueError("its own")


@contextlib.contextmanager
def suppressed() -> Iterator[None]:
    """Fail in another way where Ctrl-C is pressed, as TFLite does."""
    try:
        yield
    except KeyboardInterrupt:
        raise RuntimeError from None
