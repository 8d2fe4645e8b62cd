# SPDX-License-Identifier: Apache-2.0
"""Models for which the reference kernels are no oracle: commands find no fault in right nodes,
and find those of wrong ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import Graph, write_model
from delegate.run.executor import Executor
from label_image import command
from tests.support import judged
from tests.support.compare import RUNTIME
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.command import main
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.checks import run_check
from tflite_opencl.conformance.checks.job import CaseJob
from tflite_opencl.conformance.results import FAIL, NOT_DELEGATED, PASS
from tflite_opencl.conformance.subject import Subject
from tflite_opencl.console import start
from tflite_opencl.oracle.values import input_sets

pytestmark = needs_tflite

WriteModel = tuple[str, Graph]


@pytest.fixture(params=[judged.lacking, judged.wrong, judged.aborting])
def made(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> WriteModel:
    """Write a model and its input x.npy into a folder, and change to it."""
    monkeypatch.chdir(tmp_path)
    make: Callable[[], Graph] = request.param
    graph = make()
    Path("model.tflite").write_bytes(write_model(graph))
    np.save("x.npy", input_sets(graph)[0][0])
    return "model.tflite", graph


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Yield a function that makes the device compute a byte wrongly."""

    def lie(self: Executor, inputs: Any, outputs: Any) -> None:
        honest(self, inputs, outputs)
        outputs[0][1:2] ^= 2

    honest = Executor.run
    return lambda: monkeypatch.setattr(Executor, "run", lie)


@slow
def test_verify(made: WriteModel, device: DeviceInfo, lies: Callable[[], None]) -> None:
    model, graph = made
    words = ["verify", "-m", model, "--device", str(device.index), "--tune", "off", "--random", "2"]
    assert main([*words, "--json", "out.json"]) == 0
    result = json.loads(Path("out.json").read_text())
    assert {row["node"] for row in result["nodes"]} <= {node.index for node in graph.nodes}
    assert result["reference"].startswith("reference kernels")
    lies()
    assert main(words) == 1


@pytest.mark.parametrize("left", ["", "depthwise_conv_2d"])
def test_label_image(
    left: str,
    made: WriteModel,
    device: DeviceInfo,
    lies: Callable[[], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also if the CPU runs a node with kernels that round differently."""
    model, _ = made
    words = ["--use_gpu", "-m", model, "--input", "0=x.npy", "--device", str(device.index)]
    words += ["--tune", "off", "--min_nodes_per_partition", "1", "--exclude_ops", left]
    words += ["--json", "out.json"]

    def run() -> tuple[int, str]:
        code = start.run(lambda: command.main(words))
        return code, " ".join(capfd.readouterr().err.split())

    code, output = run()
    assert code == 0, output
    assert "outputs equal to TFLite's" in output
    message = json.loads(Path("out.json").read_text()).get("other_kernels", "")
    assert message in output
    assert message or "equal to TFLite's reference kernels" in output
    lies()
    code, output = run()
    assert code == 2
    assert "computes wrongly" in output


def test_run(
    made: WriteModel,
    device: DeviceInfo,
    lies: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, _ = made
    words = ["run", model, "--input", "0=x.npy", "--output", "out", "--tune", "off"]
    words += ["--device", str(device.index)]
    assert main([*words, "--json", "out.json"]) == 0
    assert json.loads(Path("out.json").read_text())["outputs"][0]["off"] == 0
    lies()
    assert main(words) == 1
    assert "the device computes wrongly: up to 2 quanta from TFLite's" in capsys.readouterr().out


@slow
def test_compare(made: WriteModel, device: DeviceInfo) -> None:
    """The built-in kernels round differently, and the report shows their distance."""
    model, graph = made
    paths = f"builtin,reference,opencl:{device.index}"
    main(
        ["compare", "-m", model, "--paths", paths, "--json", "out.json", "--tune", "off", "-c", "1"]
    )
    (result,) = json.loads(Path("out.json").read_text())["models"]
    builtin, _, opencl = result["paths"]
    assert (opencl["quanta"], opencl["failure"]) == (0, "")
    assert builtin["quanta"] is not None
    if graph.nodes[-1].op == "TILE" and result["other_kernels"]:
        assert builtin["quanta"] > 0


@slow
def test_rewrite(made: WriteModel, capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = made
    words = ["rewrite", model, "new.tflite", "--pass", "remove_dead", "--check", "1"]
    assert main(words) == 0
    assert "all outputs are bit-equal" in capsys.readouterr().out


@pytest.mark.parametrize("make", [judged.lacking, judged.wrong])
@pytest.mark.parametrize("left", [(), ("DEPTHWISE_CONV_2D",)])
def test_conformance_suite(
    make: Callable[[], Graph], left: tuple[str, ...], device: DeviceInfo, lies: Callable[[], None]
) -> None:
    graph = make()
    subject = Subject("opencl", {"exclude_ops": left}, device.index, RUNTIME)
    job = CaseJob(subject, graph, write_model(graph), 0, None, lambda: None)
    assert run_check("values", job).result == PASS
    lies()
    assert run_check("values", job).result == FAIL


@slow
def test_suite_does_not_blame_delegate_for_models_that_tflite_refuses(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = next(case for case in all_cases() if case.name.startswith("maxpool3d/float32")).make()

    def result(**options: Any) -> str:
        subject = Subject("opencl", options, device.index, RUNTIME)
        return run_check(
            "values", CaseJob(subject, graph, write_model(graph), 0, None, lambda: None)
        ).result

    assert result() == PASS
    assert result(exclude_ops=(graph.nodes[0].op,)) == NOT_DELEGATED
    monkeypatch.setattr("tflite_opencl.conformance.subject.failure_of", lambda _: "it broke")
    assert result(exclude_ops=(graph.nodes[0].op,)) == FAIL
