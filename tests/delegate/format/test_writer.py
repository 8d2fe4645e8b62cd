# SPDX-License-Identifier: Apache-2.0
"""The writer against the reader, the generated classes and TFLite itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from hypothesis import given
from hypothesis import strategies as st

from delegate.errors import ModelError
from delegate.format import schema
from delegate.format.reader import Subgraphs, read_model
from delegate.format.writer import write_model
from delegate.graph.ir import Graph, Node, Tensor
from tests.support.model import chain_model, const, graph_of, graph_values, one_op_model, op, t
from tests.support.subgraphs import write_subgraphs
from tests.support.tiers import slow
from tests.support.variables import counter, counter_model, handle
from tflite_opencl.interpreters.runtime import find_runtime

Interpreter = find_runtime().module.Interpreter

REAL_MODELS = sorted((Path(__file__).parents[4] / "shared" / "models").glob("*.tflite"))
each_real_model = pytest.mark.parametrize("path", REAL_MODELS, ids=lambda path: path.stem)
real_models = pytest.mark.skipif(
    not REAL_MODELS, reason="no real models in ../shared/models beside the checkout"
)
BUILTIN_OPS = sorted(set(schema.enum_values("BuiltinOperator")) - {"CUSTOM"})


def relu(**changes: Any) -> Graph:
    """A graph of one RELU, its input tensor changed."""
    graph = graph_of([op("RELU", [t((2, 3))], [t((2, 3))])])
    changed = dataclasses.replace(graph.tensors[0], **changes)
    node = dataclasses.replace(graph.nodes[0], inputs=(changed,))
    tensors = (changed, graph.tensors[1])
    return dataclasses.replace(graph, tensors=tensors, nodes=(node,), inputs=(changed,))


# Round trips


@real_models
@each_real_model
def test_a_real_model_survives_the_round_trip(path: Path) -> None:
    graph = read_model(path)
    written = write_model(graph)
    assert graph_values(read_model(written)) == graph_values(graph)
    assert write_model(read_model(written)) == written


def outputs_of(model: bytes, seed: int) -> list[bytes] | str:
    interpreter = Interpreter(model_content=model, num_threads=1)
    rng = np.random.default_rng(seed)
    try:
        interpreter.allocate_tensors()
    except RuntimeError as error:  # a custom op that TFLite does not know
        return str(error)
    for details in interpreter.get_input_details():
        picture = rng.integers(0, 256, details["shape"])
        interpreter.set_tensor(details["index"], picture.astype(details["dtype"]))
    interpreter.invoke()
    return [
        interpreter.get_tensor(details["index"]).tobytes()
        for details in interpreter.get_output_details()
    ]


@pytest.mark.model
@real_models
@each_real_model
def test_a_rewritten_real_model_computes_the_same(path: Path) -> None:
    model = path.read_bytes()
    outputs = outputs_of(model, seed=3)
    has_custom_op = any(node.is_custom for node in read_model(model).nodes)
    assert isinstance(outputs, str) == has_custom_op
    assert outputs_of(write_model(read_model(model)), seed=3) == outputs


def option_value(field: schema.Field, rng: np.random.Generator) -> Any:
    """Return a random value as the reader would give it for this field."""
    if field.kind == "string":
        return f"text {rng.integers(100)}"
    count = int(rng.integers(0, 5)) if field.kind == "vector" else 1
    if field.enum:
        values = tuple(rng.choice(sorted(schema.enum_values(field.enum)), count).tolist())
    elif field.flags.__name__ == "BoolFlags":
        values = tuple(bool(bit) for bit in rng.integers(0, 2, count))
    elif field.flags.__name__ == "Float32Flags":
        values = tuple(rng.normal(size=count).astype("float32").tolist())
    elif field.flags.__name__ == "Uint8Flags":
        return rng.bytes(count)
    else:
        low = 0 if field.flags.min_val == 0 else -(2**31)
        values = tuple(rng.integers(low, 2**31, count).tolist())
    return values if field.kind == "vector" else values[0]


@pytest.mark.parametrize("name", BUILTIN_OPS)
def test_every_option_of_an_op_survives_the_round_trip(name: str) -> None:
    rng = np.random.default_rng(2)
    options_class = schema.options_class(name)
    fields = schema.fields(options_class[0]) if options_class else {}
    for version in (1, 2, 7):
        options = {field.name: option_value(field, rng) for field in fields.values()}
        node = read_model(one_op_model(name, [t((2,))], [t((2,))], options, version=version)).nodes[
            0
        ]
        assert (node.op, node.version, dict(node.options)) == (name, version, options)


def test_options_left_out_get_the_schema_s_defaults() -> None:
    for name in BUILTIN_OPS:
        options_class = schema.options_class(name)
        if options_class is None:
            continue
        options = read_model(one_op_model(name, [t((2,))], [t((2,))])).nodes[0].options
        for field in schema.fields(options_class[0]).values():
            if field.kind == "scalar":
                names = schema.enum_names(field.enum) if field.enum else {}
                assert options[field.name] == names.get(field.default, field.default)
            else:
                assert len(options[field.name]) == 0


DTYPES = [name for name in schema.enum_values("TensorType") if schema.numpy_dtype(name)]
int32s = st.integers(-(2**31), 2**31 - 1)
sizes = st.integers(1, 4)
floats = st.floats(width=32)


@st.composite
def tensors(draw: st.DrawFn, is_constant: bool) -> Tensor:
    shape = tuple(draw(st.lists(sizes if is_constant else st.integers(0, 2**31 - 1), max_size=5)))
    dtype = draw(st.sampled_from(DTYPES))
    scales = draw(st.lists(floats, max_size=3))
    data = None
    if is_constant:
        number = np.dtype(dtype)
        count = int(np.prod(shape))
        content = draw(st.binary(min_size=count, max_size=count))
        data = np.resize(np.frombuffer(content, np.uint8), count * number.itemsize).view(number)
        data = data.reshape(shape)
    return dataclasses.replace(
        t(
            shape,
            dtype,
            scales or None,
            draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3)),
            axis=draw(int32s) if scales else 0,
            name=draw(st.text(min_size=1, max_size=12)),
            is_variable=draw(st.booleans()),
            shape_signature=draw(st.lists(int32s, max_size=4)),
        ),
        data=data,
    )


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes: list[Node] = []
    known: list[Tensor | None] = [None, *draw(st.lists(tensors(False), max_size=2))]
    known += draw(st.lists(tensors(True), min_size=1, max_size=3))
    for _ in range(draw(st.integers(1, 4))):
        inputs = draw(st.lists(st.sampled_from(known), max_size=4))
        outputs = draw(st.lists(tensors(False), min_size=1, max_size=2))
        version = draw(int32s)
        if draw(st.booleans()):
            options: dict[str, Any] = {"custom_options": draw(st.binary(max_size=9))}
            name = draw(st.text(min_size=1, max_size=9))
            nodes.append(op(name, inputs, outputs, options, version, is_custom=True))
        else:
            name = draw(st.sampled_from(BUILTIN_OPS))
            options_class = schema.options_class(name)
            rng = np.random.default_rng(draw(st.integers(0, 2**32)))
            fields = schema.fields(options_class[0]) if options_class else {}
            options = {field.name: option_value(field, rng) for field in fields.values()}
            between = draw(st.lists(st.sampled_from(known), max_size=2))
            nodes.append(op(name, inputs, outputs, options, version, intermediates=between))
        known += outputs
    return graph_of(nodes)


@slow
@given(graphs())
def test_any_graph_survives_the_round_trip(graph: Graph) -> None:
    written = write_model(graph)
    # repr, because a scale may be NaN, which differs from itself.
    assert repr(graph_values(read_model(written))) == repr(graph_values(graph))
    assert write_model(graph) == written


@pytest.mark.parametrize("dtype", ["int4", "bfloat16", "string", "resource", "type_99"])
def test_bytes_of_types_numpy_lacks_survive_the_round_trip(dtype: str) -> None:
    graph = relu(dtype=dtype, data=np.arange(7, dtype=np.uint8))
    assert graph_values(read_model(write_model(graph))) == graph_values(graph)


def test_unknown_enum_numbers_and_op_codes_survive_the_round_trip() -> None:
    graph = graph_of(
        [
            op("BUILTIN_999", [t((2,))], [t((2,))]),
            op("ADD", [t((2,))], [t((2,))], {"fused_activation_function": 77}),
        ]
    )
    model = read_model(write_model(graph))
    assert model.nodes[0].op == "BUILTIN_999"
    assert model.nodes[1].options["fused_activation_function"] == 77


# What the bytes are


def test_the_file_says_what_it_is() -> None:
    model = one_op_model("RELU", [t((2,))], [t((2,))])
    assert model[4:8] == b"TFL3"
    root = tflite.Model.GetRootAs(model)
    assert root.Version() == 3
    assert root.Description() == b"made by tflite-delegate-test"
    assert root.BuffersLength() == 1  # the empty one


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("RELU", 19, 19), ("BATCH_MATMUL", 126, 126), ("GELU", 127, 150), ("DILATE", 127, 203)],
)
def test_both_builtin_codes_are_written(name: str, old: int, new: int) -> None:
    code = tflite.Model.GetRootAs(one_op_model(name, [t((2,))], [t((2,))])).OperatorCodes(0)
    assert code.DeprecatedBuiltinCode() == old
    assert code._tab.Get(tflite.flatbuffers.number_types.Int32Flags, at(code, 3)) == new


def at(table: Any, slot: int) -> int:
    return int(table._tab.Pos + table._tab.Offset(4 + 2 * slot))


def test_ops_of_the_same_version_share_a_code() -> None:
    x = [t((2,)) for _ in range(5)]
    model = tflite.Model.GetRootAs(
        chain_model(
            [
                op("RELU", [x[0]], [x[1]]),
                op("RELU", [x[1]], [x[2]], version=2),
                op("RELU", [x[2]], [x[3]]),
                op("RELU", [x[3]], [x[4]], is_custom=True),
            ]
        )
    )
    operators = [model.Subgraphs(0).Operators(index) for index in range(4)]
    assert [operator.OpcodeIndex() for operator in operators] == [0, 1, 0, 2]
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    assert [(code.Version(), code.CustomCode()) for code in codes] == [
        (1, None),
        (2, None),
        (1, b"RELU"),
    ]
    assert codes[2].DeprecatedBuiltinCode() == tflite.BuiltinOperator.CUSTOM


def test_constants_start_at_multiples_of_16_bytes() -> None:
    inputs = [const(np.full(count, 7, "uint8")) for count in (1, 2, 3, 15, 16, 17, 100)]
    model = one_op_model("ADD_N", inputs, [t((1,))])
    root = tflite.Model.GetRootAs(model)
    for index, tensor in enumerate(inputs, start=1):
        buffer = root.Buffers(index)
        start = buffer._tab.Vector(buffer._tab.Offset(4))
        assert start % 16 == 0
        assert tensor.data is not None
        assert model[start : start + buffer.DataLength()] == tensor.data.tobytes()


def test_a_strided_constant_is_written_by_value() -> None:
    data = np.arange(6, dtype="int32").reshape(3, 2).T
    model = write_model(relu(dtype="int32", data=data))
    read = read_model(model).tensors[0].data
    assert read is not None
    assert read.tolist() == data.tolist()


def test_tflite_runs_what_is_written() -> None:
    weights = np.array([[1, 2, 3], [4, 5, 6]], "float32")
    middle = t((1, 2))
    model = chain_model(
        [
            op(
                "FULLY_CONNECTED",
                [t((1, 3)), const(weights), None],
                [middle],
                {"fused_activation_function": "RELU6"},
            ),
            op("CONCATENATION", [middle, middle], [t((1, 4))], {"axis": 1}),
        ]
    )
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.array([[1, 0, 0]], "float32"))
    interpreter.invoke()
    details = interpreter.get_output_details()[0]
    assert interpreter.get_tensor(details["index"]).tolist() == [[1, 4, 1, 4]]


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axes": 1}, "operator 0 (CONCATENATION) has no option 'axes'; it has: axis, fused_"),
        (
            {"fused_activation_function": "RELU7"},
            "operator 0 (CONCATENATION): fused_activation_function: 'RELU7' is none of NONE, RELU,",
        ),
    ],
    ids=["unknown-option", "unknown-name"],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is checked below)
        one_op_model("CONCATENATION", [t((2,))], [t((2,))], options)
    assert message in str(caught.value)


def test_an_op_without_options_takes_none() -> None:
    with pytest.raises(ValueError, match=r"\(RELU\) has no option 'alpha'; it has: none"):
        one_op_model("RELU", [t((2,))], [t((2,))], {"alpha": 1.0})


def test_a_number_for_a_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="new_shape is 6, but must be a sequence of numbers"):
        one_op_model("RESHAPE", [t((2, 3))], [t((6,))], {"new_shape": 6})


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(ValueError, match="'CONV2D' is none of ADD, AVERAGE_POOL_2D"):
        one_op_model("CONV2D", [t((2,))], [t((2,))])


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="tensor 0 't0': 'float8' is none of float32, float16"):
        one_op_model("RELU", [t((2,), "float8")], [t((2,))])


@pytest.mark.parametrize(
    "data", [np.zeros((3, 2), "float32"), np.zeros((2, 3), "int32")], ids=["shape", "dtype"]
)
def test_a_constant_that_is_not_its_tensor_s_is_refused(data: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"is float32 of shape \(2, 3\), but its data is"):
        write_model(relu(data=data))


def test_a_sparse_constant_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="tensor 0 't0' is sparse"):
        write_model(relu(is_sparse=True))


@pytest.mark.parametrize("index", [-1, 0, 5])
def test_a_tensor_of_another_graph_is_refused(index: int) -> None:
    graph = relu()
    stranger = dataclasses.replace(graph.tensors[0], index=index)
    node = dataclasses.replace(graph.nodes[0], inputs=(stranger,))
    with pytest.raises(ValueError, match=rf"tensor {index} 't0' is not in graph\.tensors"):
        write_model(dataclasses.replace(graph, nodes=(node,)))


def test_several_subgraphs_are_refused() -> None:
    with pytest.raises(ValueError, match="a model with 2 subgraphs"):
        write_model(dataclasses.replace(relu(), subgraphs=2))


def test_the_graph_of_call_once_is_written_with_its_node() -> None:
    read = read_model(counter_model())
    again = read_model(write_model(read))
    body, other = (graph.nodes[0].body for graph in (read, again))
    assert body is not None
    assert other is not None
    assert graph_values(other) == graph_values(body)
    both = [Interpreter(model_content=model) for model in (counter_model(), write_model(read))]
    outputs = []
    for made in both:
        made.allocate_tensors()
        made.set_tensor(made.get_input_details()[0]["index"], np.ones((1, 4), np.float32))
        made.invoke()
        outputs.append(made.get_tensor(made.get_output_details()[0]["index"]).tolist())
    assert outputs == [[[11.0] * 4]] * 2


def test_a_damaged_graph_of_call_once_leaves_the_node_without_one() -> None:
    made = t((1, 4))
    node, handle_of = handle("sum")
    twice = [op("ABS", [made], [made]), op("NEG", [made], [made])]
    damaged = graph_of([node, *twice, op("ASSIGN_VARIABLE", [handle_of, made], [])], [], [])
    model = write_subgraphs(counter(), damaged)
    assert read_model(model).nodes[0].body is None
    with pytest.raises(ModelError, match="already produces"):
        [*Subgraphs(memoryview(model))]
