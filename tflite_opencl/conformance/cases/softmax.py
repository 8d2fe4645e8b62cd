# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION: rows of every length."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from delegate.inspect import Graph
from tflite_opencl.common.build import USUAL, Case, case, dtype_of, one, sizes, tensor

_SHAPES = ((1, 2), (3, 5), (1, 10), (2, 64), (4, 65), (1, 511), (1, 1001), (2, 3, 4, 17), (5, 1))
_OUT: dict[tuple[str, str], tuple[float, int]] = {
    ("SOFTMAX", "uint8"): (1 / 256, 0),
    ("SOFTMAX", "int8"): (1 / 256, -128),
    ("SOFTMAX", "int16"): (2.0**-15, 0),
    ("LOG_SOFTMAX", "uint8"): (16 / 256, 255),
    ("LOG_SOFTMAX", "int8"): (16 / 256, 127),
    ("L2_NORMALIZATION", "uint8"): (1 / 128, 128),
    ("L2_NORMALIZATION", "int8"): (1 / 128, 0),
}


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind, shape, beta, scale in itertools.product(
        ("uint8", "int8", "16x8", "float32"), _SHAPES, (1.0, 0.3), (0.1, 0.01)
    ):
        if kind in ("16x8", "float32") and scale != 0.1:
            continue
        if kind in ("uint8", "int8") and shape[-1] > 511:
            continue  # equal values would add up to 512 and more, and the reference aborts
        detail = f"in{sizes(shape)}-beta{beta:g}"
        detail += f"-scale{scale:g}" if kind in ("uint8", "int8") else ""
        yield case("softmax", kind, detail, _graph, "SOFTMAX", kind, shape, scale, beta)
    for op in ("LOG_SOFTMAX", "L2_NORMALIZATION"):
        for kind, shape, scale in itertools.product(
            ("uint8", "int8", "float32"), _SHAPES, (0.1, 0.02)
        ):
            if kind == "float32" and scale != 0.1:
                continue
            detail = f"in{sizes(shape)}" + (f"-scale{scale:g}" if kind != "float32" else "")
            yield case(op.lower(), kind, detail, _graph, op, kind, shape, scale)


def _graph(
    op: str, kind: str, shape: tuple[int, ...], scale: float, beta: float | None = None
) -> Graph:
    dtype = dtype_of(kind)
    options: dict[str, Any] = {} if beta is None else {"beta": beta}
    if dtype == "float32":
        return one(op, [tensor(shape)], [tensor(shape)], options)
    zero = USUAL[dtype][0][1]
    scale = 10 / 32768 if dtype == "int16" else scale
    source = tensor(shape, dtype, scale, zero)
    version = {"uint8": 1, "int8": 2, "int16": 3}[dtype]
    return one(op, [source], [tensor(shape, dtype, *_OUT[op, dtype])], options, version)
