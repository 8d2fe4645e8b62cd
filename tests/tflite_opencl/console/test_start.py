# SPDX-License-Identifier: Apache-2.0
"""Every command: streams that are closed, full or read by nobody, and Ctrl-C while it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT
from tests.support.tiers import slow

HELP = [
    "label_image --help",
    "tflite_opencl.conformance --help",
    "tflite_opencl --help",
    "tflite_opencl info --help",
    "tflite_opencl obstacle --help",
    "benchmarks --help",
]
TEXTS = [
    "label_image --version",
    "tflite_opencl.conformance --list --filter ^add/int8/",
    "tflite_opencl info --root /proc",
    "benchmarks --list",
]
WRONG = {"label_image": 64, "tflite_opencl.conformance": 64, "tflite_opencl": 64, "benchmarks": 64}
LINE = "ERROR: cannot write stdout: No space left on device\n"


def shell(words: str, streams: str, **environment: str) -> tuple[int, str, str]:
    """Run a command's module with these redirections; return its code, stdout and stderr."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m {words} {streams}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@slow
def test_what_the_locale_has_not_is_escaped() -> None:
    code, out, err = shell("tflite_opencl rewrite --list", "", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "\\u2500" in out


@slow
@pytest.mark.parametrize("words", TEXTS)
def test_nobody_who_reads_is_no_error(words: str) -> None:
    assert shell(words, ">&- 2>&- <&-") == (0, "", "")
    assert shell(words, "| true") == (0, "", "")


@slow
@pytest.mark.parametrize("words", [*HELP, *TEXTS])
def test_a_full_stdout_is_one_line(words: str) -> None:
    assert shell(words, "> /dev/full") == (255, "", LINE)


@slow
def test_a_full_stdout_without_a_buffer_is_one_line() -> None:
    assert shell(TEXTS[-1], "> /dev/full", PYTHONUNBUFFERED="1") == (255, "", LINE)


@slow
@pytest.mark.parametrize(("module", "code"), WRONG.items())
def test_a_closed_stderr_keeps_the_code_and_a_full_one_is_255(module: str, code: int) -> None:
    assert shell(f"{module} --nosuch", "2>&-") == (code, "", "")
    assert shell(f"{module} --nosuch", "2> /dev/full") == (255, "", "")
    assert shell(f"{module} --help", "> /dev/full 2>&1") == (255, "", "")


@slow
def test_a_closed_stream_does_not_become_the_next_file(tmp_path: Path) -> None:
    path = tmp_path / "add.txt"
    words = "tflite_opencl.conformance --delegate xnnpack --filter ^add/int8/1x7x5x3$"
    code, out, err = shell(f"{words} --output {tmp_path}/out --ktap {path}", ">&- 2>&-")
    assert (code, out, err) == (0, "", "")
    assert path.read_text().startswith("KTAP version 1\n")


FINDER = """
import signal
import sys

class Finder:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            sys.meta_path.remove(self)
            PRESS

sys.meta_path.insert(0, Finder())
"""
# Python raises the second in a finaliser, prints it and goes on.
PRESSED = {"raised": "signal.raise_signal(signal.SIGINT)", "dropped": "Finder()"}


@pytest.fixture(params=PRESSED)
def pressed(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the environment in which Ctrl-C is pressed when a command imports numpy."""
    text = FINDER.replace("PRESS", PRESSED[request.param])
    (tmp_path / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


@slow
@pytest.mark.parametrize("words", ["label_image -h", "tflite_opencl -h", "benchmarks -h",
                                   "tflite_opencl.conformance -h"])  # fmt: skip
def test_ctrl_c_while_a_command_imports_is_quiet(words: str, pressed: dict[str, str]) -> None:
    code, _, err = shell(words, "", **pressed)
    assert (code, err) == (130, "")


WAITS = """
import sys, time
from tflite_opencl.console import start

def wait():
    print("waits", flush=True)
    time.sleep(60)

sys.exit(start.run(wait))
"""


def test_ctrl_c_ends_a_command_that_a_shell_started_in_the_background() -> None:
    # Without job control a shell lets what it starts with & ignore Ctrl-C.
    shown = f"trap '' INT; exec {sys.executable} -c '{WAITS}'"
    with subprocess.Popen(
        ["bash", "-c", shown], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
