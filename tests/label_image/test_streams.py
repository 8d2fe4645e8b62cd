# SPDX-License-Identifier: Apache-2.0
"""Log records as lines, and streams whose reader has gone."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from label_image import streams
from tests.support.process import on_terminal
from tflite_opencl.common import bars


def logged(level: int) -> tuple[list[str], list[str]]:
    out, err = io.StringIO(), io.StringIO()
    with streams.logging_to(out, err, level):
        logging.getLogger("label_image").info("invoked")
        logging.getLogger("delegate").warning("a device is skipped")
        logging.getLogger("delegate.runtime").error("gone")
        logging.getLogger("label_image").critical("input file x not found")
        logging.getLogger("delegate").debug("node  op")
        logging.getLogger("label_image.results").info("0.9: 653 uniform")
        logging.getLogger("tflite_opencl.stdout").info("INFO: GPU delegate created.")
        logging.getLogger("tflite_opencl").info("using the sample picture")
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def test_records_become_label_images_lines() -> None:
    assert logged(logging.INFO) == (
        ["INFO: GPU delegate created."],
        [
            "INFO: invoked",
            "WARN: a device is skipped",
            "ERROR: gone",
            "FATAL: input file x not found",
            "INFO: 0.9: 653 uniform",
            "INFO: using the sample picture",
        ],
    )


def test_quiet_leaves_warnings_errors_and_results() -> None:
    assert logged(logging.WARNING) == (
        [],
        [
            "WARN: a device is skipped",
            "ERROR: gone",
            "FATAL: input file x not found",
            "INFO: 0.9: 653 uniform",
        ],
    )


def test_verbose_adds_tables_without_a_prefix() -> None:
    assert "node  op" in logged(logging.DEBUG)[1]


def test_loggers_are_left_as_they_were() -> None:
    logger = logging.getLogger("delegate")
    before = logger.level, logger.propagate, list(logger.handlers)
    logged(logging.DEBUG)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_writing_to_a_closed_pipe_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream:
        streams.write(stream, "first")
        streams.write(stream, "second")


def test_writing_says_whether_somebody_reads() -> None:
    read, write = os.pipe()
    with open(write, "w") as stream:
        assert streams.write(stream, "first")
        os.close(read)
        assert not streams.write(stream, "second")


def test_python_exits_quietly_after_a_closed_pipe() -> None:
    code = "import sys; from label_image import streams; streams.write(sys.stdout, 'x' * 99999)"
    script = f'sleep 0.3; {sys.executable} -c "{code}"; echo $? >&2'
    done = subprocess.run(
        ["bash", "-c", f"({script}) | true"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert done.stderr == "0\n"


def test_a_bar_is_only_for_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with bars.steps("classifying", lambda: pytest.fail("counted for nothing")) as step:
        step()
    assert capfd.readouterr().err == ""


def test_lines_go_above_a_bar_on_a_terminal() -> None:
    code = (
        "import sys, time\n"
        "from label_image import streams\n"
        "from tflite_opencl.common import bars\n"
        "with bars.steps('classifying', lambda: 3) as step:\n"
        "    for number in range(3):\n"
        "        step()\n"
        "        streams.write(sys.stdout, f'[b]row[/b] {number} ' + 'long ' * 30 + 'end')\n"
        "        time.sleep(0.2)\n"
        "streams.write(sys.stdout, 'afterwards')\n"
    )
    text = on_terminal(code, COLUMNS="60")
    assert "classifying" in text
    assert "3/3" in text
    lines = [line for line in re.split(r"[\r\n]+", text) if "row" in line]
    assert lines == [f"[b]row[/b] {number} {'long ' * 30}end" for number in range(3)]
    assert text.rstrip().endswith("afterwards")
