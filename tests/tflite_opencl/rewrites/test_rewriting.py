# SPDX-License-Identifier: Apache-2.0
"""Whole files read and written: untouched parts stay, and TFLite computes equal results."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate.errors import ModelError
from delegate.format import schema
from delegate.format.reader import Subgraphs, read_model
from delegate.format.tree import Tree
from delegate.format.writer import write_model
from delegate.graph.ir import Graph
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.model import const, graph_of, graph_values, op, t
from tests.support.subgraphs import write_subgraphs
from tflite_opencl.models.build import as_int4, in_blocks
from tflite_opencl.rewrites.changes import new_tensor, rebuilt, without_unread
from tflite_opencl.rewrites.rewriting import rewritten
from tflite_opencl.rewrites.tree import OUTSIDE, read_tree, write_tree

REAL_MODELS = sorted((Path(__file__).parents[4] / "shared" / "models").glob("*.tflite"))
real_models = pytest.mark.skipif(
    not REAL_MODELS, reason="no real models in ../shared/models beside the checkout"
)
each_real_model = pytest.mark.parametrize("path", REAL_MODELS, ids=lambda path: path.stem)


def tree_of(model: bytes) -> Tree:
    return read_tree(memoryview(model))[0]


def plain(value: Any) -> Any:
    """Return a tree of lists and bytes, which `==` can compare."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return bytes(value) if isinstance(value, memoryview) else value


def without_places(tree: Tree) -> Any:
    """Return a plain tree without offsets outside of the flatbuffer."""
    for buffer in tree["buffers"]:
        buffer.pop("offset", None)
    return plain(tree)


def small() -> Graph:
    """Return x -ADD c-> y -RELU-> z -MUL d-> w."""
    x, y, z, w = (t((2, 3), name=name) for name in "xyzw")
    c = const(np.arange(3, dtype=np.float32), name="c")
    d = const(np.float32([[2]]), name="d")
    nodes = [op("ADD", [x, c], [y]), op("RELU", [y], [z]), op("MUL", [z, d], [w])]
    return graph_of(nodes)


def without_relu(graph: Graph) -> Graph:
    add, _, mul = graph.nodes
    return rebuilt(graph, [add, replace(mul, inputs=(add.outputs[0], mul.inputs[1]))])


def rich_model() -> bytes:
    """Return a model of two signatures, with parts that Graph does not have."""
    tree = tree_of(write_subgraphs(small(), small(), signatures=(0, 1)))
    tree["metadata"] = [{"name": b"about", "buffer": len(tree["buffers"])}]
    tree["buffers"].append({"data": b"words"})
    tree["buffers"].append({"data": b"read by nobody"})
    tree["metadata_buffer"] = np.array([len(tree["buffers"]) - 1], np.int32)
    main = tree["subgraphs"][0]
    main["name"], main["debug_metadata_index"] = b"main", 3
    main["tensors"][0]["quantization"] = {"min": np.float32([-1]), "max": np.float32([4])}
    main["tensors"][3]["variant_tensors"] = [{"shape": np.int32([2]), "type": 1, "has_rank": True}]
    main["tensors"][3]["has_rank"] = True
    main["operators"][2]["intermediates"] = np.int32([1, -1, 4])
    main["operators"][2]["mutating_variable_inputs"] = np.array([True, False])
    tree["operator_codes"].append({"custom_code": b"unused", "builtin_code": 32, "version": 5})
    tree["operator_codes"][-1]["deprecated_builtin_code"] = 32
    return write_tree(tree)


def sparse_model() -> bytes:
    x, y, w = t((2, 6)), t((2, 4)), t((4, 6))
    values = np.zeros((4, 6), np.float32)
    values[1, 2], values[3, 5] = 4, -1
    stored = replace(const(values, name="stored"), is_sparse=True)
    nodes = [op("DENSIFY", [stored], [w]), op("FULLY_CONNECTED", [x, w], [y])]
    return write_model(graph_of(nodes))


