# SPDX-License-Identifier: Apache-2.0
"""The reader against TFLite and the generated classes, and against damaged files."""

from __future__ import annotations

import re
import signal
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

from delegate.errors import ModelError
from delegate.format import schema, table
from delegate.format.reader import read_model
from tests.support.model import chain_model, const, graph_values, one_op_model, op, t
from tests.support.tiers import slow
from tflite_opencl.interpreters.runtime import find_runtime

Interpreter = find_runtime().module.Interpreter

REAL_MODELS = sorted((Path(__file__).parents[4] / "shared" / "models").glob("*.tflite"))
real_models = pytest.mark.skipif(
    not REAL_MODELS, reason="no real models in ../shared/models beside the checkout"
)
each_real_model = pytest.mark.parametrize("path", REAL_MODELS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def hang_guard() -> Iterator[None]:
    """Stop a test that hangs; no test here comes near the limit."""

    def stop(*_: object) -> None:
        raise TimeoutError("the reader hangs")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def small_model() -> bytes:
    """CONV_2D, then RESHAPE, then ADD of a constant: vectors, strings and tables of each kind."""
    image = t((1, 7, 5, 3), "uint8", 0.5, 128, name="image", shape_signature=(-1, 7, 5, 3))
    weights = t(
        (8, 3, 3, 3),
        "uint8",
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        3,
        data=np.arange(216) % 251,
        name="weights",
    )
    bias = const(np.arange(8, dtype="int32"), 0.05, name="bias")
    features = t((1, 4, 3, 8), "uint8", 0.1, 3, name="features")
    row = t((1, 96), "uint8", 0.1, 3, name="row")
    offsets = const(np.arange(96, dtype="uint8"), 0.25, 7, name="offsets")
    result = t((1, 96), "uint8", 0.2, 9, name="result")
    return chain_model(
        [
            op(
                "CONV_2D",
                [image, weights, bias],
                [features],
                {
                    "padding": "SAME",
                    "stride_w": 2,
                    "stride_h": 2,
                    "fused_activation_function": "RELU6",
                },
                version=3,
            ),
            op("RESHAPE", [features], [row], {"new_shape": (1, 96)}),
            op("ADD", [row, offsets], [result], {"fused_activation_function": "RELU"}, version=2),
        ]
    )


def custom_model() -> bytes:
    """A custom op with options and an input left out, between a float and a string tensor."""
    return chain_model(
        [
            op(
                "Beep",
                [t((2, 3)), None],
                [t((), "string")],
                {"custom_options": b"\x01\x02"},
                is_custom=True,
            ),
        ]
    )


GENERATED = {"small": small_model(), "custom": custom_model()}


def root(model: bytes | bytearray) -> Any:
    return tflite.Model.GetRootAs(model)


def scalar_at(table: Any, slot: int) -> int:
    """Return the byte where a table's field lies; the field must be in the file."""
    offset = table._tab.Offset(4 + 2 * slot)
    assert offset, "the field is left out of the file"
    return int(table._tab.Pos + offset)


def element_at(table: Any, slot: int, index: int) -> int:
    """Return the byte where an element of a table's vector of 32-bit numbers lies."""
    offset = table._tab.Offset(4 + 2 * slot)
    assert offset, "the field is left out of the file"
    return int(table._tab.Vector(offset) + 4 * index)


def poked(model: bytes, position: int, layout: str, value: int) -> bytes:
    damaged = bytearray(model)
    struct.pack_into(layout, damaged, position, value)
    return bytes(damaged)


# What is read


def test_a_model_reads_as_it_was_described() -> None:
    graph = read_model(small_model())

    conv, reshape, add = graph.nodes
    assert [node.op for node in graph.nodes] == ["CONV_2D", "RESHAPE", "ADD"]
    assert [node.version for node in graph.nodes] == [3, 1, 2]
    assert conv.options == {
        "padding": "SAME",
        "stride_w": 2,
        "stride_h": 2,
        "fused_activation_function": "RELU6",
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "quantized_bias_type": "float32",
    }
    assert reshape.options == {"new_shape": (1, 96)}
    assert add.options == {"fused_activation_function": "RELU", "pot_scale_int16": True}
    assert [tensor.name for tensor in graph.inputs] == ["image"]
    assert graph.inputs[0] is conv.inputs[0]
    assert graph.inputs[0].shape_signature == (-1, 7, 5, 3)
    assert graph.outputs == add.outputs
    assert graph.subgraphs == 1


def test_scales_are_exact_float32_values() -> None:
    weights = read_model(small_model()).nodes[0].inputs[1]
    assert weights is not None
    assert weights.quantization is not None
    assert weights.quantization.scale == tuple(
        float(np.float32(scale)) for scale in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    )
    assert weights.quantization.zero_point == (3,) * 8


def test_zero_points_left_out_are_zeros() -> None:
    model = one_op_model("RELU", [t((2,), "int8", [0.5, 0.25], ())], [t((2,), "int8", 1.0)])
    quantization = read_model(model).tensors[0].quantization
    assert quantization is not None
    assert quantization.zero_point == (0, 0)


def test_per_channel_numbers_keep_their_lengths() -> None:
    given = t((2, 4), "int8", [0.5, 0.25], (1, 2, 3), axis=1)
    quantization = read_model(one_op_model("RELU", [given], [t((2, 4))])).tensors[0].quantization
    assert quantization == given.quantization


def test_an_empty_scale_vector_is_no_quantization() -> None:
    model = small_model()
    # Tensor 0's scale vector says it has no elements.
    scale = element_at(root(model).Subgraphs(0).Tensors(0).Quantization(), 2, -1)
    assert read_model(poked(model, scale, "<I", 0)).tensors[0].quantization is None


def test_a_model_without_operators_is_read_and_runs() -> None:
    model = small_model()
    model = poked(model, element_at(subgraph_of(model), 3, -1), "<I", 0)
    graph = read_model(model)
    assert (graph.nodes, len(graph.tensors)) == ((), 7)
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.invoke()


def test_a_left_out_input_is_none() -> None:
    graph = read_model(custom_model())
    node = graph.nodes[0]
    assert node.inputs == (graph.tensors[0], None)
    assert (node.op, node.is_custom, node.options) == (
        "Beep",
        True,
        {"custom_options": b"\x01\x02"},
    )


def test_a_model_without_inputs_is_read() -> None:
    model = one_op_model("RELU", [const(np.ones(3, "float32"))], [t((3,))])
    assert read_model(model).inputs == ()


def test_constants_of_a_path_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small_model())
    for source in (path, str(path)):
        weights = read_model(source).nodes[0].inputs[1]
        assert weights is not None
        assert weights.data is not None
        assert not weights.data.flags.owndata
        assert not weights.data.flags.writeable
        path.unlink(missing_ok=True)  # the mapping outlives the name
        assert weights.data.ravel().tolist() == [number % 251 for number in range(216)]
        path.write_bytes(small_model())


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=lambda make: make.__name__)
def test_constants_of_bytes_are_read_only_views(make: Callable[[bytes], Any]) -> None:
    source = make(small_model())
    weights = read_model(source).tensors[1]
    assert weights.data is not None
    assert not weights.data.flags.writeable
    assert np.shares_memory(weights.data, np.frombuffer(source, np.uint8))


