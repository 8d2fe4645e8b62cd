# SPDX-License-Identifier: Apache-2.0
"""Label files, top-k results in label_image's arithmetic and order, and detection of scores.

As in label_image, the output's own scale and zero point are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.cli.messages import did_you_mean
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.feeds import scale_of

_MOST_BYTES = 1 << 24  # of a label file
LEAST_SCORE = 0.001  # label_image's minimum score of a printed class


@dataclass(frozen=True)
class ClassScore:
    """One class of the result."""

    index: int  # position in the model's output
    score: float  # a float32 value; 0..1 for quantised models


def labels_in(path: str) -> list[str]:
    """Return the labels of a file; raises RunError: it is missing, or not a text file."""
    try:
        with open(path, "rb") as file:
            return labels_of(file.read(_MOST_BYTES + 1))
    except FileNotFoundError as error:
        raise RunError(f"Labels file {path} not found") from error
    except OSError as error:
        raise RunError(f"Labels file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"Labels file {path} {error}") from None


def labels_of(content: bytes) -> list[str]:
    """Return the lines of a label file's content; bytes that are not UTF-8 become U+FFFD.

    Raises: ValueError: it is not text.
    """
    if b"\0" in content or len(content) > _MOST_BYTES:
        raise ValueError("is no text with a label a line")
    # Not splitlines: labels may contain other characters that Python treats as line ends.
    lines = content.decode("utf-8-sig", "replace").split("\n")
    return [line.removesuffix("\r") for line in lines[: -1 if not lines[-1] else None]]


def top_results(
    output: NDArray[Any],
    input_dtype: DTypeLike,
    count: int,
    threshold: float = LEAST_SCORE,
    scale: float = 0.0,
    zero_point: int = 0,
    calibration: Callable[[NDArray[np.float32]], NDArray[np.float32]] | None = None,
) -> list[ClassScore]:
    """Return the best `count` classes, best first; scores below `threshold` and NaN are dropped.

    Of equal scores, the higher index comes first. Types that label_image does not decode, such as
    int16, are decoded with the output's own `scale` and `zero_point`.
    `calibration`: score calibration from the model's metadata.
    Shapes: output (..., classes); only the first row is used.
    Raises: ValueError: such a type, and no scale.
    Source: tflite/examples/label_image/get_top_n_impl.h
    """
    output = np.atleast_1d(output)
    values = output.reshape(-1)[: output.shape[-1]].astype(np.float32)
    # NOTE: label_image decodes the output by the input's type.
    input_dtype = np.dtype(input_dtype)
    known = (np.uint8, np.int8, np.float16, np.float32)
    if output.dtype in (np.int16, np.float16) or input_dtype not in known:
        if output.dtype.kind == "f":
            scores = values
        elif scale > 0:
            scores = (values - np.float32(zero_point)) * np.float32(scale)
        else:
            raise ValueError(f"no scale, and {input_dtype} is not uint8, int8 or float32")
    elif input_dtype == np.uint8:
        scores = values / np.float32(255)
    elif input_dtype == np.int8:
        scores = (values + np.float32(128)) / np.float32(256)
    else:
        scores = values
    if calibration is not None:
        scores = calibration(scores)
    kept = np.flatnonzero(scores >= np.float32(threshold))
    best_first = kept[np.lexsort((kept, scores[kept]))][::-1]
    return [ClassScore(int(index), float(scores[index])) for index in best_first[:count]]


def class_numbers(asked: Sequence[str], labels: Sequence[str]) -> frozenset[int]:
    """Return the classes with these indices or names: a label, or its part before a comma.

    Raises: ValueError: there is no such class; the text is one line.
    """
    numbers: dict[str, set[int]] = {}
    for number, label in enumerate(labels):
        for name in {label, label.partition(",")[0]}:
            numbers.setdefault(name.strip().casefold(), set()).add(number)
    found: set[int] = set()
    for word in asked:
        if word.isascii() and word.isdigit():
            found.add(int(word))
        elif word.casefold() in numbers:
            found |= numbers[word.casefold()]
        else:
            raise ValueError(f"there is no class {word}{did_you_mean(word.casefold(), numbers)}")
    return frozenset(found)


def format_score(score: float) -> str:
    """Return the score as a C++ stream prints a float: 6 significant digits."""
    return f"{score:g}"


def format_row(row: ClassScore, labels: Sequence[str]) -> str:
    """Return `0.776471: 653 military uniform`, without a name if there is no label."""
    text = f"{format_score(row.score)}: {row.index}"
    return f"{text} {labels[row.index]}" if row.index < len(labels) else text


# Ops that only move or convert the values of the op before.
_TRANSPARENT = {"RESHAPE", "SQUEEZE", "QUANTIZE", "DEQUANTIZE", "CAST", "EXPAND_DIMS", "SLICE"}
_SCORES = {"SOFTMAX", "LOG_SOFTMAX", "LOGISTIC"}
_FEATURES = {"L2_NORMALIZATION", "MEAN", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SUM", "REDUCE_MAX"}
_NORMS = {"SQRT", "RSQRT", "POW"}
# Ops between a norm and the division by it: a lower bound, and broadcasting.
_OF_NORMS = _TRANSPARENT | {"MAXIMUM", "ADD", "BROADCAST_TO"}


def may_be_scores(output: Tensor, fed: Tensor) -> bool:
    """Whether an output has the shape of scores: a row of numbers, or one per picture.

    `fed`: the input whose type decides how label_image decodes scores.
    """
    shape, bytes_ = output.shape, ("uint8", "int8")
    is_row = bool(shape) and (len(shape) <= 2 or math.prod(shape[:-1]) == 1) and shape[-1] > 1
    floats = ("float16", "float32")
    if output.dtype in floats or (output.dtype in bytes_ and fed.dtype in (*bytes_, *floats)):
        return is_row
    return is_row and output.dtype in (*bytes_, "int16") and scale_of(output)[0] > 0


def are_scores(graph: Graph, first: Tensor, fed: Tensor, classes: int) -> bool:
    """Whether the first output holds class scores.

    `first`: that output, in its shape of a run. `fed`: the picture input. `classes`: number of
    labels, 0 if there are none.
    """
    if graph.outputs[0] in graph.inputs or not may_be_scores(first, fed):
        return False
    if first.shape[-1] == classes:
        return True
    is_embedding = math.prod(first.shape[:-1]) == 1 and gives_features(graph)
    return len(graph.outputs) == 1 and first.shape != fed.shape and not is_embedding


def gives_features(graph: Graph) -> bool:
    """Whether the last op shows that the output is not a row of scores."""
    last = _last_op(graph)
    if last is None:
        return False
    if last.op in ("MUL", "DIV"):  # x * rsqrt(sum(x * x)) ends in these
        makers = _makers(graph)
        by = (_maker_of(tensor, makers, _OF_NORMS) for tensor in last.inputs)
        return any(node is not None and node.op in _NORMS for node in by)
    return last.op in _FEATURES


def gives_scores(graph: Graph) -> bool:
    """Whether the last op shows that the output holds scores."""
    last = _last_op(graph)
    return last is not None and last.op in _SCORES


def _last_op(graph: Graph) -> Node | None:
    """Return the node that computes the first output's values."""
    return _maker_of(graph.outputs[0], _makers(graph), _TRANSPARENT)


def _makers(graph: Graph) -> dict[Tensor, Node]:
    return {tensor: node for node in graph.nodes for tensor in node.outputs}


def _maker_of(
    tensor: Tensor | None, makers: Mapping[Tensor, Node], between: Collection[str]
) -> Node | None:
    """Return the node that computes a tensor's values, skipping these ops; None: none does."""
    node = makers.get(tensor) if tensor is not None else None
    while node is not None and node.op in between and node.inputs[0] is not None:
        node = makers.get(node.inputs[0])
    return node
