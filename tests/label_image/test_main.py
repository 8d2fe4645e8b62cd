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


def test_a_run_on_the_cpu_prints_label_images_lines_on_stderr(files: Path, run: Run) -> None:
    ran = run(*FILES)
    assert ran.code == 0
    assert ran.out == []
    assert ran.lines == CPU_LINES


def test_num_results_limits_the_rows(files: Path, run: Run) -> None:
    assert run(*FILES, "-r", "1").lines[-2:] == ["INFO: average time: T ms", ROWS[0]]


def test_a_quiet_run_shows_the_results_and_the_time_alone(files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_xnnpack=true", "--quiet")
    assert (ran.code, ran.out) == (0, [])
    assert ran.lines == ["INFO: average time: T ms", *ROWS]


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


def test_xnnpack_asked_for_is_announced(files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_xnnpack=true")
    assert ran.out == ["INFO: XNNPACK delegate created."]
    assert "INFO: Applied XNNPACK delegate." in ran.lines


def test_flags_of_missing_hardware_warn_once_each_and_go_on(files: Path, run: Run) -> None:
    ran = run(*FILES, "-a", "1", "-j", "1", "-g", "1", "--gpu_backend=gl")
    assert ran.code == 0
    assert [line.split()[1] for line in ran.lines[:4]] == [
        "--accelerated", "--gl_backend", "--hexagon_delegate", "--gpu_backend=gl",
    ]  # fmt: skip
    assert all(line.startswith("WARN: ") for line in ran.lines[:4])
    assert ran.lines[4:] == CPU_LINES


def test_profiling_on_the_cpu_says_that_there_is_nothing(files: Path, run: Run) -> None:
    ran = run(*FILES, "-p", "1")
    assert ran.code == 0
    assert [line for line in ran.lines if line.startswith("WARN: ")] == [
        "WARN: TFLite's Python runtime times no nodes on the CPU: only OpenCL's are shown"
    ]


@pytest.mark.parametrize("kernels", ["auto", "builtin", "reference"])
def test_cpu_kernels_can_be_chosen(files: Path, run: Run, kernels: str) -> None:
    assert run(*FILES, "--cpu_kernels", kernels).lines == CPU_LINES


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


def test_json_that_cannot_be_written_is_an_error_before_the_run(files: Path, run: Run) -> None:
    ran = run(*FILES, "--json", "no/such/folder.json")
    assert ran.code == 255
    assert ran.lines == [
        f"ERROR: cannot write no/such/folder.json: there is no folder {files / 'no' / 'such'}"
    ]


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


@pytest.mark.parametrize("path", ["libnosuch.so", "picture.bmp"])
def test_a_delegate_library_that_does_not_load_is_an_error(
    files: Path, run: Run, path: str
) -> None:
    ran = run(*FILES, "--external_delegate_path", f"./{path}")
    assert ran.code == 255
    assert ran.lines[-1].startswith(f"ERROR: cannot load the delegate ./{path}: ")
    assert len(ran.lines) == 3


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
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return done.returncode, done.stdout, said

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
