# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl cut`: parts compute what they do in the model; invalid parts are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate.inspect import read_model, read_signatures, write_model
from tests.attacks.fuzz.drawing import drawn
from tests.attacks.fuzz.pieces import PIECES
from tests.support.model import chain_model, const, op, t
from tests.support.nets import conv_pool
from tests.support.open_sizes import open_classifier
from tests.support.shared import model_path
from tests.support.subgraphs import write_subgraphs
from tests.support.without_tflite import make_so
from tflite_opencl.command import main
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.interpreters.runtime import find_runtime


def assert_parts_are_the_model(model: Path, folder: Path, nodes: str = "all") -> list[str]:
    """Cut a model; check each part's outputs on the reference kernels; return their names."""
    command = ["cut", str(model), "--nodes", nodes, "--output", str(folder), "--inputs"]
    assert main(command) == 0
    parts = sorted(folder.glob("*.tflite"))
    for part in parts:
        result = allocated(find_runtime(), str(part), "reference")
        inputs, expected = (_arrays(part, kind) for kind in ("input", "output"))
        for got, wanted in zip(invoke(result, inputs), expected, strict=True):
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), part
            assert got.tobytes() == wanted.tobytes(), part
    return [part.stem for part in parts]


def test_values_are_numpys_without_tflite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.tflite").write_bytes(write_model(conv_pool()))
    command = ["cut", str(tmp_path / "model.tflite"), "--nodes", "all", "--inputs", "--output"]
    assert main([*command, str(tmp_path / "tflite")]) == 0
    assert capsys.readouterr().out.endswith(", with the values of TFLite's reference kernels\n")
    make_so(monkeypatch)
    assert main([*command, str(tmp_path / "numpy")]) == 0
    assert capsys.readouterr().out.endswith(", with the values of numpy's reference kernels\n")
    files = sorted((tmp_path / "tflite").iterdir())
    assert [each.name for each in files if each.suffix == ".npy"]
    for file in files:
        assert (tmp_path / "numpy" / file.name).read_bytes() == file.read_bytes()


def _arrays(part: Path, kind: str) -> list[np.ndarray]:
    count = len([*part.parent.glob(f"{part.stem}_{kind}_*.npy")])
    return [np.load(part.with_name(f"{part.stem}_{kind}_{n}.npy")) for n in range(count)]


@pytest.mark.parametrize("number", range(8))
def test_nodes_of_random_graph(number: int, tmp_path: Path) -> None:
    graph = drawn(number, PIECES)
    model = tmp_path / "drawn.tflite"
    model.write_bytes(write_model(graph))
    names = assert_parts_are_the_model(model, tmp_path / "parts")
    assert names == [f"{index:03}" for index in range(len(graph.nodes))]


def test_several_nodes(tmp_path: Path) -> None:
    graph = drawn(5, PIECES)
    last = len(graph.nodes) - 1
    assert last >= 3
    model = tmp_path / "drawn.tflite"
    model.write_bytes(write_model(graph))
    names = assert_parts_are_the_model(model, tmp_path / "parts", f"0-{last},1-2,3")
    assert names == [f"000-{last:03}", "001-002", "003"]
    whole = read_model(tmp_path / "parts" / f"000-{last:03}.tflite")
    assert [node.op for node in whole.nodes] == [node.op for node in graph.nodes]