def outside_model() -> bytes:
    """Return a model whose constants are after the flatbuffer, as in large models."""
    tree = tree_of(write_model(small()))
    for buffer in tree["buffers"]:
        if "data" in buffer:
            buffer[OUTSIDE] = buffer.pop("data")
            buffer["offset"], buffer["size"] = 2, 1
    return write_tree(tree)


MODELS = {
    "small": write_model(small()),
    "rich": rich_model(),
    "sparse": sparse_model(),
    "outside": outside_model(),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def outputs(model: bytes) -> list[bytes]:
    interp = interpreter(model)
    sets = inputs_for(read_model(model), seed=4)[:1]
    return [array.tobytes() for given in sets for array in invoke(interp, given)]


def assert_survives(model: bytes) -> None:
    written = rewritten(model, {})
    assert without_places(tree_of(written)) == without_places(tree_of(model))
    assert rewritten(written, {}) == written == rewritten(model, {})
    graphs = {number: Subgraphs(memoryview(model))[number] for number in range(subgraphs(model))}
    assert rewritten(model, graphs) == written
    for number, graph in graphs.items():
        again = Subgraphs(memoryview(written))[number]
        assert graph_values(again) == graph_values(graph)


def subgraphs(model: bytes) -> int:
    return read_model(model).subgraphs


@real_models
@each_real_model
def test_real_model_round_trips(path: Path) -> None:
    assert_survives(path.read_bytes())


@pytest.mark.model
@real_models
@each_real_model
def test_real_model_computes_equal_results(path: Path) -> None:
    model = path.read_bytes()
    if any(node.is_custom for node in read_model(model).nodes):
        pytest.skip("it has a custom op, which TFLite runs nowhere")
    assert outputs(rewritten(model, {})) == outputs(model)


@each_model
def test_synthetic_model_round_trips(model: bytes) -> None:
    assert_survives(model)
    assert outputs(rewritten(model, {})) == outputs(model)


def test_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(MODELS["rich"])
    assert rewritten(path, {}) == rewritten(MODELS["rich"], {})


# Rewritten graphs


def test_unused_tensors_are_dropped() -> None:
    model = MODELS["small"]
    new = tree_of(rewritten(model, {0: without_relu(read_model(model))}))
    names = [each["name"] for each in new["subgraphs"][0]["tensors"]]
    assert names == [b"x", b"c", b"y", b"d", b"w"]
    assert len(new["operator_codes"]) == 2
    assert [each.get("opcode_index", 0) for each in new["subgraphs"][0]["operators"]] == [0, 1]


def test_rest_of_file_stays() -> None:
    model = MODELS["rich"]
    old = tree_of(model)
    written = rewritten(model, {0: without_relu(read_model(model))})
    new = tree_of(written)
    for name in ("metadata", "metadata_buffer", "operator_codes", "buffers"):
        assert plain(new[name]) == plain(old[name]), name
    assert plain(new["subgraphs"][1]) == plain(old["subgraphs"][1])
    before, after = old["subgraphs"][0], new["subgraphs"][0]
    assert (after["name"], after["debug_metadata_index"]) == (b"main", 3)
    dropped = [each for each in before["tensors"] if each["name"] != b"z"]
    assert plain(after["tensors"]) == plain(dropped)
    last = after["operators"][-1]
    # Tensor 1 still exists, and tensor 4 became tensor 3.
    assert last["intermediates"].tolist() == [1, -1, 3]
    assert last["mutating_variable_inputs"].tolist() == [True, False]
    assert [each.get("tensor_index", 0) for each in new["signature_defs"][0]["outputs"]] == [4]
    assert [each.get("tensor_index", 0) for each in new["signature_defs"][1]["outputs"]] == [5]
    runner = interpreter(written).get_signature_runner("graph 0")
    x = np.float32([[-3, 1, 2], [0, -9, 5]])
    assert (runner(x0=x)["y0"] == 2 * (x + np.float32([0, 1, 2]))).all()


def test_changed_constant_has_new_buffer() -> None:
    graph = read_model(MODELS["small"])
    tree = tree_of(MODELS["small"])
    c, d = (each for each in graph.tensors if each.data is not None)
    # One buffer for both constants, as some converters write.
    shared = replace(d, shape=(3,), data=np.arange(3, dtype=np.float32), name="d")
    model = tree_of(rewritten(MODELS["small"], {0: rebuilt(graph, graph.nodes, {d: shared})}))
    tables = model["subgraphs"][0]["tensors"]
    tables[d.index]["buffer"] = tables[c.index]["buffer"]
    both = write_tree(model)
    graph = read_model(both)
    changed = replace(graph.tensors[d.index], data=np.float32([5, 6, 7]))
    new = rewritten(both, {0: rebuilt(graph, graph.nodes, {graph.tensors[d.index]: changed})})
    assert read_model(new).tensors[c.index].data.tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert read_model(new).tensors[d.index].data.tolist() == [5, 6, 7]  # type: ignore[union-attr]
    assert tree["subgraphs"][0]["tensors"][c.index]["buffer"] != 0


def test_removed_constant_leaves_empty_buffer() -> None:
    model = MODELS["small"]
    graph = read_model(model)
    result = new_tensor("half", (1, 1), "float32", data=np.float32([[0.5]]))
    old = graph.nodes[2].inputs[1]
    assert old is not None
    tree = tree_of(rewritten(model, {0: rebuilt(graph, graph.nodes, {old: result})}))
    sizes = [len(buffer.get("data", b"")) for buffer in tree["buffers"]]
    assert sizes == [0, 12, 0, 4]


def test_new_op_is_written() -> None:
    model = MODELS["rich"]
    graph = read_model(model)
    add, relu, mul = graph.nodes
    options = {"fused_activation_function": "RELU6"}
    nodes = [replace(add, options={**add.options, **options}), replace(relu, op="RELU6"), mul]
    written = rewritten(model, {0: rebuilt(graph, nodes)})
    whole = read_model(written)
    assert [node.op for node in whole.nodes] == ["ADD", "RELU6", "MUL"]
    assert whole.nodes[0].options["fused_activation_function"] == "RELU6"
    assert Subgraphs(memoryview(written))[1].nodes[1].op == "RELU"


def test_indices_of_block_scales_are_updated() -> None:
    x, y, z = t((1, 64), name="x"), t((1, 64), name="y"), t((1, 4), name="z")
    scales = np.arange(8, dtype=np.float16).reshape(4, 2)
    weights = in_blocks(as_int4(const(np.ones((4, 64), np.int8), name="w")), scales)
    nodes = [op("RELU", [x], [y]), op("FULLY_CONNECTED", [y, weights, None], [z])]
    model = write_model(graph_of(nodes))
    graph = read_model(model)
    assert without_unread(graph) is graph
    product = graph.nodes[1]
    step = replace(product, inputs=(graph.inputs[0], *product.inputs[1:]))
    new = rebuilt(graph, [step])
    whole = read_model(rewritten(model, {0: new}))
    assert [tensor.name for tensor in whole.tensors] == ["x", "w", "z", "w/scales"]
    blocks = whole.tensors[1].blocks
    assert blocks is not None
    assert (blocks.size, blocks.scales.tolist()) == (32, scales.tolist())
    with pytest.raises(ValueError, match="a graph without tensor 4, which has the scales"):
        rewritten(model, {0: replace(new, tensors=new.tensors[:3])})


def test_bytes_outside_flatbuffer_stay_outside() -> None:
    model = MODELS["outside"]
    tree = tree_of(rewritten(model, {0: without_relu(read_model(model))}))
    outside = [buffer for buffer in tree["buffers"] if OUTSIDE in buffer]
    assert [bytes(each[OUTSIDE]) for each in outside] == [
        np.arange(3, dtype=np.float32).tobytes(),
        np.float32(2).tobytes(),
    ]
    assert all(each["offset"] % 16 == 0 and "data" not in each for each in outside)


def test_custom_options_outside_flatbuffer() -> None:
    custom = op("mine", [t((2,))], [t((2,))], is_custom=True)
    tree = tree_of(write_model(graph_of([custom])))
    operator = tree["subgraphs"][0]["operators"][0]
    operator[OUTSIDE] = b"how"
    operator["large_custom_options_offset"] = operator["large_custom_options_size"] = 2
    model = write_tree(tree)
    assert read_model(rewritten(model, {})).nodes[0].options == {"custom_options": b"how"}


def with_labels(model: bytes) -> bytes:
    file = io.BytesIO(model)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
        archive.writestr("more.txt", "fish")
    return file.getvalue()


def test_appended_archive_stays_readable() -> None:
    model = with_labels(MODELS["rich"])
    written = rewritten(model, {0: without_relu(read_model(model))})
    assert len(written) != len(model)
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        assert archive.testzip() is None
        assert archive.read("labels.txt") == b"cat\ndog\n"
        # Offsets count from the start of the file, as some readers expect.
        for each in archive.infolist():
            assert written[each.header_offset :][:4] == b"PK\3\4"
    assert rewritten(written, {}) == written


def test_other_appended_bytes_stay() -> None:
    assert rewritten(MODELS["small"] + b"signed", {}) == rewritten(MODELS["small"], {}) + b"signed"
    broken = b"PK\1\2 " + struct.pack("<4s4xHHII2x", b"PK\5\6", 9, 9, 4, 0)
    assert rewritten(MODELS["small"] + broken, {}).endswith(broken)


# Errors


def test_unknown_field_is_refused() -> None:
    model = bytearray(MODELS["small"])
    # A table with one field more than in the schema: the last entry of the vtable.
    (root,) = struct.unpack_from("<I", model, 0)
    vtable = root - struct.unpack_from("<i", model, root)[0]
    size = struct.unpack_from("<H", model, vtable)[0]
    fields = model[vtable : vtable + size].ljust(4 + 2 * 12, b"\0") + struct.pack("<H", 4)
    fields[:2] = struct.pack("<H", len(fields))
    place = len(model)
    struct.pack_into("<i", model, root, root - place)
    with pytest.raises(ModelError, match="field 12 of the table Model, which the schema"):
        rewritten(bytes(model + fields), {})


def test_field_of_empty_table_is_refused() -> None:
    x = t((2, 3))
    options = {"fused_activation_function": "RELU"}
    model = write_model(graph_of([op("ADD", [x, x], [t((2, 3))], options)]))
    numbers = schema.enum_values("BuiltinOptions")
    output = []
    for place, byte in enumerate(model):
        if byte == numbers["AddOptions"]:  # discriminants of the union
            odd = model[:place] + bytes([numbers["RankOptions"]]) + model[place + 1 :]
            try:
                rewritten(odd, {})
            except ModelError as error:
                output.append(str(error))
    assert any("field 0 of the table RankOptions, which the schema" in each for each in output)


def test_graph_of_other_file_is_refused() -> None:
    graph = read_model(MODELS["small"])
    with pytest.raises(ValueError, match="other inputs and outputs"):
        rewritten(MODELS["sparse"], {0: replace(graph, outputs=())})
    with pytest.raises(ValueError, match="tensors that the file does not have"):
        rewritten(MODELS["sparse"], {0: graph})


def test_signature_without_tensor_is_refused() -> None:
    model = MODELS["rich"]
    tree = tree_of(model)
    tree["signature_defs"][0]["outputs"][0]["tensor_index"] = 3
    odd = write_tree(tree)
    with pytest.raises(ValueError, match="without tensor 3, which a signature names"):
        rewritten(odd, {0: without_relu(read_model(odd))})


def test_damaged_file_is_read_or_refused() -> None:
    rng = np.random.default_rng(5)
    model = with_labels(MODELS["rich"])
    refused = 0
    for _ in range(400):
        damaged = bytearray(model)
        for place in rng.integers(0, len(model), 3):
            damaged[place] = rng.integers(256)
        try:
            read_model(rewritten(bytes(damaged), {}))
        except ModelError:
            refused += 1
    assert 50 < refused < 400
    for size in range(0, len(model), 97):
        with pytest.raises(ModelError):
            rewritten(model[: size // 2], {})