def external_model(offset: int, size: int) -> bytes:
    """A RELU of a constant whose bytes follow the flatbuffer."""
    model = one_op_model("RELU", [const(np.zeros(1, "float32"))], [t((3,))])
    builder = flatbuffers.Builder(64)
    builder.StartObject(3)
    builder.PrependUint64Slot(1, offset, 0)
    builder.PrependUint64Slot(2, size, 0)
    builder.Finish(builder.EndObject())
    buffer = bytearray(builder.Output())
    # The new Buffer table is put behind the model, and buffer 1 led to it.
    model += bytes(-len(model) % 16)
    at = element_at(root(model), 4, 1)
    joined = poked(model, at, "<I", len(model) + struct.unpack_from("<I", buffer)[0] - at)
    # The tensor was written for one element; it gets three.
    shape = element_at(root(model).Subgraphs(0).Tensors(0), 0, 0)
    return poked(joined + buffer, shape, "<i", 3)


def test_constants_behind_the_flatbuffer_are_read() -> None:
    start = len(external_model(2**40, 12))
    model = external_model(start, 12) + np.array([1.5, -2.0, 3.25], "<f4").tobytes()
    data = read_model(model).tensors[0].data
    assert data is not None
    assert data.tolist() == [1.5, -2.0, 3.25]
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.get_tensor(1).tolist() == [1.5, 0.0, 3.25]


def test_an_external_buffer_not_yet_placed_is_no_constant() -> None:
    assert read_model(external_model(1, 12)).tensors[0].data is None


