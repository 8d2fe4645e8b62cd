# SPDX-License-Identifier: Apache-2.0
"""What follows from constants: each op's values against TFLite, and what is left as it was."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.graph.fold import FOLDERS, fold
from delegate.graph.partition import dynamic_tensors
from delegate.inspect import Graph, Node
from delegate.ops._registry import ops
from tests.support.compare import RUNTIME, interpreter, invoke, oracle, refusals
from tests.support.model import chain_model, const, graph_of, op, t
from tflite_opencl.models.build import stored_as

X = t((2, 3, 5, 7), "uint8", 0.5, 3)


def ints(*values: int, dtype: str = "int32") -> Any:
    return const(np.array(values, dtype))


def ints_of(value: int, dtype: str = "int32") -> Any:
    return const(np.array(value, dtype))


def integer(*shape: int, dtype: str = "int32") -> Any:
    return t(shape, dtype)


def bools(*shape: int) -> Any:
    return t(shape, "bool")


TRUTHS = [const(np.array([0, 0, 1, 1], bool)), const(np.array([0, 1, 0, 1], bool))]
STRIDED = {
    "begin_mask": 0,
    "end_mask": 0,
    "ellipsis_mask": 0,
    "new_axis_mask": 0,
    "shrink_axis_mask": 0,
}
MATRIX = const(np.arange(12, dtype=np.int32).reshape(3, 4))

# One node, its output last; what it is computed from is constant.
NODES: dict[str, Node] = {
    "shape": op("SHAPE", [X], [integer(4)], {"out_type": "int32"}),
    "shape_int64": op("SHAPE", [X], [integer(4, dtype="int64")], {"out_type": "int64"}),
    "rank": op("RANK", [X], [integer()]),
    "range": op("RANGE", [ints_of(7), ints_of(-4), ints_of(-3)], [integer(4)]),
    "range_int64": op(
        "RANGE",
        [ints_of(each, "int64") for each in (2, 9, 3)],
        [integer(3, dtype="int64")],
        version=2,
    ),
    "range_floats": op("RANGE", [const(np.float32(each)) for each in (0.1, 3.0, 0.1)], [t((29,))]),
    "where": op(
        "WHERE", [const(np.array([[True, False], [True, True]]))], [integer(3, 2, dtype="int64")]
    ),
    "pack": op("PACK", [ints(1, 2), ints(3, 4)], [integer(2, 2)], {"axis": 1, "values_count": 2}),
    "concatenation": op("CONCATENATION", [ints(1, 2), ints(3)], [integer(3)], {"axis": 0}),
    "slice": op("SLICE", [MATRIX, ints(1, 0), ints(-1, 2)], [integer(2, 2)]),
    "strided_slice": op(
        "STRIDED_SLICE",
        [MATRIX, ints(2, 3), ints(0, 0), ints(-1, -2)],
        [integer(3, 2)],
        STRIDED | {"end_mask": 3},
    ),
    "one_of_a_shape": op(
        "STRIDED_SLICE",
        [ints(4, 5, 6), ints(1), ints(2), ints(1)],
        [integer()],
        STRIDED | {"shrink_axis_mask": 1},
    ),
    "gather": op("GATHER", [MATRIX, ints(3, 0)], [integer(3, 2)], {"axis": 1, "batch_dims": 0}),
    "reshape": op("RESHAPE", [MATRIX, ints(2, -1)], [integer(2, 6)], {"new_shape": [2, 6]}),
    "squeeze": op("SQUEEZE", [const(np.array([[3]], np.int32))], [integer()], {"squeeze_dims": []}),
    "expand_dims": op("EXPAND_DIMS", [ints(1, 2), const(np.int32(0))], [integer(1, 2)]),
    "cast": op(
        "CAST",
        [ints(1, -2)],
        [integer(2, dtype="int64")],
        {"in_data_type": "int32", "out_data_type": "int64"},
    ),
    "add": op("ADD", [ints(1, 2), ints(5)], [integer(2)]),
    "sub": op("SUB", [ints(1, 2), ints(5)], [integer(2)]),
    "mul": op("MUL", [ints(1, 2), ints(5)], [integer(2)]),
    "maximum": op("MAXIMUM", [ints(1, 9), ints(5)], [integer(2)]),
    "minimum": op("MINIMUM", [ints(1, 9), ints(5)], [integer(2)]),
    "floor_div": op("FLOOR_DIV", [ints(7, -7), ints(2)], [integer(2)]),
    "less": op("LESS", [ints(1, 5, 9), ints(5)], [bools(3)]),
    "less_equal": op("LESS_EQUAL", [ints(1, 5, 9), ints(5)], [bools(3)]),
    "greater": op("GREATER", [ints(1, 5, 9), ints(5)], [bools(3)]),
    "greater_equal": op("GREATER_EQUAL", [ints(1, 5, 9), ints(5)], [bools(3)]),
    "equal": op("EQUAL", [ints(1, 5, 9), ints(5)], [bools(3)]),
    "not_equal": op("NOT_EQUAL", [ints(1, 5, 9), ints(5)], [bools(3)]),
    "logical_and": op("LOGICAL_AND", TRUTHS, [bools(4)]),
    "logical_or": op("LOGICAL_OR", TRUTHS, [bools(4)]),
    "logical_not": op("LOGICAL_NOT", TRUTHS[:1], [bools(4)]),
    "reduce_prod": op("REDUCE_PROD", [MATRIX, ints(0)], [integer(4)], {"keep_dims": False}),
    "float16": op("DEQUANTIZE", [const(np.array([1.5, -2.25], np.float16))], [t((2,))]),
    "int8": op("DEQUANTIZE", [const(np.array([-128, 127], np.int8), 0.1, 7)], [t((2,))]),
    "per_channel": op(
        "DEQUANTIZE",
        [const(np.array([[-128, 127], [3, 4]], np.int8), [0.1, 0.3], axis=1)],
        [t((2, 2))],
        version=5,
    ),
} | {
    f"{name}_of_{dtype}": op("DEQUANTIZE", [stored_as(weights, dtype)], [t((3, 5))], version=6)
    for dtype in ("int4", "int2")
    for name, weights in {
        "scale": const(np.arange(-120, 120, 16, np.int8).reshape(3, 5), 0.1, 1),
        "scales": const(np.arange(-120, 120, 16, np.int8).reshape(3, 5), [0.1, 0.3, 0.7]),
    }.items()
    if RUNTIME.name != "tflite-runtime"
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_values_are_tflite_s(node: Node) -> None:
    # TFLite computes constants' nodes like any other's.
    model = chain_model([node], outputs=node.outputs)
    graph = graph_of([node])
    (folded,) = fold(graph).nodes
    made = interpreter(model, cpu_kernels=oracle(model))
    inputs = [np.zeros(X.shape, np.uint8)] if graph.inputs else []
    (expected,) = invoke(made, inputs)
    (result,) = folded.outputs
    assert result.is_folded
    assert result.data is not None
    assert (result.data.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result.data, expected)


# Ops of the delegate by which no converter computes sizes or indices, and whose results are not
# known before a run.
NOT_FOLDED = (
    "ABS ARG_MAX ARG_MIN ATAN2 AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO CEIL"
    " CONV_2D COS CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DIV DYNAMIC_UPDATE_SLICE ELU"
    " EMBEDDING_LOOKUP EXP FILL FLOOR FLOOR_MOD FULLY_CONNECTED GATHER_ND GELU"
    " HARD_SWISH L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LOG"
    " LOGISTIC LOG_SOFTMAX LSTM MAX_POOL_2D MEAN MIRROR_PAD NEG"
    " ONE_HOT PAD PADV2 POW PRELU QUANTIZE REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN"
    " RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND"
    " RSQRT SCATTER_ND SELECT SELECT_V2 SIGN SIN SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT"
    " SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE STABLEHLO_ADD STABLEHLO_AND STABLEHLO_COMPOSITE"
    " STABLEHLO_GATHER STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY STABLEHLO_PAD"
    " STABLEHLO_SHIFT_LEFT SUM SVDF TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV"
    " UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK NON_MAX_SUPPRESSION_V4 RNN UNIDIRECTIONAL_SEQUENCE_RNN"
    " BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN"
    " COMPLEX_ABS IMAG REAL RFFT2D MaxPoolingWithArgmax2D MaxUnpooling2D"
    " MaxPool3D AveragePool3D AvgPool3D"
    " REDUCE_WINDOW STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER"
    " ADD_N BITWISE_XOR CONV_3D CONV_3D_TRANSPOSE RIGHT_SHIFT SEGMENT_SUM ZEROS_LIKE"
    " NON_MAX_SUPPRESSION_V5 TFLite_Detection_PostProcess Convolution2DTransposeBias"
)


def test_every_op_is_folded_or_known_not_to_be() -> None:
    """Who adds an op decides whether sizes may follow from it: here, or in fold.py, ranges.py."""
    of_files = {name for name in ops() if not name.islower()}
    assert of_files - set(FOLDERS) == set(NOT_FOLDED.split())
    assert {node.op for node in NODES.values()} == set(FOLDERS) - {"DENSIFY"}


LEFT: dict[str, Node] = {
    "computed": op("ADD", [integer(2), ints(5)], [integer(2)]),
    "pictures": op("ADD", [const(np.ones((2,), np.float32)), t((2,))], [t((2,))]),
    "floats": op("MUL", [const(np.ones(2, np.float32))] * 2, [t((2,))]),
    "compared_floats": op("LESS", [const(np.ones(2, np.float32))] * 2, [bools(2)]),
    "bytes_besides_0_and_1": op(
        "LOGICAL_NOT", [const(np.array([0, 2], np.uint8).view(bool))], [bools(2)]
    ),
    "division_by_zero": op("FLOOR_DIV", [ints(7), ints(0)], [integer(1)]),
    "index_out_of_range": op("GATHER", [ints(1, 2), ints(2)], [integer(1)], {"axis": 0}),
    "negative_index": op("GATHER", [ints(1, 2), ints(-1)], [integer(1)], {"axis": 0}),
    "slice_out_of_range": op("SLICE", [ints(1, 2), ints(1), ints(2)], [integer(2)]),
    "shapes_that_do_not_fit": op("ADD", [ints(1, 2), ints(1, 2, 3)], [integer(3)]),
    "new_axis": op(
        "STRIDED_SLICE",
        [ints(1, 2), ints(0), ints(1), ints(1)],
        [integer(1, 2)],
        STRIDED | {"new_axis_mask": 1},
    ),
    "large": op("MUL", [const(np.ones(5000, np.int32)), ints(2)], [integer(5000)]),
    "unquantised": op("DEQUANTIZE", [const(np.ones(2, np.int8))], [t((2,))]),
    "custom": op("SHAPE", [X], [integer(4)], is_custom=True),
    "unknown": op("COS", [const(np.ones(2, np.float32))], [t((2,))]),
}


@pytest.mark.parametrize("node", LEFT.values(), ids=LEFT)
def test_what_is_not_known_stays(node: Node) -> None:
    graph = graph_of([node])
    assert fold(graph) is graph


def bookkeeping(batch: int) -> Graph:
    """A classifier's end: the batch of a picture's shape, packed into a RESHAPE's."""
    x, shape, first, packed = (
        t((batch, 1, 1, 6), "uint8", 0.5, 3),
        integer(4),
        integer(),
        integer(2),
    )
    rows, result = t((1, 6), "uint8", 0.5, 3), t((1, 6), "uint8", 1 / 256)
    return graph_of(
        [
            op("SHAPE", [x], [shape], {"out_type": "int32"}),
            op(
                "STRIDED_SLICE",
                [shape, ints(0), ints(1), ints(1)],
                [first],
                STRIDED | {"shrink_axis_mask": 1},
            ),
            op("PACK", [first, const(np.int32(6))], [packed], {"axis": 0, "values_count": 2}),
            op("RESHAPE", [x, packed], [rows]),
            op("SOFTMAX", [rows], [result], {"beta": 1.0}),
        ]
    )


