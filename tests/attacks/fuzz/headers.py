# SPDX-License-Identifier: Apache-2.0
"""Edits of the fields of a GGUF header: numbers, strings, types, arrays, shapes and offsets.

Layout: magic, version (uint32), counts of tensors and keys (uint64); for each key its name, type
and value; for each tensor its name, rank, dimensions, type and offset. Strings and arrays have
their length (uint64) first, and arrays the type of their values before it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.attacks.fuzz.edits import Edit

_STRING, _LIST = 8, 9  # types; the others are numbers with these struct formats
_NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXTS = (b"", b"7", b"\xff", b"a\nb", b"\0", "\u00e9".encode() * 99, b"x" * 4096, b"%s {0}")
_INTEGERS = (0, 1, 2, 3, 7, 8, 31, 32, 33, 255, 4096, 1 << 16, (1 << 31) - 1, 1 << 31)
_WIDE = ((1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
# Kinds of fields, by frequency: "structure" are counts and types, and what determines where
# the next field begins; "place" a tensor's sizes, type and offset; "value" a key's type and value.
_OFTEN = (
    *("value",) * 6, *("number",) * 2, *("place",) * 3, *("structure",) * 3, "text", "item"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """Bytes of a header.

    Attributes:
        kind: of the field; form: struct format of a number.
    """

    kind: str
    at: int
    size: int
    form: str = ""


class _Reader:
    """Parses a valid file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.fields = data, 0, list[Field]()

    def number(self, kind: str, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self._take(kind, struct.calcsize(f"<{form}"), form)
        return int(value)

    def text(self) -> None:
        self._take("text", self.number("structure", "Q"))

    def value(self, own: int) -> None:
        if own == _STRING:
            self.text()
        elif own == _LIST:
            inner, count = self.number("structure", "I"), self.number("structure", "Q")
            for _ in range(count):
                self.value(inner)
        else:
            self.number("number", _NUMBERS[own])

    def whole(self, kind: str, begin: int) -> None:
        """Also record everything from an offset on as a field."""
        self.fields.append(Field(kind, begin, self.at - begin))

    def _take(self, kind: str, size: int, form: str = "") -> None:
        self.fields.append(Field(kind, self.at, size, form))
        self.at += size


@cache
def fields_of(data: bytes) -> tuple[Field, ...]:
    """Return the fields of a valid file's header, in order."""
    reader = _Reader(data)
    for form in "II":
        reader.number("structure", form)
    tensors, keys = (reader.number("structure", "Q") for _ in range(2))
    for _ in range(keys):
        begin = reader.at
        reader.text()
        middle = reader.at
        reader.value(reader.number("structure", "I"))
        reader.whole("value", middle)
        reader.whole("item", begin)
    for _ in range(tensors):
        begin = reader.at
        reader.text()
        for _ in range(reader.number("structure", "I")):
            reader.number("place", "Q")
        reader.number("place", "I")
        reader.number("place", "Q")
        reader.whole("item", begin)
    return tuple(reader.fields)


def drawn(rng: random.Random, data: bytes) -> list[Edit]:
    """Return edits of one to three fields, from the end, so that none moves another."""
    fields = fields_of(data)
    kinds: dict[str, list[Field]] = {}
    for each in fields:
        kinds.setdefault(each.kind, []).append(each)
    chosen: list[Field] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        field = rng.choice(kinds[rng.choice(_OFTEN)])
        if all(field.at + field.size <= c.at or c.at + c.size <= field.at for c in chosen):
            chosen.append(field)
    chosen.sort(key=lambda field: -field.at)
    return [Edit(each.at, each.size, _instead(rng, data, each)) for each in chosen]


def _instead(rng: random.Random, data: bytes, field: Field) -> bytes:
    old = data[field.at : field.at + field.size]
    if field.kind == "item":
        return rng.choice((b"", 2 * old))
    if field.kind == "value":
        return _typed(rng)
    if field.kind == "text":
        return rng.choice((*_TEXTS, old[:-1], old + b"a"))
    if field.form in "fd":
        return struct.pack(f"<{field.form}", rng.choice(_FLOATS))
    (value,) = struct.unpack(f"<{field.form}", old)
    near = (value + 1, value - 1, 2 * value, value // 2)
    return _packed(field.form, rng.choice((*_INTEGERS, *_WIDE, *near)))


def _packed(form: str, value: int) -> bytes:
    """Return an integer with its width in bytes."""
    size = struct.calcsize(f"<{form}")
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _typed(rng: random.Random) -> bytes:
    """Return a type and a value, mostly valid."""
    kind = rng.choice((*_NUMBERS, _STRING, _STRING, _LIST, _LIST, _LIST, 13, 1 << 31))
    return _packed("I", kind) + b"".join(_value(rng, kind))


def _value(rng: random.Random, kind: int) -> Iterator[bytes]:
    if kind in _NUMBERS:
        form = _NUMBERS[kind]
        if form in "fd":
            yield struct.pack(f"<{form}", rng.choice(_FLOATS))
        else:
            yield _packed(form, rng.choice((*_INTEGERS, *_WIDE)))
    elif kind == _STRING:
        text = rng.choice(_TEXTS)
        yield _packed("Q", len(text) if rng.random() < 0.8 else rng.choice(_WIDE)) + text
    elif kind == _LIST:
        inner = rng.choice((*_NUMBERS, _STRING, _STRING, _LIST, 13))
        count = rng.choice((0, 1, 2, 300))
        length = count if rng.random() < 0.7 else rng.choice((*_INTEGERS, *_WIDE))
        yield _packed("I", inner) + _packed("Q", length)
        for _ in range(count if inner != _LIST else 1):
            yield from _value(rng, inner)
