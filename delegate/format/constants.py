# SPDX-License-Identifier: Apache-2.0
"""Location of buffers and constants in a file, and constants as arrays."""

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
    """Return the offset and size of a buffer's bytes."""
    start, size_bytes = buffer.span("data")
    if size_bytes == 0:
        return external_span(file, buffer, "offset", "size")
    return start, size_bytes


def external_span(file: File, table: Table, offset: str, size: str) -> tuple[int, int]:
    """Return the same for bytes after the flatbuffer, from these fields; else 0, 0."""
    # External data is relative to the file's start. Writers put 1 for "not yet known".
    start, size_bytes = table.scalar(offset), table.scalar(size)
    if start <= 1 or size_bytes == 0:
        return 0, 0
    file.check(start, size_bytes, table.where)
    return start, size_bytes


def view_of(
    file: File, start: int, size_bytes: int, shape: tuple[int, ...], dtype: str, where: str
) -> NDArray[Any]:
    """Return a constant as an array, or its raw bytes if numpy lacks the type.

    Raises:
        ModelError: the size does not match the shape.
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
    """Return a sparse constant as a dense one; None: it is malformed or too large."""
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
    """Return a shape for messages."""
    return "x".join(map(str, shape)) or "()"