@pytest.mark.parametrize("batch", [1, 5])
def test_shapes_follow(batch: int) -> None:
    folded = fold(bookkeeping(batch))
    assert [node.outputs[0].is_folded for node in folded.nodes] == [True, True, True, False, False]
    assert folded.nodes[2].outputs[0].data is not None
    assert folded.nodes[2].outputs[0].data.tolist() == [batch, 6]
    assert [node.outputs[0].shape for node in folded.nodes[3:]] == [(batch, 6)] * 2
    assert folded.outputs == folded.nodes[-1].outputs
    assert folded.nodes[4].inputs == folded.nodes[3].outputs
    # Were the RESHAPE left to the CPU, TFLite would not know the shape before a run; it is known.
    assert bookkeeping(batch).nodes[3].outputs[0].shape == (1, 6)
    assert not dynamic_tensors(folded, claimed={0, 1, 2})
    unknown = bookkeeping(batch)
    assert unknown.nodes[3].outputs[0] in dynamic_tensors(unknown, claimed={0, 1, 2})
    assert not dynamic_tensors(unknown, claimed={0, 1, 2, 3, 4})


def test_the_shape_of_a_tensor_that_tflite_has_not_sized_yet_is_not_known() -> None:
    graph = bookkeeping(1)
    after = t((4,), "int32")
    nodes = [*graph.nodes, op("SHAPE", [graph.outputs[0]], [after], {"out_type": "int32"})]
    again = graph_of(nodes, graph.inputs)
    assert again.nodes[-1].inputs[0] in dynamic_tensors(again, claimed=())
    # Here it follows from the RESHAPE; beside that, nothing tells.
    assert fold(again).nodes[-1].outputs[0].is_folded
    cut = graph_of([nodes[3], nodes[4], nodes[5]])
    assert [node.outputs[0].is_folded for node in fold(cut).nodes] == [False] * 3


