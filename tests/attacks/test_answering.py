# SPDX-License-Identifier: Apache-2.0
"""A language model whose device fails during generation: an error, and a new start resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from tests.attacks.faults import COMMAND, Fault, calls_of
from tests.attacks.keeping import STATE_LOST
from tests.support.llama import write_gguf
from tests.support.process import ROOT
from tests.support.tiers import slow
from tests.tflite_opencl.generate.conftest import runs
from tflite_opencl.generate import Generator
from tflite_opencl.generate.maker import model_of_gguf

pytestmark = [slow, runs]
INVALID_COMMAND_QUEUE = -36
PROMPT, COUNT = [*range(20, 40)], 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of_gguf(str(write_gguf(tmp_path_factory.mktemp("gguf") / "a.gguf")), "int8", 136)


@pytest.fixture(scope="module")
def expected(model: Path) -> list[int]:
    with Generator(model, cpu_kernels="reference") as reference:
        return list(reference.generate(PROMPT, COUNT))


def generate_in_child(
    model: Path, device: DeviceInfo, faults: Path, tokens: Sequence[int], count: int, **told: str
) -> tuple[list[int], list[Any]]:
    """Return the tokens and errors of a process with injected faults."""
    words = {"model": str(model), "device": device.index, "prompt": list(tokens), "count": count}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.attacks.answering", json.dumps(words)],
        env=os.environ | {"LD_PRELOAD": str(faults), "PYTHONPATH": str(ROOT)} | told, cwd=ROOT,
        capture_output=True, text=True, errors="replace", timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    result, errors = json.loads(done.stdout.splitlines()[-1])
    return result, errors


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("call", ["clEnqueueNDRangeKernel", "clFinish"])
def test_new_start_resumes_after_tokens(
    device: DeviceInfo,
    model: Path,
    expected: list[int],
    faults: Path,
    tmp_path: Path,
    call: str,
    lasts: bool,
) -> None:
    counts = tmp_path / "counts"
    for _ in range(2):  # the first start fills the cache
        counts.unlink(missing_ok=True)
        variables = {"FAULT_COUNTS": str(counts)}
        assert generate_in_child(model, device, faults, PROMPT, COUNT, **variables) == (
            expected,
            [],
        )
    calls = calls_of(counts)[COMMAND]
    assert calls.get("clEnqueueCopyBuffer", 0) < COUNT  # decoding copies no KV cache
    nth = calls[call] * 2 // 3
    fault = Fault(call, nth, "error", lasts=lasts, status=INVALID_COMMAND_QUEUE)
    result, errors = generate_in_child(model, device, faults, PROMPT, COUNT, **fault.environment)
    at, first = errors[0]
    assert 0 < at < COUNT
    assert first.endswith("model.tflite does not run: running: CL_INVALID_COMMAND_QUEUE")
    assert all("\n" not in text for _, text in errors)
    assert STATE_LOST in errors[1][1]
    assert result == expected[: len(result)]
    assert (len(result) == COUNT) != lasts
    rest = generate_in_child(model, device, faults, [*PROMPT, *result[:at]], COUNT - at)
    assert rest == (expected[at:], [])
