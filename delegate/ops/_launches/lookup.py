# SPDX-License-Identifier: Apache-2.0
"""What ops on 8 and 16 bits share: a table with the answer for each value an element can have.

The host fills it by the same arithmetic as TFLite's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch, element_type
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._launches.types import moved_type, type_of_bytes
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

# Elements a work-item takes at once: a word of 8-bit values, two of 16-bit ones.
_LANES = 4

# Every value an element can have, by its bits read as an unsigned number -> the answers.
Answers = Callable[[NDArray[np.int64]], NDArray[Any]]


def lookup(
    source: Tensor, result: Tensor, answers: Answers, target: Target, read_as: str = ""
) -> tuple[Alternative, ...]:
    """Replace each element of an 8-bit or 16-bit integer or bool tensor by its answer.

    `answers` is called when constants are packed, with all 256 or 65,536 values; it returns as
    many that fit the result's type, which may have 1, 2, 4 or 8 bytes. `read_as`: the type of the
    values, of the input's width, where it is not the input's own.

    Raises:
        Unsupported: an input of another type, an output of another shape, empty tensors.
    """
    kind = read_as or ("uint8" if source.dtype == "bool" else source.dtype)
    wide = _width(kind)
    if wide not in (1, 2):
        raise Unsupported(f"{source.dtype}: a table is for integers of 8 or 16 bits")
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    elements = elements_of(source)
    moved = moved_type(result)
    count = 1 << (8 * wide)

    def table() -> NDArray[Any]:
        bits = np.arange(count, dtype=np.uint8 if wide == 1 else np.uint16)
        found = answers(bits.view(kind).astype(np.int64))
        return np.ascontiguousarray(found).astype(result.dtype)

    table_constant = Constant(count * np.dtype(result.dtype).itemsize, table)

    def launch(kernel: str, items: int) -> Launch:
        tiling = by_elements(items, target)
        return launch_over(
            "lookup",
            kernel,
            tiling,
            {
                "input": source,
                "output": result,
                "table": table_constant,
                "elements": elements,
            },
            {"INDEX": type_of_bytes(wide), "ELEM": moved},
        )

    plain = Alternative("plain", (launch("lookup", elements),))
    if elements < _LANES or moved == "uint2":
        return (plain,)
    return (
        Alternative(f"vector {_LANES}", (launch("lookup_vector", ceil_div(elements, _LANES)),)),
        plain,
    )


def _width(dtype: str) -> int:
    try:
        kind = element_type(dtype)
    except TypeError:
        return 0
    return kind.itemsize if kind.kind in "iu" else 0
