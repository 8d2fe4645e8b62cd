# SPDX-License-Identifier: Apache-2.0
"""All commands: streams that are closed, full or without a reader, and Ctrl-C during imports."""

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
    """Run a command's module with redirections; return its exit code, stdout and stderr."""
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
def test_unencodable_output_is_escaped() -> None:
    code, out, err = shell("tflite_opencl rewrite --list", "", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "\\u2500" in out


@slow
@pytest.mark.parametrize("words", TEXTS)
def test_closed_pipe_is_no_error(words: str) -> None:
    assert shell(words, ">&- 2>&- <&-") == (0, "", "")
    assert shell(words, "| true") == (0, "", "")


@slow
@pytest.mark.parametrize("words", [*HELP, *TEXTS])
def test_full_stdout_is_one_line(words: str) -> None:
    assert shell(words, "> /dev/full") == (255, "", LINE)


@slow
def test_full_unbuffered_stdout_is_one_line() -> None:
    assert shell(TEXTS[-1], "> /dev/full", PYTHONUNBUFFERED="1") == (255, "", LINE)


@slow
@pytest.mark.parametrize(("module", "code"), WRONG.items())
def test_closed_or_full_stderr(module: str, code: int) -> None:
    assert shell(f"{module} --nosuch", "2>&-") == (code, "", "")
    assert shell(f"{module} --nosuch", "2> /dev/full") == (255, "", "")
    assert shell(f"{module} --help", "> /dev/full 2>&1") == (255, "", "")


@slow
def test_closed_stream_is_not_reused_for_files(tmp_path: Path) -> None:
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
# Python prints an exception of a finaliser and continues.
PRESSED = {"raised": "signal.raise_signal(signal.SIGINT)", "dropped": "Finder()"}


@pytest.fixture(params=PRESSED)
def pressed(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the environment in which the import of numpy sends SIGINT."""
    text = FINDER.replace("PRESS", PRESSED[request.param])
    (tmp_path / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


@slow
@pytest.mark.parametrize("words", ["label_image -h", "tflite_opencl -h", "benchmarks -h",
                                   "tflite_opencl.conformance -h"])  # fmt: skip
def test_ctrl_c_during_imports_is_quiet(words: str, pressed: dict[str, str]) -> None:
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


def test_ctrl_c_ends_background_command() -> None:
    # Without job control, shells start background processes with SIGINT ignored.
    shown = f"trap '' INT; exec {sys.executable} -c '{WAITS}'"
    with subprocess.Popen(
        ["bash", "-c", shown], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
