# SPDX-License-Identifier: Apache-2.0
"""The OpenCL run in a child process: what crosses, and children that hang, die or talk nonsense."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo, NoDeviceError, Options
from delegate.inspect import read_model
from label_image import worker
from label_image.decoder import Format
from label_image.open_path import open_path
from label_image.path import Path as OnePath
from label_image.series import Series
from label_image.worker import path_in_child
from tests.support.deal import any_driver
from tests.support.model import chain_model, op, t
from tflite_opencl.common.errors import DelegateFailed, RunError
from tflite_opencl.common.job import Job
from tflite_opencl.common.runtime import find_runtime

pytestmark = any_driver

JOB = Job(model=b"not read by a fake child", input=np.arange(12, dtype=np.uint8), opencl=Options())


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run_in_child(job: Job, seconds: float, command: list[str] | None = None) -> OnePath:
    """Return the path that is timed on the job's input; `command`: of another child."""
    with pytest.MonkeyPatch.context() as patch:
        if command is not None:
            patch.setattr(worker, "command_of", lambda _: command)
        with path_in_child(replace(job, is_timed=True), seconds) as path:
            return path


# Begins a child's code: it has the job, and answers with what it gives to `answer`.
ANSWERS = """
import json, os, pickle, sys
from delegate import NoDeviceError
from tflite_opencl.common.errors import DelegateFailed, RunError
count = json.loads(sys.stdin.buffer.readline())["bytes"]
job = pickle.loads(sys.stdin.buffer.read(count))
def answer(result):
    content = pickle.dumps(result)
    print(json.dumps({"lines": [], "bytes": len(content)}), flush=True)
    sys.stdout.buffer.write(content)
"""


def failing(error: str) -> list[str]:
    """Return a child that answers with this error, which is Python's code."""
    return child(f"{ANSWERS}\nanswer({error})")


@pytest.fixture
def model() -> bytes:
    pixels = t((1, 4, 4, 3), "uint8", 1.0, 128)
    pooled = t((1, 1, 1, 3), "uint8", 1.0, 128)
    flat = t((1, 3), "uint8", 1.0, 128)
    pool = {"padding": "VALID", "stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4}
    return chain_model(
        [
            op("AVERAGE_POOL_2D", [pixels], [pooled], pool),
            op("RESHAPE", [pooled], [flat], {"new_shape": [1, 3]}),
        ]
    )


def test_a_child_that_dies_by_a_signal_is_named() -> None:
    with pytest.raises(DelegateFailed, match=r"the OpenCL run's process died \(SIGSEGV\)"):
        run_in_child(JOB, 60, child("import os; os.kill(os.getpid(), 11)"))


@pytest.mark.parametrize(("code", "end"), [("print('garbage')", "0"), ("sys.exit(3)", "3")])
def test_a_child_that_gives_no_result_is_one_line(code: str, end: str) -> None:
    with pytest.raises(DelegateFailed, match=f"ended with code {end} and without a result$"):
        run_in_child(JOB, 60, child(f"import sys; {code}"))


def test_a_child_that_hangs_is_ended() -> None:
    start_s = time.monotonic()
    with pytest.raises(DelegateFailed, match=r"was ended after 1\.5 seconds \(--device_timeout\)"):
        run_in_child(JOB, 1.5, child("import time; time.sleep(600)"))
    assert time.monotonic() - start_s < 60


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (NoDeviceError, "no OpenCL platform"),
        (DelegateFailed, "CL_OUT_OF_RESOURCES"),
        (RunError, "Failed to allocate tensors: no such op"),
    ],
)
def test_a_failure_in_the_child_is_told_as_its_kind(kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=f"^{text}$"):
        run_in_child(JOB, 60, failing(f"{kind.__name__}({text!r})"))


def test_every_input_s_values_cross_to_the_child() -> None:
    other = np.array([[True, False]])
    job = replace(JOB, input_number=1, other_inputs=((0, other), (2, np.zeros(0, np.int64))))
    values = "[(n, a.tolist(), str(a.dtype)) for n, a in job.other_inputs]"
    with pytest.raises(DelegateFailed) as caught:
        run_in_child(job, 60, failing(f"DelegateFailed(repr([job.input_number, {values}]))"))
    assert str(caught.value) == "[1, [(0, [[True, False]], 'bool'), (2, [], 'int64')]]"


def test_a_child_works_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "DelegateFailed(job.model + ' in ' + os.getcwd())"
    with pytest.raises(DelegateFailed) as caught:
        run_in_child(replace(JOB, model="a.tflite"), 60, failing(code))
    assert str(caught.value) == f"a.tflite in {tmp_path}"