@pytest.mark.parametrize("name", ["WHERE", "UNIQUE", "COS", "my op"])
def test_a_shape_after_an_op_that_may_make_dynamic_tensors_is_not_known(name: str) -> None:
    made, after = t((3, 1), "int64"), t((2,), "int32")
    for is_custom in (False, True):
        graph = graph_of(
            [
                op(name, [t((3,), "bool")], [made], is_custom=is_custom),
                op("SHAPE", [made], [after], {"out_type": "int32"}),
            ]
        )
        is_known = name in ("COS", "my op") and not is_custom
        assert fold(graph).nodes[1].outputs[0].is_folded is is_known


@pytest.mark.parametrize("name", ["DEQUANTIZE", "CAST", "SOFTMAX", "RESHAPE", "SHAPE", "PACK"])
def test_a_node_without_inputs_stays_as_it_is(name: str) -> None:
    graph = graph_of([op(name, [], [t((2,), "int32")])])
    assert fold(graph).nodes == graph.nodes


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "string"])
def test_types_that_numpy_lacks_are_not_folded(dtype: str) -> None:
    # A program that imports this gives NumPy types of these names. Bytes are too many for int4.
    with contextlib.suppress(ImportError):
        import ml_dtypes  # noqa: F401
    stored = replace(const(np.zeros(4, np.uint8), 0.5, 1), dtype=dtype)
    for name in ("DEQUANTIZE", "DENSIFY", "CAST", "RESHAPE"):
        for node in (
            op(name, [stored], [t((4,))]),
            op(name, [ints(1, 2)], [t((2,), dtype)]),
            op(name, [const(np.ones(2, np.float16))], [t((2,), dtype)]),
        ):
            assert not fold(graph_of([node])).nodes[0].outputs[0].is_folded


