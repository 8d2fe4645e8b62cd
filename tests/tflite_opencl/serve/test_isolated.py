# SPDX-License-Identifier: Apache-2.0
"""A model in a child process: arrays cross as they are, and errors keep their kinds."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, NoDeviceError, Options
from delegate.sandbox.child import Child
from tests.support.command import pooling_model
from tests.support.deal import any_driver, slow
from tests.support.model import t
from tflite_opencl.common.errors import CommandError, DelegateFailed
from tflite_opencl.common.interpreter import read_graph
from tflite_opencl.common.runtime import runtime_if_any
from tflite_opencl.serve import isolated
from tflite_opencl.serve.isolated import Isolated
from tflite_opencl.serve.runners import open_runner


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.tflite"
    path.write_bytes(pooling_model(t((1, 4, 4, 3), "uint8", 0.5)))
    return str(path)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 3, 4)])
def test_arrays_cross_as_they_are(dtype: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    arrays = [np.arange(count).reshape(shape).astype(dtype), np.zeros((1, 2), dtype)]
    arrays.append(np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype)))
    parts, forms = isolated._packed(arrays)
    content = b"".join(bytes(memoryview(part)) for part in parts)
    for before, after in zip(arrays, isolated._unpacked(content, forms), strict=True):
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        np.testing.assert_array_equal(before, after)


@slow
@any_driver
def test_it_gives_what_a_runner_of_this_process_gives(device: DeviceInfo, model: str) -> None:
    options = Options(device=device.index, tune="off")
    here = open_runner("m", read_graph(model), model, options, 4, runtime_if_any())
    there = Isolated("m", model, None, options, 4)
    assert (there.device, there.nodes) == (here.device, here.nodes)
    assert there.sizes[0] == 1
    rng = np.random.default_rng(5)
    for pictures in (1, 3, 4):
        given = [rng.integers(0, 255, (pictures, 4, 4, 3)).astype(np.uint8)]
        for ours, theirs in zip(there.run(given, pictures), here.run(given, pictures), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    os.kill(there._child._process.pid, signal.SIGKILL)
    with pytest.raises(DelegateFailed, match=f"ran the model on {device.name} died with SIGKILL"):
        there.run(given, 4)
    here.close()
    there.close()


@slow
@pytest.mark.parametrize(
    ("options", "environment", "kind", "code"),
    [
        (Options(device="no such device"), {}, NoDeviceError, 0),
        (Options(), {"OCL_ICD_VENDORS": "/none"}, NoDeviceError, 0),
        (Options(device_profile="no-such-profile"), {}, CommandError, 64),
    ],
)
def test_errors_keep_their_kinds(
    options: Options,
    environment: dict[str, str],
    kind: type[Exception],
    code: int,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind) as caught:
        Isolated("m", model, None, options, 4)
    assert "\n" not in str(caught.value)
    assert getattr(caught.value, "code", 0) == code


def test_a_child_that_cannot_start_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **settings: Any) -> Child:
        raise OSError(11, os.strerror(11))

    monkeypatch.setattr(isolated, "Child", full)
    with pytest.raises(CommandError, match="a child process cannot be started: Resource temp"):
        Isolated("m", "m.tflite", None, Options(), 4)