def test_names_weights_and_quantisation_stay(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(write_model(conv_pool()))
    assert main(["cut", str(model), "--nodes", "0", "--output", str(tmp_path)]) == 0
    (old, *_), (new,) = conv_pool().nodes, read_model(tmp_path / "000.tflite").nodes
    assert (new.op, new.version) == (old.op, old.version)
    assert {**new.options, **old.options} == new.options
    for before, after in zip((*old.inputs, *old.outputs), (*new.inputs, *new.outputs), strict=True):
        assert before is not None
        assert after is not None
        facts = ("name", "shape", "dtype", "quantization")
        assert [getattr(before, fact) for fact in facts] == [getattr(after, fact) for fact in facts]
        assert (before.data is None) == (after.data is None)
        if before.data is not None:
            np.testing.assert_array_equal(after.data, before.data)


def test_constant_tensors_are_folded(tmp_path: Path) -> None:
    picture, flat = t((2, 3, 4)), t((6, 4))
    shape, part = t((3,), "int32"), t((1,), "int32")
    joined = t((2,), "int32")
    slicing = [const(np.array([n], np.int32)) for n in (2, 3, 1)]
    nodes = [
        op("SHAPE", [picture], [shape], {"out_type": "int32"}),
        op("STRIDED_SLICE", [shape, *slicing], [part]),
        op("CONCATENATION", [const(np.array([6], np.int32)), part], [joined]),
        op("RESHAPE", [picture, joined], [flat]),
    ]
    model = tmp_path / "model.tflite"
    model.write_bytes(chain_model(nodes))
    assert assert_parts_are_the_model(model, tmp_path / "parts") == ["000", "001", "002", "003"]
    (reshape,) = read_model(tmp_path / "parts" / "003.tflite").nodes
    assert reshape.inputs[1] is not None
    assert reshape.inputs[1].data is not None
    assert reshape.inputs[1].data.tolist() == [6, 4]


def test_nodes_that_cannot_be_cut_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handle, value, out = t((), "resource"), t((2,)), t((2,))
    which, chosen, other = t((1,), "bool"), t((2,)), t((2,))
    nodes = [
        op("VAR_HANDLE", [], [handle], {"shared_name": "a"}),
        op("ASSIGN_VARIABLE", [handle, value], []),
        op("ADD", [value, value], [out]),
        op("IF", [which, out], [chosen], {"then_subgraph_index": 1, "else_subgraph_index": 1}),
        op("IF", [which, out], [other], {"then_subgraph_index": 1, "else_subgraph_index": 7}),
    ]
    main_graph = read_model(chain_model(nodes, outputs=[chosen, other]))
    model = tmp_path / "model.tflite"
    model.write_bytes(write_subgraphs(main_graph, conv_pool()))
    assert main(["cut", str(model), "--output", str(tmp_path / "parts")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "000: not written: it writes t0, which is a resource and no value",
        "001: not written: it has no output",
        "002.tflite: ADD",
        "003.tflite: IF",
        "004: not written: node 4 IF runs other subgraphs",
        f"2 of 5 written to {tmp_path / 'parts'}",
    ]
    assert len(read_signatures(tmp_path / "parts" / "003.tflite")[0]) == 2
    assert main(["cut", str(model), "--nodes", "4", "--output", str(tmp_path)]) == 255
    assert "none of these nodes makes a model of its own" in capsys.readouterr().err


@pytest.mark.model
@pytest.mark.parametrize(
    "name", ["mobilenet_v1_0.25_128_quant", "movenet_single_pose_lightning_ptq"]
)
def test_nodes_of_real_model(name: str, tmp_path: Path) -> None:
    parts = assert_parts_are_the_model(Path(model_path(name)), tmp_path)
    assert len(parts) == len(read_model(model_path(name)).nodes)


def test_dynamic_sizes_are_those_of_flag_picture_or_224(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, picture, parts = tmp_path / "open.tflite", tmp_path / "p.png", tmp_path / "parts"
    model.write_bytes(open_classifier(least=5))
    Image.new("RGB", (9, 8)).save(picture)
    command = ["cut", str(model), "--output", str(parts), "--inputs"]
    for more, shape in (
        (["--input_size", "7x6"], (1, 7, 6, 3)),
        (["--image", str(picture)], (1, 8, 9, 3)),
        ([], (1, 224, 224, 3)),
    ):
        assert main([*command, *more]) == 0, capsys.readouterr()
        assert np.load(parts / "000_input_0.npy").shape == shape
        assert read_model(str(parts / "001.tflite")).inputs[0].shape == shape
        result = allocated(find_runtime(), str(parts / "001.tflite"), "reference")
        (got,) = invoke(result, [np.load(parts / "001_input_0.npy")])
        assert got.tobytes() == np.load(parts / "001_output_0.npy").tobytes()
    capsys.readouterr()
    assert main([*command, "--input_size", "4"]) == 64
    assert "--input_size" in capsys.readouterr().err
