# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl rewrite`: file, table, verification, and no partial files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate.inspect import read_model, write_model
from tests.support.compare import interpreter
from tests.support.convolution import Convolution
from tests.support.model import graph_of, op, t
from tests.support.open_sizes import open_classifier
from tests.support.small_v2 import small_v2
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tflite_opencl.command import main
from tflite_opencl.rewrites import agreement, graph_passes, pass_bundles
from tflite_opencl.rewrites.passes import remove_dead


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small MobileNet V2, with a dead node."""
    graph = small_v2()
    x = graph.inputs[0]
    dead = op("RELU", [x], [replace(x, name="dead", index=-1)])
    path = tmp_path_factory.mktemp("rewrite") / "v2.tflite"
    path.write_bytes(write_model(graph_of([*graph.nodes, dead], outputs=graph.outputs)))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["rewrite", *map(str, arguments)])
        output = capsys.readouterr()
        return code, output.out, output.err

    return command


@slow
def test_file_and_table(run: Any, model: Path, tmp_path: Path) -> None:
    target = tmp_path / "new.tflite"
    names = ("remove_dead", "depthwise_to_conv", "unstride_convolutions")
    code, out, err = run(model, target, "--pass", *names, "--check", 2)
    assert (code, err) == (0, "")
    before, after = read_model(model), read_model(target)
    assert not any(node.op == "DEPTHWISE_CONV_2D" for node in after.nodes)
    assert f"{len(before.nodes)} -> {len(before.nodes) - 1}" in out
    assert all(name in out for name in ("remove_dead", "depthwise_", "unstride_"))
    assert "on 2 inputs: all outputs are bit-equal" in out
    sizes = target.stat().st_size, model.stat().st_size
    assert "{}: {:,} bytes, {:,} before".format(target, *sizes) in out
    interpreter(target.read_bytes()).invoke()
    assert os.listdir(tmp_path) == ["new.tflite"]


def test_output_is_deterministic(run: Any, model: Path, tmp_path: Path) -> None:
    for name in "ab":
        run(model, tmp_path / name, "--for", "no-depthwise")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@slow
def test_json(run: Any, model: Path, tmp_path: Path) -> None:
    arguments = (model, tmp_path / "o", "--for", "teflon", "--check", "1", "--json", "-")
    code, out, _ = run(*arguments)
    report = json.loads(out)
    assert code == 0
    assert report["schema"] == 1
    (steps,) = report["subgraphs"]
    assert [step["pass"] for step in steps] == list(pass_bundles()["teflon"].passes)
    assert steps[-1]["before"]["nodes"] == steps[-1]["after"]["nodes"] + 1
    assert steps[-1]["notes"][0]["treated"] is True
    assert report["check"]["inputs"] == 1
    assert report["bytes"] == (tmp_path / "o").stat().st_size


def per_channel(path: Path) -> None:
    cases = Convolution(size=(9, 9, 8), out_c=12, dtype="int8", per_channel=True).node()
    path.write_bytes(write_model(graph_of([cases])))


@slow
def test_lossy_pass_reports_loss(run: Any, tmp_path: Path) -> None:
    per_channel(tmp_path / "in")
    arguments = (tmp_path / "in", tmp_path / "out", "--pass", "per_channel_to_per_tensor")
    code, out, _ = run(*arguments, "--check", 3)
    assert code == 0
    assert "lossy, worst layer" in " ".join(out.split())
    assert "per_channel_to_per_tensor: node 0 CONV_2D: " in out
    assert "greatest difference " in out
    assert " quanta, SQNR " in out
    weights = read_model(tmp_path / "out").nodes[0].inputs[1]
    assert weights is not None
    assert weights.quantization is not None
    assert len(weights.quantization.scale) == 1


@slow
def test_pictures(run: Any, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "ab":
        pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    arguments = (model, tmp_path / "o", "--pass", "remove_dead", "--images", folder)
    code, out, _ = run(*arguments)
    assert code == 0
    assert "on 2 inputs: all outputs are bit-equal" in out
    code, _, err = run(*arguments[:-1], tmp_path / "nothing")
    assert code == 255
    assert err.count("\n") == 1


@slow
def test_graph_of_signature_is_verified(run: Any, tmp_path: Path) -> None:
    model, target = tmp_path / "two.tflite", tmp_path / "new.tflite"
    model.write_bytes(two_signatures())
    arguments = (model, target, "--pass", "depthwise_to_conv", "--check", 1, "--signature")
    code, out, err = run(*arguments, "graph 1")
    assert (code, err) == (0, "")
    assert "on 1 input: all outputs are bit-equal" in out
    code, _, err = run(*arguments, "decode")
    assert (code, err.count("\n")) == (64, 1)
    assert "there is no signature 'decode'; the model has 'graph 0', 'graph 1'" in err


def test_unchanged_nodes_have_reasons(run: Any, tmp_path: Path) -> None:
    x, y = t((2, 3), "int8", 0.1, 3), t((2, 3), "int8", 0.2, 3)
    (tmp_path / "in").write_bytes(write_model(graph_of([op("RELU", [x], [y])])))
    code, out, _ = run(tmp_path / "in", tmp_path / "out", "--pass", "fuse_activations")
    assert code == 0
    assert "left 1 x RELU: it changes the scale or the zero point" in out


def test_passes_and_bundles_are_listed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = run("--list")
    assert code == 0
    assert all(name in out for name in (*graph_passes(), *pass_bundles()))


@slow
def test_inexact_pass_writes_nothing(
    run: Any, tmp_path: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = t((2, 3)), t((2, 3))
    model = tmp_path_factory.mktemp("wrong") / "add.tflite"
    model.write_bytes(write_model(graph_of([op("ADD", [x, x], [y])])))

    def wrong(graph: Any, notes: Any = None) -> Any:
        first = graph.nodes[0]
        options = {**first.options, "fused_activation_function": "RELU"}
        return replace(graph, nodes=(replace(first, options=options), *graph.nodes[1:]))

    monkeypatch.setattr(remove_dead, "rewrite", wrong)
    arguments = (model, tmp_path / "o", "--pass", "remove_dead")
    code, out, _ = run(*arguments, "--check", 1)
    assert code == 1
    assert "these passes are exact, so" in out
    assert os.listdir(tmp_path) == []


@slow
def test_dynamic_sizes_are_those_of_flag_or_224(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, target = tmp_path / "open.tflite", tmp_path / "new.tflite"
    model.write_bytes(open_classifier(least=5))
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (9, 8)).save(tmp_path / "pictures" / "p.png")
    given: list[tuple[int, ...]] = []
    whole = agreement.invoke

    def invoke(made: Any, inputs: Any) -> Any:
        given.append(inputs[0].shape)
        return whole(made, inputs)

    monkeypatch.setattr(agreement, "invoke", invoke)
    command = model, target, "--pass", "remove_dead"
    for more, shape in (
        (("--check", 1, "--input_size", "7x6"), (1, 7, 6, 3)),
        (("--images", tmp_path / "pictures", "--input_size", "7x6"), (1, 7, 6, 3)),
        (("--check", 1), (1, 224, 224, 3)),
    ):
        code, out, err = run(*command, *more)
        assert code == 0, err
        assert "on 1 input: all outputs are bit-equal" in out
        assert {*given} == {shape}
        given.clear()
    assert read_model(target).inputs[0].shape_signature == (1, -1, -1, 3)
    code, _, err = run(*command, "--input_size", "7x6")
    assert (code, err) == (64, "ERROR: --input_size is for --check and --images\n")
