# SPDX-License-Identifier: Apache-2.0
"""The path of the reference kernels in a child: what crosses, and children that die or babble."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from delegate.inspect import read_model
from label_image import worker
from label_image.open_path import open_path
from label_image.run_result import RunResult
from label_image.worker import path_in_child, run_in_child
from tests.support.command import pooling_model
from tests.support.model import t
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.console.errors import DelegateFailed, RunError
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import find_runtime

JOB = Job(b"not read by a fake child", np.arange(12, dtype=np.uint8), True, cpu_kernels="reference")
DIED = "the process of the CPU's kernels"


def run_with(code: str, job: Job = JOB) -> RunResult:
    """Return the result of a job; `code`: of the child."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "command_of", lambda _: [sys.executable, "-c", code])
        return run_in_child(job)


# Begins a child's code: it has the job, and answers with what it gives to `answer`.
ANSWERS = """
import json, os, pickle, sys
from tflite_opencl.console.errors import DelegateFailed, RunError
count = json.loads(sys.stdin.buffer.readline())["bytes"]
job = pickle.loads(sys.stdin.buffer.read(count))
def answer(result):
    content = pickle.dumps(result)
    print(json.dumps({"bytes": len(content)}), flush=True)
    sys.stdout.buffer.write(content)
"""


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("os.kill(os.getpid(), 11)", "died with SIGSEGV"),
        ("print('garbage')", "ended with code 0"),
        ("sys.exit(3)", "ended with code 3"),
    ],
)
def test_a_child_without_a_result_is_one_line(code: str, end: str) -> None:
    with pytest.raises(RunError, match=f"^{DIED} {end}$"):
        run_with(f"import os, sys; {code}")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DelegateFailed, "CL_OUT_OF_RESOURCES"),
        (RunError, "Failed to allocate tensors: no such op"),
    ],
)
def test_a_failure_in_the_child_is_raised_as_its_kind(kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=f"^{text}$"):
        run_with(f"{ANSWERS}\nanswer({kind.__name__}({text!r}))")


def test_every_input_s_values_cross_to_the_child() -> None:
    other = np.array([[True, False]])
    job = replace(JOB, input_number=1, other_inputs=((0, other), (2, np.zeros(0, np.int64))))
    values = "[(n, a.tolist(), str(a.dtype)) for n, a in job.other_inputs]"
    with pytest.raises(RunError) as caught:
        run_with(f"{ANSWERS}\nanswer(RunError(repr([job.input_number, {values}])))", job)
    assert str(caught.value) == "[1, [(0, [[True, False]], 'bool'), (2, [], 'int64')]]"


def test_a_child_works_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "answer(RunError(job.model + ' in ' + os.getcwd()))"
    with pytest.raises(RunError) as caught:
        run_with(f"{ANSWERS}\n{code}", replace(JOB, model="a.tflite"))
    assert str(caught.value) == f"a.tflite in {tmp_path}"


@slow
@needs_tflite
def test_a_path_in_a_child_equals_one_here(capfd: pytest.CaptureFixture[str]) -> None:
    model = pooling_model(t((1, 4, 4, 3), "uint8", 1.0, 0))
    graph, pixels = read_model(model), np.arange(144, dtype=np.uint8).reshape(3, 4, 4, 3)
    job = Job(model, pixels[:1], cpu_kernels="reference", is_silent=True, batch=3)
    with path_in_child(job) as there, open_path(job, find_runtime(), graph) as here:
        assert there.facts.batch == here.facts.batch
        for some in (pixels, pixels[:1]):
            result, expected = there.run(some), here.run(some)
            assert [[o.tolist() for o in each] for each in result.outputs] == [
                [o.tolist() for o in each] for each in expected.outputs
            ]
            assert result.cpu_seconds > 0  # of the child, which computes
    out, err = capfd.readouterr()
    assert out == ""
    # No warning of Python's names a source.
    assert not [line for line in err.splitlines() if os.getcwd() in line and "left out" not in line]