@pytest.mark.parametrize("is_float16", [True, False], ids=["float16", "int8"])
def test_weights_behind_a_dequantize_run_on_the_device(
    device: DeviceInfo, is_float16: bool
) -> None:
    rng = np.random.default_rng(1)
    stored = (
        const(rng.standard_normal((4, 3, 3, 2)).astype(np.float16))
        if is_float16
        else const(rng.integers(-128, 127, (4, 3, 3, 2)).astype(np.int8), 0.01)
    )
    x, weights, y = t((1, 5, 5, 2)), t((4, 3, 3, 2)), t((1, 5, 5, 4))
    bias = const(rng.standard_normal(4).astype(np.float32))
    model = chain_model(
        [
            op("DEQUANTIZE", [stored], [weights], version=3 if is_float16 else 2),
            op(
                "CONV_2D",
                [x, weights, bias],
                [y],
                {"padding": "SAME", "stride_w": 1, "stride_h": 1},
            ),
        ]
    )
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    picture = [rng.standard_normal((1, 5, 5, 2)).astype(np.float32)]
    (got,), (expected,) = invoke(ours, picture), invoke(reference, picture)
    np.testing.assert_allclose(got, expected, atol=1e-4)
    assert np.abs(expected).max() > 0.1


def test_a_folded_tensor_may_be_an_output(device: DeviceInfo) -> None:
    graph = bookkeeping(1)
    packed = graph.nodes[2].outputs[0]
    model = chain_model(graph.nodes, graph.inputs, [*graph.outputs, packed])
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    picture = [np.arange(6, dtype=np.uint8).reshape(1, 1, 1, 6)]
    for got, expected in zip(invoke(ours, picture), invoke(reference, picture), strict=True):
        np.testing.assert_array_equal(got, expected)