def test_a_real_child_without_opencl_finds_no_device(
    model: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    job = Job(model=model, input=np.zeros((1, 4, 4, 3), np.uint8), opencl=Options())
    with pytest.raises(NoDeviceError, match="no OpenCL platform"):
        run_in_child(job, 60)


def test_a_child_gives_what_a_run_here_gives(device: DeviceInfo, model: bytes) -> None:
    job = Job(
        model=model,
        input=np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3),
        count=2,
        opencl=Options(device.index, exclude_ops=["AVERAGE_POOL_2D"], min_nodes_per_partition=1),
        reference=True,
        quiet=True,
    )
    with open_path(replace(job, is_timed=True), find_runtime(), read_model(model)) as here:
        pass
    there = run_in_child(job, 300)
    assert there.delegation is not None
    assert here.delegation is not None
    assert [output.tolist() for output in there.outputs] == [[[23, 24, 25]]]
    assert [output.tolist() for output in here.outputs] == [[[23, 24, 25]]]
    assert there.delegation == here.delegation
    assert there.delegation.delegated == 1
    assert there.delegation.device == device.name
    assert there.times is not None
    assert there.times.average_ms > 0


def test_a_path_in_a_child_gives_what_one_here_gives(device: DeviceInfo, model: bytes) -> None:
    graph, pixels = read_model(model), np.arange(144, dtype=np.uint8).reshape(3, 4, 4, 3)
    job = Job(model, pixels[:1], opencl=Options(device.index), quiet=True)
    for batch in (None, 3):
        job = replace(job, batch=batch)
        own = open_path(job, find_runtime(), graph)
        with path_in_child(job, 300) as there, own as here:
            assert there.delegation is not None
            assert here.delegation is not None
            assert there.delegation.verdicts == here.delegation.verdicts
            assert there.batch == here.batch == (batch or 1)
            for some in (pixels, pixels[:1]):
                given, expected = there.run(some), here.run(some)
                assert [[o.tolist() for o in each] for each in given] == [
                    [o.tolist() for o in each] for each in expected
                ]
            assert there.pictures == 4
            assert there.cpu_seconds > 0  # of the child, which computes


# Such a child opens a path, gives a picture's outputs, and hangs with the next one.
HANGS = f"""{ANSWERS}
import numpy, time
from delegate import Verdict
from label_image.path import Path
from tflite_opencl.common.job import Delegation
verdicts = Verdict(0, "AVERAGE_POOL_2D", None), Verdict(1, "RESHAPE", None)
answer(Path(1.0, delegation=Delegation("a GPU", "its driver", "1", verdicts, ((0, 1),))))
sys.stdout.flush()
sys.stdin.buffer.read(json.loads(sys.stdin.buffer.readline())["bytes"])
answer(([(numpy.array([[9, 9, 9]], numpy.uint8),)], 0.5, 0.25))
sys.stdout.flush()
time.sleep(600)
"""


def test_a_device_that_hangs_in_the_middle_leaves_the_rest_to_the_cpu(
    model: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "command_of", lambda _: child(HANGS))
    names = [str(tmp_path / f"{number}.png") for number in range(4)]
    for number, name in enumerate(names):
        Image.new("RGB", (4, 4), (number, 7, 5)).save(name)
    job = Job(model, np.zeros((1, 4, 4, 3), np.uint8), opencl=Options())
    with Series(job, find_runtime(), read_model(model), limit_s=5.0) as series:
        series.open()
        outcomes = list(series.outcomes(names, Format((1, 4, 4, 3), "uint8")))
        assert [each.outputs[0].tolist() for each in outcomes] == [
            [[9, 9, 9]], [[1, 7, 5]], [[2, 7, 5]], [[3, 7, 5]],
        ]  # fmt: skip
        assert series.failure == "the OpenCL run was ended after 5 seconds (--device_timeout)"
    assert caplog.messages[-2:] == [series.failure, "the CPU runs the model instead"]


def test_a_child_logs_on_stderr_and_hands_stdout_over(
    device: DeviceInfo,
    model: bytes,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO", "tflite_opencl.stdout")
    job = Job(
        model=model,
        input=np.zeros((1, 4, 4, 3), np.uint8),
        opencl=Options(device.index),
        level=logging.DEBUG,
    )
    run_in_child(job, 300)
    assert caplog.messages[0] == "INFO: GPU delegate created."
    assert "Node   0 Operator Builtin Code   1 AVERAGE_POOL_2D (delegated by OpenCL)" in (
        caplog.messages
    )
    out, err = capfd.readouterr()
    assert out == ""
    assert "INFO: Applied GPU delegate.\n" in err
    assert "INFO: invoked\n" in err
    # No warning of Python's names a source; PyPI's PoCL lies below the folder where it is left out.
    assert not [line for line in err.splitlines() if os.getcwd() in line and "left out" not in line]
