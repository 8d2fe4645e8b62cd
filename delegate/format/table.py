# SPDX-License-Identifier: Apache-2.0
"""Access to the tables of a .tflite model with bounds checks, which flatbuffers lacks.

Field names and slots are from schema.py; their meaning is not known here.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flatbuffers import number_types
from numpy.typing import NDArray

from delegate.errors import ModelError
from delegate.format import schema

MAX_FILE_BYTES = 2**31 - 1  # flatbuffers' offsets have 32 bits; some of TFLite's are signed
MAX_TABLES = 1_000_000  # what TFLite's own verifier allows (flatbuffers/verifier.h, max_tables)
MAX_DENSE_BYTES = 1 << 28  # total of sparse tensors
# The cost of a table in the budget of bytes to decode: reading it takes as long as reading this
# many bytes of it. Writers do not share tables.
_TABLE_BYTES, _SHARED_TABLE_BYTES = 32, 1024

_AT_ONCE = 256  # offsets of a vector that are read at once
_MOST_UNPACKED = 16  # numbers in a vector, above which numpy is faster

_OFFSET = struct.Struct("<I")
_SIGNED_OFFSET = struct.Struct("<i")
_SHORTS = struct.Struct("<HH")


def too_large(size_bytes: int) -> ModelError:
    return ModelError(
        f"the model has {size_bytes} bytes; the format allows at most {MAX_FILE_BYTES}"
    )


class File:
    """The bytes of a model, and the budget of bytes to decode.

    Without it, a small file whose parts all point to the same bytes could expand without bound.
    """

    def __init__(
        self,
        view: memoryview,
        identifier: bytes = schema.FILE_IDENTIFIER,
        what: str = "the model",
    ) -> None:
        """`what`: the name of the bytes in messages."""
        self.view = view
        self.size = len(view)
        self._what = what
        if self.size == 0:
            raise ModelError("the model is empty")
        if self.size > MAX_FILE_BYTES:
            raise too_large(self.size)
        found = bytes(view[4:8])
        if found != identifier:
            kind = "a .tflite model" if identifier == schema.FILE_IDENTIFIER else what
            raise ModelError(f"this is not {kind}: bytes 4..8 are {found!r}, not {identifier!r}")
        self._bytes_left = 2 * self.size + 2**20  # writers may share equal vectors and strings
        self._tables_left = MAX_TABLES
        self._tables: set[int] = set()  # their positions
        self._dense_bytes_left = MAX_DENSE_BYTES
        self.end = 0  # of everything read so far

    def root(self, kind: str = "Model") -> Table:
        return Table(self, self.follow(0, self._what), kind, self._what)

    def unpack(self, number: struct.Struct, position: int, where: str) -> Any:
        end = position + number.size
        if position < 0 or end > self.end:
            self.check(position, number.size, where)
        return number.unpack_from(self.view, position)[0]

    def layout(self, position: int, where: str) -> tuple[int, tuple[int, ...]]:
        """Return a table's size, and its fields' offsets by slot, as stored at `position`.

        0 = the field is omitted.
        """
        self.check(position, _SHORTS.size, where)
        layout_bytes, size = _SHORTS.unpack_from(self.view, position)
        if size < 4:
            raise ModelError(f"{where} has a damaged table of fields at byte {position}")
        count = max(0, layout_bytes - 4) // 2  # TFLite reads no field of a shorter one, either
        self.check(position + 4, 2 * count, where)
        return size, struct.unpack_from(f"<{count}H", self.view, position + 4)

    def follow(self, position: int, where: str) -> int:
        """Return the position that the offset stored at `position` points to."""
        return position + int(self.unpack(_OFFSET, position, where))

    def check(self, position: int, size_bytes: int, where: str) -> None:
        if position < 0 or position + size_bytes > self.size:
            raise ModelError(
                f"{where} spans bytes {position}..{position + size_bytes} "
                f"of a file of {self.size} bytes"
            )
        if position + size_bytes > self.end:
            self.end = position + size_bytes

    def pointed(self, start: int, length: int) -> Iterator[int]:
        """Yield the targets of a vector's offsets; the vector is within the file."""
        end = start + length * _OFFSET.size
        while start < end:
            count = min((end - start) // _OFFSET.size, _AT_ONCE)
            for offset in struct.unpack_from(f"<{count}I", self.view, start):
                yield start + offset
                start += _OFFSET.size

    def spend(self, size_bytes: int, where: str) -> None:
        self._bytes_left -= size_bytes
        if self._bytes_left < 0:
            raise ModelError(f"{where}: the parts of the file overlap too much to be a model")

    def spend_table(self, position: int, where: str) -> None:
        self._tables_left -= 1
        if self._tables_left < 0:
            raise ModelError(f"{where}: the model has more than {MAX_TABLES} parts")
        self.spend(_SHARED_TABLE_BYTES if position in self._tables else _TABLE_BYTES, where)
        self._tables.add(position)

    def spend_dense(self, size_bytes: int) -> bool:
        """Whether the budget allows a sparse tensor of this size, as declared by the file."""
        is_left = size_bytes <= self._dense_bytes_left
        self._dense_bytes_left -= size_bytes if is_left else 0
        return is_left


class Table:
    """A table of the file, with its fields by schema name."""

    __slots__ = (
        "_fields",
        "_file",
        "_offsets",
        "_position",
        "_size",
        "kind",
        "where",
    )

    def __init__(self, file: File, position: int, kind: str, where: str) -> None:
        file.spend_table(position, where)
        self.kind = kind
        self.where = where
        self._file = file
        self._position = position
        self._fields = schema.fields(kind)
        layout = position - int(file.unpack(_SIGNED_OFFSET, position, where))
        self._size, self._offsets = file.layout(layout, where)

    def _find(self, field: schema.Field, width_bytes: int) -> int | None:
        offsets, slot = self._offsets, field.slot
        offset = offsets[slot] if slot < len(offsets) else 0
        if offset == 0:
            return None
        if offset < 4 or offset + width_bytes > self._size:
            raise ModelError(f"{self.where}: the field {field.name} lies outside its table")
        return self._position + offset

    def _find_vector(self, name: str, width_bytes: int) -> tuple[int, int]:
        """Return the position and length of a vector."""
        at = self._find(self._fields[name], _OFFSET.size)
        if at is None:
            return 0, 0
        where = f"{self.where}: the field {name}"
        start = self._file.follow(at, where)
        length = int(self._file.unpack(_OFFSET, start, where))
        start += _OFFSET.size
        self._file.check(start, length * width_bytes, where)
        return start, length

    def slots(self) -> list[int]:
        """Return the slots of the fields that are present."""
        return [slot for slot, offset in enumerate(self._offsets) if offset]

    def scalar(self, name: str) -> Any:
        field = self._fields[name]
        at = self._find(field, field.flags.bytewidth)
        if at is None:
            return field.default
        value = self._file.unpack(field.flags.packer_type, at, self.where)
        return bool(value) if isinstance(field.default, bool) else value

    def string(self, name: str) -> str:
        return self.copy(name).decode("utf-8", "replace")

    def copy(self, name: str) -> bytes:
        """Return a string's or a byte vector's bytes."""
        start, length = self.span(name)
        self._file.spend(length, f"{self.where}: the field {name}")
        return bytes(self._file.view[start : start + length])

    def span(self, name: str) -> tuple[int, int]:
        """Return the offset of a byte vector in the file, and its size."""
        return self._find_vector(name, 1)

    def numbers(self, name: str) -> tuple[Any, ...]:
        flags = self._fields[name].flags
        start, length = self._find_vector(name, flags.bytewidth)
        if length > _MOST_UNPACKED:
            return tuple(self.array(name).tolist())
        self._file.spend(length * flags.bytewidth, self.where)
        return struct.unpack_from(_format(flags, length), self._file.view, start)

    def array(self, name: str) -> NDArray[Any]:
        """Return a vector of numbers as a view of the file."""
        flags = self._fields[name].flags
        start, length = self._find_vector(name, flags.bytewidth)
        dtype = _dtype(flags)
        if length == 0:
            return np.zeros(0, dtype)
        self._file.spend(length * flags.bytewidth, f"{self.where}: the field {name}")
        return np.frombuffer(self._file.view, dtype, length, start)

    def union(self, name: str) -> Table | None:
        """Return the table of a union; None: there is none, or its class is not in the schema."""
        kind = schema.union_class(self._fields[name], self.scalar(f"{name}_type"))
        return self.table(name, kind) if kind else None

    def table(self, name: str, kind: str = "") -> Table | None:
        """Return the table that a field points to; `kind`: the class, for a union."""
        field = self._fields[name]
        at = self._find(field, _OFFSET.size)
        if at is None:
            return None
        where = f"{self.where}: the field {name}"
        return Table(self._file, self._file.follow(at, where), kind or field.child, where)

    def count(self, name: str) -> int:
        return self._find_vector(name, _OFFSET.size)[1]

    def tables(self, name: str, label: str) -> Iterator[Table]:
        """Yield the tables of a vector; `label` names one in messages ("tensor")."""
        kind = self._fields[name].child
        start, length = self._find_vector(name, _OFFSET.size)
        for index, at in enumerate(self._file.pointed(start, length)):
            yield Table(self._file, at, kind, f"{label} {index}")


@functools.cache
def _format(flags: Any, length: int) -> str:
    """Return the `struct` format of a vector of numbers."""
    return f"<{length}{flags.packer_type.format[-1]}"


@functools.cache
def _dtype(flags: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(number_types.to_numpy_type(flags)).newbyteorder("<")
    return found


def options_of(operator: Table, op: str) -> Mapping[str, Any]:
    """Return the options of a builtin op by name, with defaults for omitted ones."""
    options_class = schema.options_class(op)
    if options_class is None:
        return {}
    kind, number, union = options_class
    # TFLite also ignores a table of another op's class.
    is_there = operator.scalar(f"{union}_type") == number
    table = operator.table(union, kind) if is_there else None
    return {name: _option(table, field) for name, field in schema.fields(kind).items()}


def _option(table: Table | None, field: schema.Field) -> Any:
    if field.kind == "string":
        return table.string(field.name) if table else ""
    if field.kind == "scalar":
        value = table.scalar(field.name) if table else type(field.default)(0)
        return schema.enum_names(field.enum).get(value, value) if field.enum else value
    if field.flags is number_types.Uint8Flags:
        return table.copy(field.name) if table else b""
    values = table.numbers(field.name) if table else ()
    if field.enum:
        names = schema.enum_names(field.enum)
        return tuple(names.get(value, value) for value in values)
    return values
