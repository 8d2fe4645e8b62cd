# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C is raised, remembered, and deferred during atomic operations."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

import pytest

from tflite_opencl.console import interrupts


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_interrupt_is_raised_at_once_and_by_later_checks() -> None:
    with interrupts.remembered():
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            press()
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupts.check()
    interrupts.check()


def test_python_handlers_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_atomic_operation_ends_only_on_second_ctrl_c() -> None:
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


def test_interrupt_ends_only_interruptible_part() -> None:
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
    """Raise another exception on Ctrl-C, as TFLite does."""
    try:
        yield
    except KeyboardInterrupt:
        raise RuntimeError from None
