# SPDX-License-Identifier: Apache-2.0
"""Progress bars: what a terminal shows of a start, and that nothing else shows anything."""

from __future__ import annotations

import time

import pytest

from delegate import progress
from tests.support.process import on_terminal
from tflite_opencl.common import bars

START = """
import time
from delegate import progress
from tflite_opencl.common import bars
bars._PATIENCE_S = {patience}
with {outer}bars.start("m.tflite") as watch, progress.phase("tune"):
    for node in progress.each([3, 4], "node {{}}".format):
        time.sleep(0.5)
print("over", watch.seconds["tune"] > 0.9)
"""


def test_without_a_terminal_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with bars.start() as watch, progress.phase("build"):
        progress.relayed("at", 0.5, "node 3")
        time.sleep(0.001)
    assert capfd.readouterr().err == ""
    assert watch.seconds["build"] > 0


def test_a_terminal_shows_what_is_done_and_how_much_is_left() -> None:
    shown = on_terminal(START.format(patience=0.0, outer=""))
    assert "m.tflite: measuring which kernels are the fastest (node 3)" in shown
    assert "50%" in shown
    assert shown.rstrip().endswith("over True")


def test_what_is_over_soon_shows_no_bar() -> None:
    assert on_terminal(START.format(patience=60.0, outer="")).strip() == "over True"


def test_inside_of_another_bar_its_words_change() -> None:
    outer = "bars.steps('classifying', lambda: 2), "
    shown = on_terminal(START.format(patience=0.0, outer=outer))
    assert "measuring which kernels are the fastest (node 4) 50%" in shown
    assert "0/2" in shown
