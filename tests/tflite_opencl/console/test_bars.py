# SPDX-License-Identifier: Apache-2.0
"""Progress bars on terminals, and none elsewhere."""

from __future__ import annotations

import re
import time

import pytest

from delegate.guard.children import progress
from tests.support.process import on_terminal, run_python, sent_to_terminal
from tests.support.tiers import slow
from tflite_opencl.console import bars

START = """
import time
from delegate.guard.children import progress
from tflite_opencl.console import bars
bars._PATIENCE_S = {patience}
with {outer}bars.start("m.tflite") as watch, progress.phase("tune"):
    for node in progress.each([3, 4], "node {{}}".format):
        time.sleep(0.5)
print("over", watch.seconds["tune"] > 0.9)
"""


def test_no_bar_without_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with bars.start() as watch, progress.phase("build"):
        progress.relay("at", 0.5, "node 3")
        time.sleep(0.001)
    assert capfd.readouterr().err == ""
    assert watch.seconds["build"] > 0


@slow
def test_quiet_command_has_no_bar() -> None:
    assert on_terminal(START.format(patience=0.0, outer="bars.be_quiet(True) or ")).strip() == (
        "over True"
    )


@slow
def test_bar_shows_phase_and_remaining_time() -> None:
    shown = on_terminal(START.format(patience=0.0, outer=""))
    assert "m.tflite: measuring kernels (node 3)" in shown
    assert "50%" in shown
    assert shown.rstrip().endswith("over True")


@slow
def test_no_bar_for_short_work() -> None:
    assert on_terminal(START.format(patience=60.0, outer="")).strip() == "over True"


@slow
def test_no_bar_without_cursor_movement() -> None:
    code = START.format(patience=0.0, outer="")
    assert on_terminal(code, TERM="dumb").splitlines() == ["over True"]


@slow
def test_nested_bar_changes_text() -> None:
    outer = "bars.steps('classifying', lambda: 2), "
    shown = on_terminal(START.format(patience=0.0, outer=outer))
    assert "measuring kernels (node 4) 50%" in shown
    assert "0/2" in shown


@slow
@pytest.mark.parametrize(("total", "part"), [(4, "25%"), (0, "0%")])
def test_download_bar(total: int, part: str) -> None:
    code = (
        "import time; from tflite_opencl.console import bars; bars._PATIENCE_S = 0.0\n"
        f"with bars.progress('fetching') as tell: tell(1, {total}); time.sleep(0.6)"
    )
    shown = on_terminal(code)
    assert "fetching" in shown
    assert part in shown


WAITING = """
import time
from tflite_opencl.console import bars
bars._PATIENCE_S = 0.0
with bars.waiting("asking [all]") as tell:
    time.sleep(0.6)
    tell("asking one")
    time.sleep(0.6)
    with bars.waiting("inside"), bars.parts() as part:
        part(0.5, "half of it")
        time.sleep(0.6)
print("over")
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*[34][0-9](?:;[0-9;]*)?m")


@slow
def test_elapsed_time_without_estimate() -> None:
    shown = on_terminal(WAITING)
    assert re.search(r"asking \[all\] 0:00:0\d", shown)
    assert re.search(r"asking one 0:00:0\d", shown)
    assert re.search(r"half of it 50% 0:00:0\d", shown)
    assert shown.rstrip().endswith("over")


@slow
@pytest.mark.parametrize("code", [WAITING, START.format(patience=0.0, outer="")])
def test_colours_can_be_disabled(code: str) -> None:
    assert COLOUR.search(sent_to_terminal(code, NO_COLOR=""))
    plain = sent_to_terminal(code, NO_COLOR="1")
    assert not COLOUR.search(plain)
    assert "\r" in plain  # the bar is shown


@slow
def test_no_bar_on_dumb_terminal() -> None:
    assert sent_to_terminal(WAITING, TERM="dumb").strip() == "over"


@slow
def test_no_bar_on_pipe_with_forced_colours() -> None:
    forced = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    code = "import sys\nsys.stderr = sys.stdout\n" + WAITING
    assert run_python(code, **forced) == "over\n"


COMMANDS = ("label_image", "tflite_opencl", "tflite_opencl.conformance")


@slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_without_colours(name: str) -> None:
    code = f"import sys\nfrom {name}.__main__ import main\nsys.argv = ['x', '--help']\nmain()"
    shown = sent_to_terminal(code, NO_COLOR="1")
    assert "examples:" in shown
    assert "\x1b" not in shown
    assert "\x1b" not in run_python(code)


@slow
def test_text_above_bar_is_cleared_with_it() -> None:
    code = START.format(patience=0.0, outer="bars.below('a table'), ")
    shown = on_terminal(code)
    assert "a table" in shown
    assert shown.rstrip().endswith("over True")
