# SPDX-License-Identifier: Apache-2.0
"""Converts between a .tflite file and its tree of tables, preserving unknown content.

A tree (delegate/format/tree.py) has the fields that are present in the file. Data of a Buffer or
operator outside the flatbuffer is in its tree under OUTSIDE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from delegate import ModelError
from delegate.format import schema
from delegate.format.table import MAX_FILE_BYTES, File, Table, too_large
from delegate.format.tree import Tree, packed

OUTSIDE = "(outside)"  # not a field's name
# Table -> the fields that locate its data outside the flatbuffer.
_PLACES = {
    "Buffer": ("offset", "size"),
    "Operator": ("large_custom_options_offset", "large_custom_options_size"),
}
_OUTSIDE_ALIGNMENT = 16  # as in a Buffer; TFLite's converter uses it, too


def read_tree(content: memoryview) -> tuple[Tree, bytes]:
    """Return a model's tables, and the data after them (metadata's packed files).

    Raises:
        ModelError: the model is damaged or no model, or has a field that the schema lacks.
    """
    file = File(content)
    tree = _read(file, file.root(), "Model")
    # Padding is recreated.
    return tree, bytes(content[file.end :]).lstrip(b"\0")


def _read(file: File, table: Table, kind: str) -> Tree:
    fields = {field.slot: field for field in schema.fields(kind).values()}
    tree: Tree = {}
    for slot in table.slots():
        if slot in fields:
            value = _value(file, table, kind, fields[slot])
            if value is not None:
                tree[fields[slot].name] = value
        elif slot > max(fields, default=-1):
            raise ModelError(
                f"{table.where} has field {slot} of the table {kind}, which the schema known here "
                "lacks"
            )
        # A gap between the fields is a deprecated field: nobody reads it.
    if kind in _PLACES:
        offset, size = (tree.get(name, 0) for name in _PLACES[kind])
        inline = tree.get("data" if kind == "Buffer" else "custom_options")
        if offset > 1 and size and (inline is None or not len(inline)):
            file.check(offset, size, table.where)
            tree[OUTSIDE] = file.view[offset : offset + size]
    return tree


def _value(file: File, table: Table, kind: str, field: schema.Field) -> Any:
    if field.kind == "scalar":
        return table.scalar(field.name)
    if field.kind == "string":
        return table.copy(field.name)
    if kind == "Buffer":
        start, size_bytes = table.span(field.name)
        return file.view[start : start + size_bytes]
    if field.kind == "table":
        child: str | None = field.child
        if field.name in schema.UNIONS:
            number = table.scalar(f"{field.name}_type")
            child = schema.union_class(field, number)
            if child is None:
                raise ModelError(
                    f"{table.where} has {field.name} of class {number}, which the schema known "
                    "here lacks"
                )
        own = table.table(field.name, child) if child else None
        return None if own is None or not child else _read(file, own, child)
    if field.child:
        label = f"{table.where}: {field.name}"
        return [_read(file, each, field.child) for each in table.tables(field.name, label)]
    return table.array(field.name)


def write_tree(tree: Tree, tail: bytes = b"") -> bytes:
    """Return the file of these tables, followed by `tail`; the output is deterministic.

    Data outside the flatbuffer stays outside, aligned to 16 bytes.

    Raises:
        ModelError: the file would exceed the format's size.
    """
    outside = list(_outside(tree))
    if outside:
        # The size of offsets does not depend on their values, except 0, which would be omitted.
        position = _aligned(len(_packed(tree)))
        for kind, each in outside:
            offset, size = _PLACES[kind]
            each[offset], each[size] = position, len(each[OUTSIDE])
            position = _aligned(position + len(each[OUTSIDE]))
    content = bytearray(_packed(tree))
    for kind, each in outside:
        content += bytes(each[_PLACES[kind][0]] - len(content))
        content += each[OUTSIDE]
    content += _moved(tail, len(content))
    if len(content) > MAX_FILE_BYTES:
        raise too_large(len(content))
    return bytes(content)


def _aligned(position: int) -> int:
    return -(-position // _OUTSIDE_ALIGNMENT) * _OUTSIDE_ALIGNMENT


def _packed(tree: Tree) -> bytes:
    contents = sum(len(buffer.get("data", b"")) for buffer in tree.get("buffers", ()))
    if contents > MAX_FILE_BYTES:
        raise too_large(contents)
    return packed(tree)


def _outside(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Yield the tables with data outside the flatbuffer, in the order of the schema."""
    for buffer in tree.get("buffers", ()):
        if OUTSIDE in buffer:
            yield "Buffer", buffer
    for subgraph in tree.get("subgraphs", ()):
        for operator in subgraph.get("operators", ()):
            if OUTSIDE in operator:
                yield "Operator", operator


_ARCHIVE_END = struct.Struct("<4s4xHHII")  # number of files, offset of the central directory
_ARCHIVE_FILE = struct.Struct("<4s24xHHH8xI")  # sizes of its name and extra data, and its offset


def _moved(tail: bytes, start: int) -> bytes:
    """Return the data after a model, relocated to its new start.

    TFLite's metadata packs label files in a ZIP archive after the model, with offsets relative
    to the start of the file. Other data is returned unchanged.

    Source: APPNOTE.TXT of PKWARE, sections 4.3.12 and 4.3.16
    """
    end = tail.rfind(b"PK\5\6")
    if not tail.startswith(b"PK") or end < 0 or end + _ARCHIVE_END.size > len(tail):
        return tail
    _, _, count, size_bytes, listed = _ARCHIVE_END.unpack_from(tail, end)
    at = end - size_bytes
    by = start + at - listed
    moved = bytearray(tail)
    struct.pack_into("<I", moved, end + 16, listed + by)
    for _ in range(count):
        if at < 0 or at + _ARCHIVE_FILE.size > end or tail[at : at + 4] != b"PK\1\2":
            return tail
        _, name, extra, comment, place = _ARCHIVE_FILE.unpack_from(tail, at)
        if not 0 <= place + by < 2**32:
            return tail
        struct.pack_into("<I", moved, at + 42, place + by)
        at += _ARCHIVE_FILE.size + name + extra + comment
    return bytes(moved)