@pytest.mark.parametrize(
    ("dtype", "content"),
    [("int4", 0x21), ("bfloat16", 0x3F80), ("string", 7), ("type_99", 5)],
)
def test_types_numpy_lacks_keep_the_file_s_bytes(dtype: str, content: int) -> None:
    raw = np.frombuffer(struct.pack("<I", content), np.uint8)
    tensor = t((4,), "uint8", data=raw)
    model = one_op_model("RELU", [tensor], [t((4,), "uint8")])
    number = schema.enum_values("TensorType").get(dtype, 99)
    model = poked(model, scalar_at(root(model).Subgraphs(0).Tensors(0), 1), "<b", number)
    read = read_model(model).tensors[0]
    assert read.dtype == dtype
    assert read.data is not None
    assert read.data.tobytes() == raw.tobytes()


@pytest.mark.parametrize("code", [210, 999, -3], ids="code{}".format)
def test_an_unknown_builtin_code_gets_a_readable_name(code: int) -> None:
    # HARD_SWISH's code is in both fields, and the larger of the two counts.
    model = one_op_model("HARD_SWISH", [t((2,))], [t((2,))])
    model = poked(model, scalar_at(root(model).OperatorCodes(0), 0), "<b", -128)
    model = poked(model, scalar_at(root(model).OperatorCodes(0), 3), "<i", code)
    node = read_model(model).nodes[0]
    assert (node.op, node.options, node.is_custom) == (f"BUILTIN_{code}", {}, False)


@pytest.mark.parametrize(("old", "new"), [(19, 0), (0, 19), (19, 3), (19, 19)])
def test_the_larger_builtin_code_counts(old: int, new: int) -> None:
    model = one_op_model("RELU6", [t((2,))], [t((2,))])
    model = poked(model, scalar_at(root(model).OperatorCodes(0), 0), "<b", old)
    model = poked(model, scalar_at(root(model).OperatorCodes(0), 3), "<i", new)
    assert read_model(model).nodes[0].op == "RELU"


def test_a_missing_options_table_reads_as_zeros_as_in_tflite() -> None:
    model = one_op_model("LEAKY_RELU", [t((2,))], [t((2,))], {"alpha": 0.5})
    stripped = poked(model, scalar_at(root(model).Subgraphs(0).Operators(0), 3), "<B", 0)
    for file, alpha in ((model, 0.5), (stripped, 0.0)):
        assert read_model(file).nodes[0].options == {"alpha": alpha}
        interpreter = Interpreter(model_content=file)
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, np.array([-2.0, 4.0], "float32"))
        interpreter.invoke()
        assert interpreter.get_tensor(1).tolist() == [-2.0 * alpha, 4.0]


def test_a_missing_conv_table_is_not_taken_for_a_usable_one() -> None:
    model = small_model()
    model = poked(model, scalar_at(root(model).Subgraphs(0).Operators(0), 3), "<B", 0)
    options = read_model(model).nodes[0].options
    assert (options["stride_w"], options["dilation_w_factor"]) == (0, 0)
    assert options["fused_activation_function"] == "NONE"


def test_an_enum_number_without_a_name_stays_a_number() -> None:
    model = small_model()
    operator = root(model).Subgraphs(0).Operators(0)
    options = tflite.Conv2DOptions()
    options.Init(model, operator.BuiltinOptions().Pos)
    assert (
        read_model(poked(model, scalar_at(options, 3), "<b", 77))
        .nodes[0]
        .options["fused_activation_function"]
        == 77
    )


def test_every_8_bit_option_is_an_enum() -> None:
    """The generated classes do not say which numbers are enums; the schema has no other bytes."""
    for enum in ("BuiltinOptions", "BuiltinOptions2"):
        for kind in schema.enum_values(enum):
            for field in schema.fields(kind).values() if kind != "NONE" else ():
                is_byte = field.kind == "scalar" and field.flags.__name__ == "Int8Flags"
                assert not is_byte or field.enum, f"{kind}.{field.name}"
                if field.kind == "scalar" and field.enum:
                    assert field.default in schema.enum_names(field.enum)


def test_every_options_class_belongs_to_an_op() -> None:
    used = {schema.options_class(name) for name in schema.enum_values("BuiltinOperator")} - {None}
    for union, enum in (
        ("builtin_options", "BuiltinOptions"),
        ("builtin_options2", "BuiltinOptions2"),
    ):
        classes = {(name, number, union) for name, number in schema.enum_values(enum).items()}
        assert classes - used == {("NONE", 0, union)}


