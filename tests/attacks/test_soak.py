# SPDX-License-Identifier: Apache-2.0
"""The soak test detects leaks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.attacks.resources import soak
from tests.support.tiers import slow

kept: list[Any] = []


def thread() -> None:
    kept.append(threading.Event())
    threading.Thread(target=kept[-1].wait, daemon=True).start()


@pytest.fixture(autouse=True)
def let_go() -> Any:
    yield
    for each in kept:
        if isinstance(each, int):
            os.close(each)
        elif isinstance(each, threading.Event):
            each.set()
    kept.clear()


@slow
@pytest.mark.parametrize(
    ("leak", "words"),
    [
        (lambda: kept.append(bytearray(os.urandom(1)) * 2_000_000), "memory grows"),
        (lambda: kept.append(os.open(os.devnull, os.O_RDONLY)), "file handles grow"),
        (thread, "threads grow"),
    ],
    ids=["memory", "handles", "threads"],
)
def test_leak_is_detected(leak: Callable[[], None], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        soak(20, leak)


@slow
def test_no_leak_without_growth(capsys: pytest.CaptureFixture[str]) -> None:
    soak(20, lambda: os.close(os.open(os.devnull, os.O_RDONLY)))
    assert "20 rounds" in capsys.readouterr().out
