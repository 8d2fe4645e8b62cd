# SPDX-License-Identifier: Apache-2.0
"""label_image's lines: log records, streams whose reader has gone, and what --verbose shows."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from delegate.inspect import LaunchTime
from label_image import console
from label_image.console import interpreter_state, model_lines, profile_lines
from tests.support.model import const, graph_of, op, t
from tests.support.process import on_terminal
from tests.support.tiers import slow
from tflite_opencl.console import bars


def logged(level: int) -> tuple[list[str], list[str]]:
    out, err = io.StringIO(), io.StringIO()
    with console.logging_to(out, err, level):
        logging.getLogger("label_image").info("invoked")
        logging.getLogger("delegate").warning("a device is skipped")
        logging.getLogger("delegate.run").error("gone")
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
        console.write(stream, "first")
        console.write(stream, "second")


def test_writing_says_whether_somebody_reads() -> None:
    read, write = os.pipe()
    with open(write, "w") as stream:
        assert console.write(stream, "first")
        os.close(read)
        assert not console.write(stream, "second")


@slow
def test_python_exits_quietly_after_a_closed_pipe() -> None:
    code = "import sys; from label_image import console; console.write(sys.stdout, 'x' * 99999)"
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


@slow
def test_lines_go_above_a_bar_on_a_terminal() -> None:
    code = (
        "import sys, time\n"
        "from label_image import console\n"
        "from tflite_opencl.console import bars\n"
        "with bars.steps('classifying', lambda: 3) as step:\n"
        "    for number in range(3):\n"
        "        step()\n"
        "        console.write(sys.stdout, f'[b]row[/b] {number} ' + 'long ' * 30 + 'end')\n"
        "        time.sleep(0.2)\n"
        "console.write(sys.stdout, 'afterwards')\n"
    )
    text = on_terminal(code, COLUMNS="60")
    assert "classifying" in text
    assert "3/3" in text
    lines = [line for line in re.split(r"[\r\n]+", text) if "row" in line]
    assert lines == [f"[b]row[/b] {number} {'long ' * 30}end" for number in range(3)]
    assert text.rstrip().endswith("afterwards")


WEIGHTS = const([[1, 2], [3, 4]], (0.5, 0.25), name="weights")


def launch(node: int, name: str, microseconds: float) -> LaunchTime:
    return LaunchTime(
        node=node,
        op=name,
        kernel="k",
        alternative="plain",
        global_size=1,
        microseconds=microseconds,
    )


def test_a_tensor_with_a_scale_for_each_channel_shows_none() -> None:
    pixels, output = t((1, 2), "int8", 0.1, -3, name="in"), t((1, 2), "string", name="out")
    shown = model_lines(graph_of([op("FULLY_CONNECTED", [pixels, WEIGHTS, None], [output])]))
    assert shown == [
        "tensors size: 3",
        "nodes size: 1",
        "inputs: 1",
        "input(0) name: in",
        "0: in, 2, 9, 0.1, -3",
        f"1: weights, {WEIGHTS.data.nbytes if WEIGHTS.data is not None else 0}, 4, 0, 0",
        "2: out, 0, 5, 0, 0",
    ]


def test_the_state_says_of_each_node_who_runs_it() -> None:
    pixels, added, output = (t((1, 2), "uint8", 0.5) for _ in range(3))
    nodes = [
        op("ADD", [pixels, pixels], [added]),
        op("my-op", [added, None], [output], is_custom=True),
    ]
    text = interpreter_state(graph_of(nodes), {0: None, 1: "op my-op is not implemented"})
    assert "Node   0 Operator Builtin Code   0 ADD (delegated by OpenCL)\n" in text
    assert (
        "Node   1 Operator Custom Name my-op (not delegated: op my-op is not implemented)\n"
        "  2 Input Tensors: [1,-1]\n"
        "  1 Output Tensors: [2]"
    ) in text


def test_without_a_delegate_the_state_says_nothing_of_it() -> None:
    pixels, output = t((1, 2), "uint8", 0.5), t((1, 2), "uint8", 0.5)
    text = interpreter_state(graph_of([op("ADD", [pixels, pixels], [output])]))
    assert "Interpreter has 1 subgraphs." in text
    assert "delegated" not in text


def test_profiling_rows_are_label_images() -> None:
    rows = profile_lines(
        [launch(5, "DEPTHWISE_CONV_2D", 5352.0), launch(123, "my-op", 1234567.0)], 9
    )
    assert rows == [
        "     5.352, Subgraph   0, Node   5, OpCode   4, DEPTHWISE_CONV_2D",
        "  1234.567, Subgraph   0, Node 123, OpCode  32, my-op",
    ]


def test_profiling_keeps_the_last_rows() -> None:
    rows = profile_lines([launch(index, "ADD", 1.0) for index in range(5)], 2)
    assert [row.split()[4] for row in rows] == ["3,", "4,"]
