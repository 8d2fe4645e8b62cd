# SPDX-License-Identifier: Apache-2.0
"""Small models whose outputs tell which arithmetic rules a TFLite has.

Each was run on the reference kernels of tflite-runtime 2.14 and of ai-edge-litert 2.3, which answer
differently. Not asked is what can only be asked of a kernel that reads past its tensors: the rule
`batch_matmul_mixes_rows`, and int16 sums with an int32 bias.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from delegate.graph.edit import of_one_node
from delegate.graph.ir import Node, Quantization, Tensor
from delegate.tflite.writer import write_model

ANY, REFERENCE, BUILTIN = "any", "reference", "builtin"


@dataclass(frozen=True, slots=True)
class Question:
    """One model of one op, and what it answers."""

    rule: str  # the field of Rules that it tells
    op: str
    # Whose kernel must answer: the optimised ones of FULLY_CONNECTED round in other ways, and the
    # reference kernel of SUM is wrong in ai-edge-litert, where the optimised one is the oracle.
    kernel: str
    model: bytes
    inputs: tuple[bytes, ...]
    older: frozenset[bytes | None]  # of tflite-runtime 2.14 and before; None: it refuses the model
    newer: bytes | None  # of ai-edge-litert 2.3


@functools.cache
def questions() -> tuple[Question, ...]:
    """Return all questions."""
    return (*_products(), *_types(), *_others())


def _products() -> list[Question]:
    terms = 600  # of 32767 * 127: too much for 32 bits
    ones = _of("int8", np.full((1, 1, 1, terms), 127), 1.0, is_constant=True)
    place = _of("int32", [1, 1, 1, 1], is_constant=True)
    row = _of("int16", np.full((1, 1, 1, terms), 32767), 1.0)
    half = _of("int8", [[1]], 0.5, is_constant=True), _of("int32", [0], 0.5, is_constant=True)
    window = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
    wide = _Result("int16", [[[[-1798]]]], [[[[2497]]]], 1e6)
    return [
        # -0.5 and 0.5: away from zero, or up.
        _ask(
            "fully_connected_double_rounding",
            "FULLY_CONNECTED",
            [_of("int8", [[-1], [1]], 1.0), *half],
            _Result("int8", [[0], [1]], [[-1], [1]], 1.0),
            kernel=REFERENCE,
            version=4,
        ),
        _ask("int16_sums_of_int32", "TRANSPOSE_CONV", [place, ones, row], wide, window, version=3),
    ]


def _types() -> list[Question]:
    """Return what older kernels refuse, or take for something else."""
    four, six, two = (_of("int8", np.array([value]), 1.0) for value in (4, 6, 2))
    slope = _of("int16", [[[2]]], 0.5, is_constant=True)
    tall = _of("int32", [2, 1], is_constant=True)
    coarse, fine = _of("int16", [2, 1], 0.5), _of("int16", [4, 1], 0.25)
    newer = functools.partial(_Result, older=None)
    return [
        _ask("newer_types", "DIV", [six, two], newer("int8", newer=[3], scale=1.0)),
        _ask("newer_types", "SQRT", [four], newer("int8", newer=[2], scale=1.0)),
        _ask(
            "newer_types",
            "PRELU",
            [_of("int16", [[[-4]]], 1.0), slope],
            newer("int16", newer=[[[-4]]], scale=1.0),
        ),
        _ask("saturating_cast", "NEG", [four], newer("int8", newer=[-4], scale=1.0)),
        _ask("saturating_cast", "LOG", [four], newer("int8", newer=[1], scale=1.0)),
        _ask(
            "resizes_newer_types",
            "RESIZE_NEAREST_NEIGHBOR",
            [_of("int32", [[[[7]]]]), tall],
            newer("int32", newer=[[[[7]], [[7]]]]),
        ),
        # At scales of 1 and more, ai-edge-litert ends the process.
        _ask(
            "older_comparisons",
            "EQUAL",
            [coarse, fine],
            _Result("bool", [False, True], [True, False], is_new=True),
            version=2,
        ),
        _ask(
            "older_comparisons",
            "GREATER",
            [coarse, fine],
            newer("bool", newer=[False, False]),
            version=2,
        ),
    ]


def _others() -> list[Question]:
    axes, first = (_of("int32", range(count), is_constant=True) for count in (2, 1))
    axis = _of("int32", 0, is_constant=True)
    far = _of("float32", [300, -300])
    square = _of("float32", [[1, 2], [3, 4]])
    pair = _of("int16", [32767, 32767], 1.0)
    columns = _of("float32", [[np.nan, 1.0], [5.0, 2.0], [1.0, np.nan]])
    types = {"in_data_type": "float32", "out_data_type": "int8"}
    return [
        _ask("saturating_cast", "CAST", [far], _Result("int8", [44, -44], [127, -128]), types),
        _ask(
            "reverses_first_axis",
            "REVERSE_V2",
            [square, axes],
            _Result("float32", [[3, 4], [1, 2]], [[4, 3], [2, 1]]),
        ),
        _ask(
            "leaky_relu_by_size",
            "LEAKY_RELU",
            [_of("int8", [-127, -1], 1.0)],
            _Result("int8", [64, 1], [63, 0], 1.0),
            {"alpha": -0.5},
            version=2,
        ),
        _ask(
            "arg_max_nan_gives_way",
            "ARG_MAX",
            [columns, axis],
            _Result("int32", [0, 1], [1, 1]),
            {"output_type": "int32"},
        ),
        _ask(
            "saturating_sums",
            "SUM",
            [pair, first],
            _Result("int16", [-2], [32767], 1.0),
            {"keep_dims": True},
            kernel=BUILTIN,
            version=2,
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Result:
    dtype: str
    older: ArrayLike | None
    newer: ArrayLike | None
    scale: float = 0.0
    is_new: bool = False  # TFLite 2.9 refuses what tflite-runtime 2.14 answers


@dataclass(frozen=True, slots=True)
class _Given:
    tensor: Tensor
    values: bytes


def _of(dtype: str, values: ArrayLike, scale: float = 0.0, is_constant: bool = False) -> _Given:
    array = np.asarray(values, dtype)
    data = array if is_constant else None
    return _Given(Tensor(0, "", array.shape, dtype, _scaled(scale), data), array.tobytes())


def _scaled(scale: float) -> Quantization | None:
    return Quantization((float(np.float32(scale)),), (0,)) if scale else None


def _ask(
    rule: str,
    op: str,
    given: Sequence[_Given],
    result: _Result,
    options: Mapping[str, Any] | None = None,
    kernel: str = ANY,
    version: int = 1,
) -> Question:
    answers = [
        None if values is None else np.asarray(values, result.dtype)
        for values in (result.older, result.newer)
    ]
    shape = next(answer.shape for answer in answers if answer is not None)
    output = Tensor(0, "", shape, result.dtype, _scaled(result.scale))
    tensors = tuple(each.tensor for each in given)
    graph = of_one_node(Node(0, op, version, tensors, (output,), dict(options or {})))
    older, newer = (None if answer is None else answer.tobytes() for answer in answers)
    all_older = frozenset((older, None) if result.is_new else (older,))
    inputs = tuple(each.values for each in given if each.tensor.data is None)
    return Question(rule, op, kernel, write_model(graph), inputs, all_older, newer)
