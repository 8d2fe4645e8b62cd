# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of buffers and constants lie in a file, and the arrays that they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import ModelError
from delegate.format import schema
from delegate.format.sparsity import dense as sparsity_values
from delegate.format.table import File, Table


def buffer_span(file: File, buffer: Table) -> tuple[int, int]:
    """Return where a buffer's bytes start and how many there are."""
    start, size_bytes = buffer.span("data")
    if size_bytes == 0:
        return external_span(file, buffer, "offset", "size")
    return start, size_bytes


def external_span(file: File, table: Table, offset: str, size: str) -> tuple[int, int]:
    """Return the same of bytes behind the flatbuffer, by the fields that tell it; else 0, 0."""
    # Data outside the flatbuffer counts from the file's start. Writers put 1 for "not yet known".
    start, size_bytes = table.scalar(offset), table.scalar(size)
    if start <= 1 or size_bytes == 0:
        return 0, 0
    file.check(start, size_bytes, table.where)
    return start, size_bytes


def view_of(
    file: File, start: int, size_bytes: int, shape: tuple[int, ...], dtype: str, where: str
) -> NDArray[Any]:
    """Return a constant; of a type that numpy has not its bytes.

    Raises:
        ModelError: the shape wants another number of bytes.
    """
    content = file.view[start : start + size_bytes]
    number = schema.numpy_dtype(dtype)
    if number is None:
        return np.frombuffer(content, np.uint8)
    needed_bytes = math.prod(shape) * number.itemsize
    if needed_bytes != size_bytes:
        raise ModelError(
            f"{where} has {size_bytes} bytes for shape {shape_text(shape)} of {dtype} "
            f"({needed_bytes} needed)"
        )
    return np.frombuffer(content, number).reshape(shape)


def dense_of(
    file: File, start: int, size_bytes: int, shape: tuple[int, ...], dtype: str, sparsity: Table
) -> NDArray[Any] | None:
    """Return a sparse constant with its zeros; None: it is malformed, or too large for that."""
    number = schema.numpy_dtype(dtype)
    if number is None or size_bytes % number.itemsize:
        return None
    if not file.spend_dense(math.prod(shape) * number.itemsize):
        return None
    stored = np.frombuffer(file.view[start : start + size_bytes], number)
    try:
        return sparsity_values(stored, shape, sparsity)
    except ValueError:
        return None  # malformed: TFLite reports it


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape for people."""
    return "x".join(map(str, shape)) or "()"
