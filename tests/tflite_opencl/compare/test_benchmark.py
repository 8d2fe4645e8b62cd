# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl benchmark`: benchmark_model's flags, and times of the named path."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate.inspect import write_model
from tests.support.model import chain_model, op, t
from tests.support.nets import conv_pool
from tests.support.tiers import slow
from tflite_opencl.cli.messages import stamped
from tflite_opencl.command import main
from tflite_opencl.compare import benchmark
from tflite_opencl.compare.benchmark import Limits
from tflite_opencl.compare.runs import Running

SHORT = ("--tune", "off", "--num_runs", "3", "--min_secs", "0", "--warmup_min_secs", "0")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("benchmark") / "small.tflite"
    path.write_bytes(write_model(conv_pool()))
    return str(path)


def run_benchmark(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["benchmark", *SHORT, *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@slow
def test_model_on_device(
    capsys: pytest.CaptureFixture[str], model: str, device: DeviceInfo, tmp_path: Path
) -> None:
    nodes = tmp_path / "nodes.csv"
    chosen = ("--path", f"opencl:{device.index}", "--profiling_output_csv_file", str(nodes))
    code, out, err = run_benchmark(capsys, model, *chosen)
    assert (code, err) == (0, "")
    assert "2 of 2" in out
    assert re.search(r"timed runs +3\n", out)
    line = r"INFO: Inference timings in us: Init: \d+, First inference: \d+, Warmup \(avg\): "
    assert re.search(line + r"[\d.e+]+, Inference \(avg\): [\d.e+]+\n", out)
    with nodes.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == ["0", "1"]
    assert all(row["model"] == "small.tflite" and float(row["microseconds"]) > 0 for row in rows)


@slow
def test_several_models_on_the_cpu_as_json(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = run_benchmark(
        capsys, model, "--graph", model, "--path", "builtin", "--json", "-"
    )
    assert code == 0
    document = json.loads(out)
    assert document.items() >= stamped({}).items()
    first, second = document["models"]
    for each in (first, second):
        assert each["warmup"]["runs"] == 1
        timing = each["result"]["timing"]
        assert timing["runs"] == 3
        assert timing["median_ms"] <= timing["p95_ms"] <= timing["p99_ms"] <= timing["max_ms"]
        assert each["result"]["peak_bytes"] > 10e6


@slow
def test_delegate_without_claims_is_no_success(
    capsys: pytest.CaptureFixture[str], device: DeviceInfo, tmp_path: Path
) -> None:
    path = tmp_path / "idle.tflite"
    shape = (1, 1, 1, 4)
    path.write_bytes(chain_model([op("LOCAL_RESPONSE_NORMALIZATION", [t(shape)], [t(shape)])]))
    code, out, _ = run_benchmark(capsys, str(path), "--path", f"opencl:{device.index}")
    assert code == 1
    assert "0 of 1" in out
    assert "idle.tflite: opencl:" in out
    assert "the delegate takes no node: these are times of the CPU's kernels" in out


@slow
def test_failed_path_has_reason(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere")
    code, out, _ = run_benchmark(capsys, model)
    assert code == 1
    assert "small.tflite: opencl: no result: no OpenCL" in out
    code, out, _ = run_benchmark(capsys, model, "--external_delegate_path", "/nowhere.so")
    assert code == 1
    assert "external:/nowhere.so: no result: cannot load the delegate /nowhere.so" in out


@pytest.mark.parametrize(
    "words",
    [("--path", "cpu,reference"), ("--path", "gpu"), ("--num_runs", "0"), ("--min_secs", "-1")],
    ids=" ".join,
)
def test_invalid_values(
    capsys: pytest.CaptureFixture[str], model: str, words: tuple[str, str]
) -> None:
    assert run_benchmark(capsys, model, *words)[0] == 64


class Clock(Running):
    """A path whose runs take a tenth of a second each, on a fake clock."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.runs_ms: list[float] = []
        self.wall_ms = 0.0
        self.blocks: list[tuple[int, float]] = []

    def block(self, runs: int, warmup: int, settle_s: float = 0.0) -> None:
        self.blocks.append((runs, settle_s))
        self.now_s += runs * 0.1 + settle_s
        self.wall_ms += runs * 100
        self.runs_ms += [100.0] * runs


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        ({}, 4),
        ({"min_secs": 1.05}, 11),
        ({"num_runs": 100, "max_secs": 2.05}, 21),
        ({"run_delay": 0.5, "min_secs": 1.0}, 4),
    ],
    ids=["by runs", "by seconds", "until max_secs", "with a delay"],
)
def test_number_of_runs_is_benchmark_models(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], runs: int
) -> None:
    given = {"num_runs": 4, "min_secs": 0.0, "max_secs": 150.0, "run_delay": 0.0}
    limits = Limits(**{**given, "warmup_runs": 0, "warmup_min_secs": 0.0, **changed})
    path = Clock()
    monkeypatch.setattr(benchmark.time, "monotonic", lambda: path.now_s)
    benchmark.run_until(path, limits.num_runs, limits.min_secs, limits)
    assert len(path.runs_ms) == runs
    if limits.run_delay:
        assert path.blocks == [(1, 0), *[(1, 0.5)] * 3]
