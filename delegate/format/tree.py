# SPDX-License-Identifier: Apache-2.0
"""Serialises a tree of tables to the bytes of a .tflite file, by the fields of schema.py.

It is independent of graphs. A tree is a table as a dict of fields by schema name: numbers, bytes or
text of strings, sequences of numbers, trees and lists of trees. Fields missing in the dict are
omitted from the file.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import number_types

from delegate.format import schema

Tree = dict[str, Any]
_BUFFER_ALIGNMENT = 16  # schema.fbs: `data:[ubyte] (force_align: 16)`


def packed(tree: Tree, kind: str = "Model", identifier: bytes = schema.FILE_IDENTIFIER) -> bytes:
    """Return the file with this root table; equal trees give equal bytes.

    Raises:
        ValueError: a value does not fit its field.
    """
    contents = sum(len(buffer.get("data", b"")) for buffer in tree.get("buffers", ()))
    builder = flatbuffers.Builder(contents + 4096)
    builder.ForceDefaults(True)  # a tree's fields are explicit, even if equal to the default
    builder.Finish(_table(builder, tree, kind), identifier)
    return bytes(builder.Output())


def _table(builder: Any, tree: Tree, kind: str) -> int:
    """Write a table and return its offset. Its children are written first."""
    fields = [field for field in schema.fields(kind).values() if field.name in tree]
    known = {field.name: field for field in fields}
    # Tables, and those in lists, are replaced by their offsets.
    values = {name: _below(builder, tree, kind, known[name]) for name in tree if name in known}
    ready = {field.name: _pointed_to(builder, field, values[field.name]) for field in fields}
    # NOTE: flatbuffers versions share vtables differently; the bytes must not depend on that.
    builder.vtables.clear()
    builder.StartObject(max((field.slot + 1 for field in fields), default=0))
    for field in fields:
        if field.kind == "scalar":
            builder.PrependSlot(field.flags, field.slot, ready[field.name], field.default)
        else:
            builder.PrependUOffsetTRelativeSlot(field.slot, ready[field.name], 0)
    return int(builder.EndObject())


class _Written(int):
    """The offset of a vector that was already written."""


def _below(builder: Any, tree: Tree, kind: str, field: schema.Field) -> Any:
    """Write the tables of a field, and large byte vectors; return other values."""
    value = tree[field.name]
    if kind == "Buffer" and field.name == "data":
        # Like Builder.CreateByteVector, but aligned.
        builder.StartVector(1, len(value), _BUFFER_ALIGNMENT)
        builder.head -= len(value)
        builder.Bytes[builder.head : builder.head + len(value)] = value
        return _Written(builder.EndVector())
    is_union = field.name in schema.UNIONS
    child = schema.union_class(field, tree[f"{field.name}_type"]) if is_union else field.child
    if not child:
        return value
    if isinstance(value, dict):
        return _table(builder, value, child)
    return [_table(builder, each, child) for each in value]


def _pointed_to(builder: Any, field: schema.Field, value: Any) -> Any:
    """Write a field's target and return its offset; return a scalar unchanged."""
    if field.kind in ("scalar", "table") or isinstance(value, _Written):
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
