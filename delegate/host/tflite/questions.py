# SPDX-License-Identifier: Apache-2.0
"""Small models whose outputs reveal a TFLite's arithmetic rules.

Each was run on the reference kernels of tflite-runtime 2.14 and ai-edge-litert 2.3, which differ.
Not included are rules that would need a kernel to read past its tensors, `batch_matmul_mixes_rows`,
`linked_lstms`, and int16 sums with an int32 bias; nor those that C leaves undefined,
`norm_products_wrap`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from delegate.format.writer import write_model
from delegate.graph.edit import of_one_node
from delegate.graph.ir import Blocks, Node, Quantization, Tensor

# An input of a node and its value; None: a constant.
Given = tuple[Tensor, bytes | None]

ANY, REFERENCE, BUILTIN = "any", "reference", "builtin"


@dataclass(frozen=True, slots=True)
class Question:
    """A model of one op, and its known outputs."""

    rule: str  # the field of Rules that it determines
    op: str
    # The kernel to probe: optimised ones of FULLY_CONNECTED round in other ways, and the
    # reference kernel of SUM is wrong in ai-edge-litert, where the optimised one is the oracle.
    kernel: str
    model: bytes
    inputs: tuple[bytes, ...]
    older: frozenset[bytes | None]  # of tflite-runtime 2.14 and before; None: it rejects the model
    newer: bytes | None  # of ai-edge-litert 2.3
    # The rule that must have its newer value first: kernels without it may read out of bounds
    # here, and are assumed to be older. "": no precondition.
    after: str = ""


@functools.cache
def questions() -> tuple[Question, ...]:
    """Return all questions."""
    return (*_sums(), *_types(), *_others(), *_hybrid())


def _sums() -> list[Question]:
    terms = 600  # of 32767 * 127: the sum overflows 32 bits
    ones = _constant("int8", np.full((1, 1, 1, terms), 127), 1.0)
    row = _input("int16", np.full((1, 1, 1, terms), 32767), 1.0)
    window = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
    deconvolved = [_constant("int32", [1, 1, 1, 1]), ones, row]
    half = _constant("int8", [[1]], 0.5), _constant("int32", [0], 0.5)
    dense = [_input("int8", [[-1], [1]], 1.0), *half]
    pair = [_input("int16", [32767, 32767], 1.0), _constant("int32", [0])]
    older, newer = [[[[-1798]]]], [[[[2497]]]]
    keep = {"keep_dims": True}
    double = "fully_connected_double_rounding", "FULLY_CONNECTED"
    wide, saturating = ("int16_sums_of_int32", "TRANSPOSE_CONV"), ("saturating_sums", "SUM")
    return [
        # -0.5 and 0.5: away from zero, or up.
        _ask(*double, dense, "int8", [[0], [1]], [[-1], [1]], 1.0, kernel=REFERENCE, version=4),
        _ask(*wide, deconvolved, "int16", older, newer, 1e6, window, version=3),
        _ask(*saturating, pair, "int16", [-2], [32767], 1.0, keep, BUILTIN, version=2),
    ]


def _types() -> list[Question]:
    """Return questions about types that older kernels reject or misread."""
    four, six, two = (_input("int8", [value], 1.0) for value in (4, 6, 2))
    slope = [_input("int16", [[[-4]]], 1.0), _constant("int16", [[[2]]], 0.5)]
    tall = [_input("int32", [[[[7]]]]), _constant("int32", [2, 1])]
    coarse, fine = _input("int16", [2, 1], 0.5), _input("int16", [4, 1], 0.25)
    resized = [[[[7]], [[7]]]]
    equal, greater = (("older_comparisons", op, [coarse, fine]) for op in ("EQUAL", "GREATER"))
    return [
        _ask("newer_types", "DIV", [six, two], "int8", None, [3], 1.0),
        _ask("newer_types", "SQRT", [four], "int8", None, [2], 1.0),
        _ask("newer_types", "PRELU", slope, "int16", None, [[[-4]]], 1.0),
        _ask("saturating_cast", "NEG", [four], "int8", None, [-4], 1.0),
        _ask("saturating_cast", "LOG", [four], "int8", None, [1], 1.0),
        _ask("resizes_newer_types", "RESIZE_NEAREST_NEIGHBOR", tall, "int32", None, resized),
        # At scales of 1 and more, ai-edge-litert crashes. TFLite 2.9 rejects what
        # tflite-runtime 2.14 accepts.
        _ask(*equal, "bool", [False, True], [True, False], version=2, may_be_refused=True),
        _ask(*greater, "bool", None, [False, False], version=2),
    ]


def _others() -> list[Question]:
    axes, axis = _constant("int32", [0, 1]), _constant("int32", 0)
    far, small = _input("float32", [300, -300]), _input("int8", [-127, -1], 1.0)
    square = [_input("float32", [[1, 2], [3, 4]]), axes]
    columns = [_input("float32", [[np.nan, 1.0], [5.0, 2.0], [1.0, np.nan]]), axis]
    types, index = {"in_data_type": "float32", "out_data_type": "int8"}, {"output_type": "int32"}
    reverses, by_size = ("reverses_first_axis", "REVERSE_V2"), ("leaky_relu_by_size", "LEAKY_RELU")
    gives_way, slope = ("arg_max_nan_gives_way", "ARG_MAX"), {"alpha": -0.5}
    return [
        _ask("saturating_cast", "CAST", [far], "int8", [44, -44], [127, -128], options=types),
        _ask(*reverses, square, "float32", [[3, 4], [1, 2]], [[4, 3], [2, 1]]),
        _ask(*by_size, [small], "int8", [64, 1], [63, 0], 1.0, slope, version=2),
        _ask(*gives_way, columns, "int32", [0, 1], [1, 1], options=index),
    ]


def _hybrid() -> list[Question]:
    """Return questions about quantisation of float rows; the weights select one value of it."""
    op, symmetric = "FULLY_CONNECTED", {"asymmetric_quantize_inputs": False}
    # Just below a half at a scale of 1, in a row of whole vectors.
    below = [_input("float32", [[np.float32(0.5 - 2.0**-25), *[127] * 7]])]
    first = _constant("int8", [[1] + [0] * 7], 1.0)
    # A scale of 1 and a zero point of 72: -2.5 + 72 rounds up, and -2.5 down.
    tie = [_input("float32", [[-200, 55, -2.5]]), _constant("int8", [[0, 0, 1]], 1.0)]
    asymmetric = {"asymmetric_quantize_inputs": True}
    both, _ = _constant("int8", [[1], [1]], 1.0)
    scales = replace(both, quantization=Quantization((1.0, 2.0), (0, 0)))
    channels = [_input("float32", [[127]]), (scales, None)]
    pair, _ = _constant("int8", [[[[1, 2]]]], 1.0)
    # 0x21 is 33 when read as int8; the output then holds an integer sum or, in Debian's TFLite,
    # nothing
    misread = np.int32(33 * 127).view(np.float32)
    halves = replace(pair, dtype="int4", data=np.array([0x21], np.uint8)), None
    pixel = [_input("float32", [[[[127, 0]]]]), halves, _constant("float32", [0])]
    window = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
    looked_up = [_input("int32", [1]), channels[1]]
    # The first of 32 weights is 1, in each of 4 rows; the row has a scale of 1.
    row = _input("float32", [[127, -128] + [0] * 30])
    ones = np.tile(np.array([1] + [0] * 15, np.uint8), 4)
    blocks = Blocks(np.full((4, 1), 2, np.float16), 32)
    in_blocks = Tensor(0, "", (4, 32), "int4", data=ones, blocks=blocks), None
    return [
        _ask(
            "rows_round_by_adding", op, [*below, first], "float32", [[0]], [[1]],
            options=symmetric, kernel=REFERENCE, version=3,
        ),
        _ask(
            "rows_in_doubles", op, tie, "float32", [[-2]], [[-3]],
            options=asymmetric, kernel=REFERENCE, version=9,
        ),
        _ask(
            "hybrid_loses_channels", op, channels, "float32", [[0, 0]], [[127, 254]],
            options=symmetric, kernel=REFERENCE, version=9,
        ),
        _ask(
            "int4_convolutions", "CONV_2D", pixel, "float32", [[[[misread]]]], [[[[127]]]],
            options=window, version=5, may_be_refused=True, also=[[[[0]]]],
        ),
        _ask(
            "knows_blocks", op, [row, in_blocks], "float32", [[0] * 4], [[254] * 4],
            options=asymmetric, kernel=BUILTIN, version=12, may_be_refused=True,
            after="int4_convolutions",
        ),
        _ask(
            "embedding_scales_a_row", "EMBEDDING_LOOKUP", looked_up, "float32", [[0]], [[2]],
            version=3, may_be_refused=True,
        ),
    ]  # fmt: skip


@functools.cache
def of_rows() -> Question:
    """Return the question whether a scaled sum of several rows is rounded before the bias.

    That depends on the processor as well as on the version.
    """
    rows, weights = _input("float32", [[127] * 16] * 4), np.full((4, 16), 127)
    scale = np.float32(0.1)
    product = np.float64(16 * 127 * 127) * np.float64(scale)
    bias = -np.float32(product)
    lost = np.float32(product + np.float64(bias))  # of the product's 48 bits
    given = [rows, _constant("int8", weights, float(scale)), _constant("float32", [bias] * 4)]
    return _ask(
        "rounds_rows_twice", "FULLY_CONNECTED", given, "float32", [[0] * 4] * 4, [[lost] * 4] * 4,
        options={"asymmetric_quantize_inputs": False}, version=9,
    )  # fmt: skip


def _input(dtype: str, values: ArrayLike, scale: float = 0.0) -> Given:
    tensor, _ = _constant(dtype, values, scale)
    assert tensor.data is not None
    return replace(tensor, data=None), tensor.data.tobytes()


def _constant(dtype: str, values: ArrayLike, scale: float = 0.0) -> Given:
    array = np.asarray(values, dtype)
    return Tensor(0, "", array.shape, dtype, _scaled(scale), array), None


def _scaled(scale: float) -> Quantization | None:
    return Quantization((float(np.float32(scale)),), (0,)) if scale else None


def _ask(
    rule: str,
    op: str,
    given: Sequence[Given],
    dtype: str,
    older: ArrayLike | None,
    newer: ArrayLike,
    scale: float = 0.0,
    options: Mapping[str, Any] | None = None,
    kernel: str = ANY,
    version: int = 1,
    may_be_refused: bool = False,
    also: ArrayLike | None = None,
    after: str = "",
) -> Question:
    """Return a question about an op; `older`, `newer`: the output of each.

    `may_be_refused`: by older ones. `also`: another output of some older ones.
    """
    output, _ = _constant(dtype, newer, scale)
    tensors = tuple(tensor for tensor, _ in given)
    node = Node(0, op, version, tensors, (replace(output, data=None),), dict(options or {}))
    answers = {None if older is None else np.asarray(older, dtype).tobytes()}
    if also is not None:
        answers.add(np.asarray(also, dtype).tobytes())
    return Question(
        rule,
        op,
        kernel,
        write_model(of_one_node(node)),
        tuple(values for _, values in given if values is not None),
        frozenset(answers | {None} if may_be_refused else answers),
        np.asarray(newer, dtype).tobytes(),
        after,
    )
