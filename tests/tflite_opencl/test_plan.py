# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl plan`: its table, and a plan file for label_image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate import engine as start_engine
from delegate.guard.children import helper
from delegate.inspect import write_model
from tests.support.nets import conv_pool
from tests.support.small_v2 import small_v2
from tflite_opencl.command import main

pytestmark = pytest.mark.device


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(start_engine, "is_on", True)
    monkeypatch.setenv("COLUMNS", "140")
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(conv_pool()))
    yield str(path)
    helper._close()


def test_table(device: DeviceInfo, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", model, "--device", str(device.index), "--tune", "off"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert f"2 of 2 nodes run on {device.name}" in text
    assert "partition 0: 2 nodes; launches" in text
    assert main([*command, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    (partition,) = document["partitions"]
    assert partition["nodes"] == 2
    assert partition["arena_bytes"] > 0
    assert {row["op"] for row in document["launches"]} == {"CONV_2D", "AVERAGE_POOL_2D"}


def test_plan_file_is_used_by_another_start(
    device: DeviceInfo, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "model.plan")
    own = ["--device", str(device.index), "--tune", "off"]
    assert main(["plan", model, *own, "--output", plan]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{plan}: ")
    assert f"2 nodes on {device.name}" in line
    assert main(["plan", model, *own, "--output", plan, "--show"]) == 0
    text = capsys.readouterr().out
    assert "partition 0: 2 nodes; launches" in text
    assert line in text
    assert main(["plan", model, *own, "--plan", plan]) == 0
    placed = [*own, "--placement", "offload:1000", "--threads", "2"]
    assert main(["plan", model, *placed, "--output", plan]) == 0
    assert main(["plan", model, *placed, "--plan", plan]) == 0
    capsys.readouterr()
    other = tmp_path / "other.tflite"
    other.write_bytes(write_model(small_v2()))
    assert main(["plan", str(other), *own, "--plan", plan]) == 255
    output = capsys.readouterr()
    assert "it is of another model, shape, batch, TFLite or options" in output.err + output.out
    assert main(["plan", model, *own, "--output", str(tmp_path / "no" / "m.plan")]) == 255
    assert "cannot write" in capsys.readouterr().err


def test_without_nodes_the_document_is_written_and_no_plan(
    device: DeviceInfo, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, document = tmp_path / "model.plan", tmp_path / "a.json"
    own = ["--device", str(device.index), "--tune", "off", "--exclude_ops"]
    files = ["--output", str(plan), "--json", str(document)]
    assert main(["plan", model, *own, "CONV_2D,AVERAGE_POOL_2D", *files]) == 1
    text = capsys.readouterr().out
    assert f"{plan} is not written: no node runs on the device" in text
    assert json.loads(document.read_text())["partitions"] == []
    assert not plan.exists()
