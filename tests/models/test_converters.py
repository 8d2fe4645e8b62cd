# SPDX-License-Identifier: Apache-2.0
"""Models as converters write them: each node is right, and only LEFT stay on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.inspect import read_model, with_input_shapes, write_model
from tests.support.compare import RUNTIME
from tests.support.shared import SHARED, model_path
from tests.support.tiers import slow
from tflite_opencl.command import main

pytestmark = pytest.mark.model

NAMES = sorted(path.stem for path in (SHARED / "models" / "converters").glob("*.tflite"))
# Ops of nodes that stay on the CPU.
LEFT: dict[str, set[str]] = {}
OPEN_SIZES = {"mobilenet_v3small_i8io": (1, 224, 224, 3)}
LOOPS = ("rnn_gru_f32", "rnn_lstm_f32")


@slow
@pytest.mark.parametrize("name", NAMES)
def test_each_node_is_right(
    device: DeviceInfo, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("their ops are newer than this TFLite")
    path = model_path(f"converters/{name}")
    if name in OPEN_SIZES:
        graph = with_input_shapes(read_model(path), {0: OPEN_SIZES[name]})
        path = str(tmp_path / "fixed.tflite")
        Path(path).write_bytes(write_model(graph))
    command = ["verify", "-m", path, "--device", str(device.index), "--tune", "off", "--json", "-"]
    code = main([*command, "--quiet"])
    shown = capsys.readouterr()
    if name in LOOPS and not shown.out:  # the CPU is faster without a persistent launch
        assert "its launches cost more than the loop on the CPU" in shown.err
        return
    report = json.loads(shown.out)
    assert (code, report["wrong"]) == (0, False), report["first_wrong"]
    assert report["nodes"]
    assert {each["op"] for each in report["left_to_cpu"]} == LEFT.get(name, set())