def test_field_names_are_the_schema_s() -> None:
    assert list(schema.fields("StridedSliceOptions")) == [
        "begin_mask",
        "end_mask",
        "ellipsis_mask",
        "new_axis_mask",
        "shrink_axis_mask",
        "offset",
    ]
    assert "dilation_h_factor" in schema.fields("DepthwiseConv2DOptions")
    assert "asymmetric_quantize_inputs" in schema.fields("FullyConnectedOptions")


@real_models
@each_real_model
def test_a_real_model_reads_as_tflite_reads_it(path: Path) -> None:
    graph = read_model(path)
    interpreter = Interpreter(model_path=str(path), experimental_delegates=[])
    for details in interpreter.get_tensor_details():
        tensor = graph.tensors[details["index"]]
        assert tensor.name == details["name"]
        assert tensor.shape == tuple(details["shape"])
        assert np.dtype(tensor.dtype) == np.dtype(details["dtype"])
        parameters = details["quantization_parameters"]
        if tensor.quantization is None:
            assert parameters["scales"].size == 0
        else:
            assert tensor.quantization.scale == tuple(parameters["scales"].tolist())
            assert tensor.quantization.zero_point == tuple(parameters["zero_points"].tolist())
            assert tensor.quantization.axis == parameters["quantized_dimension"]
        if tensor.data is not None:
            assert np.array_equal(tensor.data, interpreter.get_tensor(tensor.index))
    inputs = [details["index"] for details in interpreter.get_input_details()]
    assert [tensor.index for tensor in graph.inputs] == inputs
    outputs = [details["index"] for details in interpreter.get_output_details()]
    assert [tensor.index for tensor in graph.outputs] == outputs
    for node, details in zip(graph.nodes, interpreter._get_ops_details(), strict=False):
        assert node.op == details["op_name"]
        indices = [-1 if tensor is None else tensor.index for tensor in node.inputs]
        assert indices == details["inputs"].tolist()
        assert [tensor.index for tensor in node.outputs] == details["outputs"].tolist()


@real_models
@each_real_model
def test_options_of_a_real_model_are_what_the_generated_classes_read(path: Path) -> None:
    subgraph = root(path.read_bytes()).Subgraphs(0)
    for node in read_model(path).nodes:
        operator = subgraph.Operators(node.index)
        kind = schema.enum_names("BuiltinOptions")[operator.BuiltinOptionsType()]
        if kind == "NONE":
            continue
        options = getattr(tflite, kind)()
        found_table = operator.BuiltinOptions()
        options.Init(found_table.Bytes, found_table.Pos)
        for name, value in node.options.items():
            accessor = name.title().replace("_", "")
            if not hasattr(options, accessor):  # a newer field than that package's
                assert not value
            elif isinstance(value, tuple):
                found = getattr(options, accessor + "AsNumpy")()
                assert value == (tuple(found.tolist()) if isinstance(found, np.ndarray) else ())
            else:
                enum = schema.fields(kind)[name].enum
                found = getattr(options, accessor)()
                assert value == (schema.enum_names(enum)[found] if enum else found)


# What is refused


def refusal(model: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(model)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the model is empty"),
        (b"TFL3", "this is not a .tflite model: bytes 4..8 are b'', not b'TFL3'"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "bytes 4..8 are b'\\r\\n\\x1a\\n', not b'TFL3'"),
        (b"\x1c\0\0\0TFL2" + bytes(99), "bytes 4..8 are b'TFL2', not b'TFL3'"),
        (b"\x08\0\0\0TFL3", "the model spans bytes 8..12 of a file of 8 bytes"),
        (b"\xff\xff\xff\xffTFL3", "the model spans bytes 4294967295..4294967299"),
        (b"\x08\0\0\0TFL3" + bytes(8), "the model has a damaged table of fields at byte 8"),
    ],
    ids=["empty", "short", "png", "older", "cut", "huge-offset", "zeros"],
)
def test_a_foreign_file_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    assert message in refusal(content)
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(f"{path}: ")) as caught:
        read_model(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_path_raises_the_ordinary_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "absent.tflite")
    with pytest.raises(IsADirectoryError):
        read_model(tmp_path)


