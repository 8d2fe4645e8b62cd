# SPDX-License-Identifier: Apache-2.0
"""The command as a whole: lines, streams, JSON, delegate libraries, and signals."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.host.tflite.callbacks import NativeDelegate
from tests.support.command import (
    CPU_LINES,
    FILES,
    ROOT,
    ROWS,
    Run,
    absolute,
    interrupt,
    pooling_of_two,
)
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.cli.messages import stamped
from tflite_opencl.interpreters.runtime import find_runtime

XNNPACK = "INFO: Applied XNNPACK delegate."
NO_HARDWARE = ("--accelerated", "--gl_backend", "--hexagon_delegate", "--gpu_backend=gl")
# Words after FILES -> stderr's lines. "WARN: WORD" stands for any warning that begins so.
LINES: dict[tuple[str, ...], list[str]] = {
    (): CPU_LINES,
    ("-r", "1"): [*CPU_LINES[:4], ROWS[0]],
    ("--cpu_kernels", "builtin"): CPU_LINES,
    ("--cpu_kernels", "reference"): CPU_LINES,
    ("--use_xnnpack=true",): [*CPU_LINES[:2], XNNPACK, *CPU_LINES[2:]],
    ("--use_xnnpack=true", "--quiet"): CPU_LINES[3:],
    ("-p", "1"): [*CPU_LINES[:2], "WARN: TFLite's Python runtime times no nodes on the CPU:",
                  *CPU_LINES[2:]],
    ("-a", "1", "-j", "1", "-g", "1", "--gpu_backend=gl"): [
        *(f"WARN: {flag}" for flag in NO_HARDWARE), *CPU_LINES,
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"), LINES.items(), ids=[" ".join(words) for words in LINES]
)
def test_lines_of_a_run_on_the_cpu(
    files: Path, run: Run, words: tuple[str, ...], expected: list[str]
) -> None:
    ran = run(*FILES, *words)
    is_announced = XNNPACK in expected
    assert (ran.code, ran.out) == (0, ["INFO: XNNPACK delegate created."] * is_announced)
    assert len(ran.lines) == len(expected)
    for line, whole_or_beginning in zip(ran.lines, expected, strict=True):
        is_warning = whole_or_beginning.startswith("WARN: ")
        assert line == whole_or_beginning or (is_warning and line.startswith(whole_or_beginning))


def test_labels_fewer_than_classes_leave_the_index_alone(files: Path, run: Run) -> None:
    (files / "labels.txt").write_text("red\n")
    assert run(*FILES).lines[-3:] == ["INFO: 0.8: 1", "INFO: 0.4: 2", "INFO: 0.2: 0 red"]


def test_verbose_shows_tensors_on_stderr_and_the_interpreters_state_on_stdout(
    files: Path, run: Run
) -> None:
    ran = run(*FILES, "--verbose", "1")
    assert ran.lines[2:12] == [
        "INFO: tensors size: 3",
        "INFO: nodes size: 2",
        "INFO: inputs: 1",
        "INFO: input(0) name: t0",
        "INFO: 0: t0, 48, 3, 1, 0",
        "INFO: 1: t1, 3, 3, 1, 0",
        "INFO: 2: t2, 3, 3, 1, 0",
        f"INFO: len: {(files / 'picture.bmp').stat().st_size}",
        "INFO: width, height, channels: 4, 4, 3",
        "INFO: input: 0",
    ]
    assert ran.out[0] == "Interpreter has 1 subgraphs."
    assert "Node   0 Operator Builtin Code   1 AVERAGE_POOL_2D" in ran.out


def test_several_inputs_are_warned_about_and_the_others_are_zeros(files: Path, run: Run) -> None:
    pooling_of_two(files)
    ran = run(*FILES)
    assert ran.code == 0
    assert "WARN: the model has 2 inputs: the picture goes to the first, the others are zeros" in (
        ran.lines
    )
    assert ran.lines[-3:] == ROWS


def test_json_of_a_cpu_run_has_no_gpu_part(files: Path, run: Run) -> None:
    ran = run(*FILES, "--json", "out.json", "-t", "1")
    assert ran.code == 0
    runtime = find_runtime()
    document = json.loads((files / "out.json").read_text())
    assert list(document) == [*stamped({}), "model", "image", "runtime", "cpu"]
    assert document["runtime"] == f"{runtime.name} {runtime.version}"
    assert document["cpu"]["threads"] == 1
    assert document["cpu"]["results"][0] == {
        "index": 1, "label": "green", "score": float(np.float32(0.8)),
    }  # fmt: skip


def test_an_external_delegate_is_announced(files: Path, run: Run, library: str) -> None:
    ran = run(*FILES, f"--external_delegate_path={library}", "--json", "out.json")
    assert ran.code == 0
    assert ran.out == ["INFO: EXTERNAL delegate created."]
    assert ran.lines == [*CPU_LINES[:2], "INFO: Applied EXTERNAL delegate.", *CPU_LINES[2:]]
    assert "external" in json.loads((files / "out.json").read_text())


def test_an_external_delegate_gets_its_options(files: Path, run: Run, library: str) -> None:
    options = "--external_delegate_options=a:b;wish:none"
    ran = run(*FILES, f"--external_delegate_path={library}", options)
    assert ran.code == 255
    assert ran.out == []
    assert ran.lines[-1].startswith(f"ERROR: cannot load the delegate {library}: ")
    assert ran.lines[-1].endswith("no such wish")


@slow
@needs_tflite
def test_a_closed_pipe_is_quiet_and_keeps_the_exit_code(files: Path) -> None:
    line = " ".join([sys.executable, "-m label_image", *absolute(files), "--verbose 1"])
    script = f"{line} 2>/dev/null; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({script}) | head -1"],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == "Interpreter has 1 subgraphs.\n"
    assert done.stderr == "0\n"


@slow
@needs_tflite
def test_ctrl_c_on_the_cpu_is_130_and_shows_the_times_so_far(files: Path) -> None:
    ran = interrupt("INFO: resolved reporter", *absolute(files), "--json", "-")
    assert ran.code == 130
    first, warning, *others = ran.lines[1:]
    assert first == "INFO: resolved reporter"
    assert re.fullmatch(r"WARN: Ctrl-C ended it after \d+ of 100000000 timed runs", warning)
    assert others == ["INFO: invoked", "INFO: average time: T ms"]
    document = json.loads("\n".join(ran.out))
    assert document["interrupted"] is True
    assert document["cpu"]["median_ms"] > 0
    assert "results" not in document["cpu"]


@slow
@pytest.mark.parametrize("words", [[], ["--json", "-"], ["--batch", "2", "--json", "-"]])
def test_a_full_stream_is_255_and_a_closed_one_is_no_error(files: Path, words: list[str]) -> None:
    command = shlex.join([sys.executable, "-m", "label_image", *absolute(files), *words])

    def run(streams: str) -> tuple[int, str, list[str]]:
        done = subprocess.run(
            ["bash", "-c", f"{command} --verbose 1 {streams}"],
            capture_output=True, text=True, cwd=ROOT, timeout=300, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return done.returncode, done.stdout, errors

    full = "ERROR: cannot write stdout: No space left on device"
    assert run("> /dev/full") == (255, "", [full])
    assert run("2> /dev/full")[0] == 255
    assert run(">&- 2>&-") == (0, "", [])
    assert run("2>&-")[0] == 0


@pytest.mark.parametrize("callback", ["_prepare_delegate", "_init", "_prepare_kernel", "_invoke"])
@pytest.mark.parametrize("words", [("-c", "9"), ("picture.bmp",)], ids=["one", "several"])
def test_ctrl_c_that_a_callback_drops_is_130_without_a_line(
    device: DeviceInfo,
    files: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    callback: str,
    words: tuple[str, ...],
) -> None:
    # Before a callback's first line Python cannot raise it.
    calls = 0

    def interrupted(self: NativeDelegate, *arguments: Any) -> int:
        nonlocal calls
        calls += 1
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(NativeDelegate, callback, interrupted)
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), *words)
    assert ran.code == 130
    assert calls == 1
    assert [line for line in ran.err if not line.startswith(("INFO: ", "WARN: "))] == []
