# SPDX-License-Identifier: Apache-2.0
"""The benchmark command runs and adds up; no test here looks at how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import BLOCK_RUNS, in_turns
from delegate import DeviceInfo
from tests.support.model import chain_model, op, t

POOL = {
    "padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A float op that stays on the CPU between two that OpenCL takes."""
    picture = t((1, 8, 8, 3), "uint8", 0.5, 3)
    pooled = t((1, 4, 4, 3), "uint8", 0.5, 3)
    real, squashed = t(pooled.shape), t(pooled.shape)
    quantized = t(pooled.shape, "uint8", 0.5, 3)
    result = t((1, 2, 2, 3), "uint8", 0.5, 3)
    path = tmp_path / "pools.tflite"
    path.write_bytes(
        chain_model(
            [
                op("AVERAGE_POOL_2D", [picture], [pooled], POOL),
                op("DEQUANTIZE", [pooled], [real]),
                op("TANH", [real], [squashed]),
                op("QUANTIZE", [squashed], [quantized]),
                op("MAX_POOL_2D", [quantized], [result], POOL),
            ]
        )
    )
    return path


def test_a_model_of_two_partitions(
    model: Path, device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "times.json"
    arguments = [str(model), "--device", str(device.index), "--runs", "1", "--json", str(written)]

    assert main(arguments) == 0

    (result,) = json.loads(written.read_text())["models"]
    assert result["device"]["name"] == device.name
    counts = {name: result[name] for name in ("nodes", "delegated", "partitions", "launches")}
    assert counts == {"nodes": 5, "delegated": 2, "partitions": 2, "launches": 2}
    assert result["up_bytes"] == 8 * 8 * 3 + 4 * 4 * 3
    assert result["down_bytes"] == 4 * 4 * 3 + 2 * 2 * 3
    paths = result["paths"]
    assert list(paths) == ["OpenCL", result["peer"], "built-in kernels"]
    for times in paths.values():
        assert 0 < times["min_ms"] <= times["median_ms"]
        assert times["ratio"] == times["min_ms"] / paths[result["peer"]]["min_ms"]
        assert times["ratio_quartiles"] == sorted(times["ratio_quartiles"])
    said = capsys.readouterr().out
    assert device.name in said
    assert "| pools " in said
    assert "2 of 5" in said


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("file", "device_name", "line"),
    [
        ("missing.tflite", "0", "missing.tflite"),
        ("pools.tflite", "no such device", "no OpenCL device matches 'no such device'"),
    ],
    ids=["no such model", "no such device"],
)
def test_what_cannot_be_run_is_one_line(
    model: Path, file: str, device_name: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(model.with_name(file)), "--device", device_name]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("ERROR: ")
    assert line in said


def test_contenders_take_turns_in_blocks() -> None:
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in ("a", "b")}

    times = in_turns(contenders, runs=2 * BLOCK_RUNS + 1)

    blocks = [set(calls[i : i + BLOCK_RUNS + 1]) for i in range(0, len(calls), BLOCK_RUNS + 1)]
    assert blocks == [{"a"}, {"b"}, {"b"}, {"a"}, {"a"}, {"b"}]
    assert {name: len(blocks) for name, blocks in times.items()} == {"a": 3, "b": 3}