def test_a_device_is_refused() -> None:
    with pytest.raises(ModelError, match=r"/dev/zero: this is a device or a pipe"):
        read_model("/dev/zero")


def test_a_file_above_2_gb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.tflite"
    with path.open("wb") as file:
        file.write(small_model())
        file.truncate(2**31)  # takes no space
    message = "the model has 2147483648 bytes; the format allows at most 2147483647"
    with pytest.raises(ModelError, match=message):
        read_model(path)
    with pytest.raises(ModelError, match=message):
        read_model(memoryview(np.zeros(2**31, np.uint8)))  # never touched, so no memory either


Damage = Callable[[bytes], tuple[int, str, int]]


def subgraph_of(model: bytes) -> Any:
    return root(model).Subgraphs(0)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "version": (
        lambda model: (scalar_at(root(model), 0), "<I", 4),
        "it has schema version 4; only 3 is known",
    ),
    "no-subgraphs": (
        lambda model: (element_at(root(model), 2, -1), "<I", 0),
        "the model has no subgraphs",
    ),
    "input-index": (
        lambda model: (element_at(subgraph_of(model).Operators(0), 1, 1), "<i", 900),
        "operator 0 (CONV_2D): input 1 is tensor 900, but the model has 7",
    ),
    "input-index-below-minus-1": (
        lambda model: (element_at(subgraph_of(model).Operators(0), 1, 1), "<i", -2),
        "operator 0 (CONV_2D): input 1 is tensor -2, but the model has 7",
    ),
    "output-index": (
        lambda model: (element_at(subgraph_of(model).Operators(2), 2, 0), "<i", 7),
        "operator 2 (ADD): output 0 is tensor 7, but the model has 7",
    ),
    "output-left-out": (
        lambda model: (element_at(subgraph_of(model).Operators(1), 2, 0), "<i", -1),
        "operator 1 (RESHAPE): output 0 is left out (tensor -1)",
    ),
    "output-twice": (
        lambda model: (element_at(subgraph_of(model).Operators(2), 2, 0), "<i", 3),
        "operator 2 (ADD): output 0 is tensor 3 'features', which operator 0 already produces",
    ),
    "output-constant": (
        lambda model: (element_at(subgraph_of(model).Operators(1), 2, 0), "<i", 1),
        "operator 1 (RESHAPE): output 0 is tensor 1 'weights', which is a constant",
    ),
    "graph-input": (
        lambda model: (element_at(subgraph_of(model), 1, 0), "<i", 89),
        "subgraph 0: input 0 is tensor 89, but the model has 7",
    ),
    "graph-output-left-out": (
        lambda model: (element_at(subgraph_of(model), 2, 0), "<i", -1),
        "subgraph 0: output 0 is left out (tensor -1)",
    ),
    "operator-code": (
        lambda model: (scalar_at(subgraph_of(model).Operators(1), 0), "<I", 12),
        "operator 1 uses operator code 12, but the model has 3",
    ),
    "buffer-index": (
        lambda model: (scalar_at(subgraph_of(model).Tensors(1), 2), "<I", 900),
        "tensor 1 'weights' uses buffer 900, but the model has 4",
    ),
    "buffer-size": (
        lambda model: (element_at(root(model).Buffers(1), 0, -1), "<I", 2**31),
        "buffer 1: the field data spans bytes",
    ),
    "constant-too-small": (
        lambda model: (element_at(root(model).Buffers(1), 0, -1), "<I", 99),
        "tensor 1 'weights' has 99 bytes for shape 8x3x3x3 of uint8 (216 needed)",
    ),
    "constant-too-large": (
        lambda model: (scalar_at(subgraph_of(model).Tensors(2), 1), "<b", 9),
        "tensor 2 'bias' has 32 bytes for shape 8 of int8 (8 needed)",
    ),
    "constant-overflowing": (
        lambda model: (element_at(subgraph_of(model).Tensors(1), 0, 0), "<i", 2**31 - 1),
        "tensor 1 'weights' has 216 bytes for shape 2147483647x3x3x3 of uint8 (57982058469 needed)",
    ),
    "negative-size": (
        lambda model: (element_at(subgraph_of(model).Tensors(3), 0, 2), "<i", -3),
        "tensor 3 'features' has a negative size in its shape 1x4x-3x8",
    ),
    "long-vector": (
        lambda model: (element_at(subgraph_of(model).Operators(0), 1, -1), "<I", 2**32 - 1),
        "operator 0 (CONV_2D): the field inputs spans bytes",
    ),
    "long-tensor-list": (
        lambda model: (element_at(subgraph_of(model), 0, -1), "<I", 2**32 - 1),
        "subgraph 0: the field tensors spans bytes",
    ),
    "far-table": (
        lambda model: (element_at(subgraph_of(model), 0, 4), "<I", 2**32 - 1),
        "tensor 4 spans bytes",
    ),
    "vtable-before-the-file": (
        lambda model: (subgraph_of(model).Tensors(5)._tab.Pos, "<i", 2**30),
        "tensor 5 spans bytes -",
    ),
    "vtable-behind-the-file": (
        lambda model: (subgraph_of(model).Tensors(5)._tab.Pos, "<i", -(2**30)),
        "tensor 5 spans bytes 10737",
    ),
    "field-outside-its-table": (
        lambda model: (
            subgraph_of(model).Tensors(5)._tab.Pos
            - struct.unpack_from("<i", model, subgraph_of(model).Tensors(5)._tab.Pos)[0]
            + 4,
            "<H",
            9999,
        ),
        "the field shape lies outside its table",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_part_is_named(damage: Damage, message: str) -> None:
    model = small_model()
    said = refusal(poked(model, *damage(model)))
    assert message in said
    assert "\n" not in said


def test_an_external_constant_behind_the_end_is_named() -> None:
    model = external_model(100_000, 4096)
    assert refusal(model) == (
        f"buffer 1 spans bytes 100000..104096 of a file of {len(model)} bytes"
    )
    model = external_model(2**64 - 1, 2**64 - 1)
    assert "buffer 1 spans bytes 18446744073709551615.." in refusal(model)


def test_an_operator_producing_a_tensor_twice_is_named() -> None:
    model = one_op_model("SPLIT", [t((2,))], [t((1,)), t((1,))])
    model = poked(model, element_at(subgraph_of(model).Operators(0), 2, 1), "<i", 1)
    assert refusal(model) == (
        "operator 0 (SPLIT): output 1 is tensor 1 't1', which operator 0 already produces"
    )


def test_a_custom_op_without_a_name_is_refused() -> None:
    model = custom_model()
    name = root(model).OperatorCodes(0)
    at = scalar_at(name, 1)
    length = at + struct.unpack_from("<I", model, at)[0]
    assert refusal(poked(model, length, "<I", 0)) == "operator code 0 is a custom op without a name"


def test_too_many_dimensions_are_refused() -> None:
    model = one_op_model("RELU", [t((1,) * 33)], [t((1,) * 33)])
    assert refusal(model) == "tensor 0 't0' has 33 dimensions, more than 32"


def test_a_long_name_is_shortened_in_messages() -> None:
    model = one_op_model("RELU", [t((1,) * 33, name="line\nbreak" * 99)], [t((1,))])
    said = refusal(model)
    assert len(said) < 200
    assert "\n" not in said


def many_tensors(count: int, name: str = "") -> bytes:
    """Return a model whose list of tensors names one table so many times."""
    builder = flatbuffers.Builder(8 * count)
    text = builder.CreateString(name) if name else 0
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(3, text, 0)
    tensor = builder.EndObject()
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, tensors, 0)
    subgraph = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(subgraph)
    subgraphs = builder.EndVector()
    builder.StartObject(3)
    builder.PrependUint32Slot(0, schema.VERSION, 0)
    builder.PrependUOffsetTRelativeSlot(2, subgraphs, 0)
    builder.Finish(builder.EndObject(), schema.FILE_IDENTIFIER)
    return bytes(builder.Output())


