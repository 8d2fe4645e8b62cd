# SPDX-License-Identifier: Apache-2.0
"""`verify` in a process whose plans are made by a child, as users run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.guard.children.child import ask_once
from delegate.inspect import write_model
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases


def asked(*arguments: str) -> str:
    answers, ended = ask_once("tflite_opencl.verify.child", 200.0, arguments=[*arguments])
    assert answers, ended.stderr
    return str(answers[0])


def test_error_is_an_answer() -> None:
    assert "no/such.tflite" in asked("--tflite_model", "no/such.tflite")


@slow
@pytest.mark.device
def test_every_tensor_is_compared(device: DeviceInfo, tmp_path: Path) -> None:
    # A plan from a child has other tensors than the graph.
    graph = next(c for c in all_cases() if c.name == "chain/int8/diamond-in1x8x8x8").make()
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(graph))
    flags = ["--tflite_model", str(path), "--device", str(device.index), "--tune", "off"]
    # Of four nodes, as CONV_2D computes ADD, too.
    assert "3 tensors compared" in asked(*flags)
