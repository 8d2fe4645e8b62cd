# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of a flatbuffer by the fields of schema.py; knows nothing of graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import number_types

from delegate.tflite import schema

_BUFFER_ALIGNMENT = 16  # schema.fbs: `data:[ubyte] (force_align: 16)`


def new_builder(content_bytes: int) -> Any:
    """Return flatbuffers' builder with room for contents of this size and their tables."""
    return flatbuffers.Builder(content_bytes + 4096)


class Written(int):
    """The offset of a vector that is in the file already."""


def write_content(builder: Any, content: bytes | memoryview) -> Written:
    """Write the bytes of a Buffer: as Builder.CreateByteVector does, but aligned."""
    builder.StartVector(1, len(content), _BUFFER_ALIGNMENT)
    builder.head -= len(content)
    builder.Bytes[builder.head : builder.head + len(content)] = content
    return Written(builder.EndVector())


def write_table(builder: Any, kind: str, values: Mapping[str, Any]) -> int:
    """Write one table and return its offset; a value of None leaves the field out.

    Tables exist before what points to them: a child table is given as its offset, a vector of
    tables as a list of offsets.
    """
    fields = [field for field in schema.fields(kind).values() if values.get(field.name) is not None]
    ready = {field.name: _child(builder, field, values[field.name]) for field in fields}
    # NOTE: flatbuffers' versions share vtables differently; the bytes must not depend on that.
    builder.vtables.clear()
    builder.StartObject(max((field.slot + 1 for field in fields), default=0))
    for field in fields:
        if field.kind == "scalar":
            builder.PrependSlot(field.flags, field.slot, ready[field.name], field.default)
        else:
            builder.PrependUOffsetTRelativeSlot(field.slot, ready[field.name], 0)
    return int(builder.EndObject())


def _child(builder: Any, field: schema.Field, value: Any) -> Any:
    """Write what a field points to and return its offset; a scalar is returned as it is."""
    if field.kind in ("scalar", "table") or isinstance(value, Written):
        return value
    if field.kind == "string":
        return builder.CreateString(value)
    if isinstance(value, bytes):
        return builder.CreateByteVector(value)
    if field.flags is not None:
        numbers = np.array(value, number_types.to_numpy_type(field.flags))
        if numbers.ndim != 1:
            raise ValueError(f"{field.name} is {value!r}, but must be a sequence of numbers")
        return builder.CreateNumpyVector(numbers)
    builder.StartVector(4, len(value), 4)
    for offset in reversed(value):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()