def test_many_tensors_of_one_table_are_refused_after_few(monkeypatch: pytest.MonkeyPatch) -> None:
    model = many_tensors(200_000)
    read = []
    real = table.File.spend_table

    def counted(file: table.File, position: int, where: str) -> None:
        read.append(position)
        real(file, position, where)

    monkeypatch.setattr(table.File, "spend_table", counted)
    assert "the parts of the file overlap too much to be a model" in refusal(model)
    assert len(read) < len(model) // 200
    assert len(read_model(many_tensors(500)).tensors) == 500


def test_parts_that_share_their_bytes_without_end_are_refused() -> None:
    """A small file that says it has 100,000 tensors, each with the same name of 100 kB."""
    model = many_tensors(100_000, "n" * 100_000)
    tracemalloc.start()
    said = refusal(model)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "the parts of the file overlap too much to be a model" in said
    assert peak_bytes < 16 * len(model)


def test_more_parts_than_tflite_allows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_TABLES", 10)
    assert "the model has more than 10 parts" in refusal(small_model())


# Any damage at all


def parses_or_refuses(model: bytes | bytearray) -> bool:
    """Read; every exception other than ModelError fails the test."""
    try:
        graph = read_model(bytes(model))
    except ModelError:
        return False
    sizes = [tensor.data.nbytes for tensor in graph.tensors if tensor.data is not None]
    assert max(sizes, default=0) <= len(model)
    return True


@pytest.mark.parametrize("name", GENERATED)
def test_every_truncation_is_refused_or_harmless(name: str) -> None:
    model = GENERATED[name]
    whole = graph_values(read_model(model))
    for size in range(len(model)):
        if parses_or_refuses(model[:size]):
            # Only padding at the end was lost.
            assert graph_values(read_model(model[:size])) == whole


@real_models
@each_real_model
def test_a_truncated_real_model_is_refused_or_harmless(path: Path) -> None:
    model = path.read_bytes()
    whole = graph_values(read_model(model))
    rng = np.random.default_rng(11)
    sizes = {*rng.integers(0, len(model), 60).tolist(), len(model) - 1, len(model) // 2}
    for size in sorted(sizes):
        if parses_or_refuses(model[:size]):
            assert graph_values(read_model(model[:size])) == whole


def damaged_copies(model: bytes, count: int, reach: np.ndarray, seed: int) -> Iterator[bytearray]:
    """Yield copies with flipped bits, overwritten numbers, and bytes moved, put in or taken out.

    `reach` are the bytes worth damaging: a flip inside weights only makes other weights.
    """
    rng = np.random.default_rng(seed)
    extremes = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(model), len(model) - 4, 4, 0xFFFFFFF0]
    for _ in range(count):
        damaged = bytearray(model)
        for _ in range(int(rng.choice([1, 1, 2, 8, 32]))):
            at = int(rng.choice(reach))
            match int(rng.integers(6)):
                case 0 | 1:
                    damaged[at % len(damaged)] ^= 1 << int(rng.integers(8))
                case 2:
                    at = min(at, len(damaged) - 4)
                    struct.pack_into("<I", damaged, at, int(rng.choice(extremes)))
                case 3:
                    size = int(rng.integers(1, 32))
                    source = int(rng.integers(len(damaged)))
                    piece = damaged[source : source + size]
                    damaged[at : at + len(piece)] = piece
                case 4:
                    damaged[at:at] = rng.bytes(int(rng.integers(1, 9)))
                case 5:
                    del damaged[at : at + int(rng.integers(1, 9))]
        yield damaged


@slow
@pytest.mark.parametrize("name", GENERATED)
def test_random_damage_is_refused_or_parses(name: str) -> None:
    model = GENERATED[name]
    outcomes = [
        parses_or_refuses(damaged)
        for damaged in damaged_copies(model, 4000, np.arange(len(model)), seed=5)
    ]
    # Both happen, or the damage is too weak or too strong to say anything.
    assert 200 < sum(outcomes) < 3800


def test_every_single_bit_flip_of_a_small_model_is_refused_or_parses() -> None:
    model = bytearray(one_op_model("RELU", [t((2,), "int8", 0.5, -1)], [t((2,), "int8", 0.5)]))
    for position in range(len(model)):
        for bit in range(8):
            model[position] ^= 1 << bit
            parses_or_refuses(model)
            model[position] ^= 1 << bit


@real_models
@each_real_model
def test_random_damage_to_a_real_model_is_refused_or_parses(path: Path) -> None:
    model = path.read_bytes()
    is_constant = np.zeros(len(model), bool)
    start = np.frombuffer(model, np.uint8)
    for tensor in read_model(model).tensors:
        if tensor.data is not None:
            offset = tensor.data.ctypes.data - start.ctypes.data
            is_constant[offset : offset + tensor.data.nbytes] = True
    for damaged in damaged_copies(model, 150, np.flatnonzero(~is_constant), seed=6):
        parses_or_refuses(damaged)


def test_damage_does_not_take_memory() -> None:
    model = small_model()
    for damaged in damaged_copies(model, 300, np.arange(len(model)), seed=7):
        tracemalloc.start()
        parses_or_refuses(damaged)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak_bytes < 2**20
