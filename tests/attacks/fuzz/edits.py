# SPDX-License-Identifier: Apache-2.0
"""Edits of a file's bytes: drawing, applying and shrinking."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

# Boundary values of sizes, counts and offsets.
_INTEGERS = (0, 1, -1, 2, 3, 4, 5, 8, 127, 255, 256, 65535, 1 << 24, (1 << 31) - 1, -(1 << 31))
_FLOATS = (0.0, -1.0, 1e-38, 1e38, float("inf"), float("-inf"), float("nan"))
_BYTES = (0, 1, 2, 3, 9, 127, 128, 255)
_MOST_EDITS = 4


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes that replace others."""

    at: int
    removed: int
    inserted: bytes


def drawn(rng: random.Random, data: bytes) -> list[Edit]:
    """Return random edits of a file."""
    return [_edit(rng, data) for _ in range(rng.randint(1, _MOST_EDITS))]


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Return the bytes with the edits applied in order."""
    for edit in edits:
        data = data[: edit.at] + edit.inserted + data[edit.at + edit.removed :]
    return data


def smaller(data: bytes, edit: Edit) -> Iterator[Edit]:
    """Yield the edit with one changed byte less."""
    own = data[edit.at : edit.at + edit.removed]
    if len(own) == len(edit.inserted):
        for place, (old, new) in enumerate(zip(own, edit.inserted, strict=True)):
            if old != new:
                inserted = edit.inserted[:place] + bytes([old]) + edit.inserted[place + 1 :]
                yield replace(edit, inserted=inserted)


def _edit(rng: random.Random, data: bytes) -> Edit:
    at = rng.randrange(len(data))
    word = at & ~3  # alignment of integers in a FlatBuffer
    kind = rng.choice(("bit", "byte", "number", "number", "step", "float", "copy", "length"))
    if kind == "bit":
        return Edit(at, 1, bytes([data[at] ^ 1 << rng.randrange(8)]))
    if kind == "byte":
        return Edit(at, 1, bytes([rng.choice(_BYTES)]))
    if kind == "number":
        return Edit(word, 4, struct.pack("<i", rng.choice(_INTEGERS)))
    if kind == "step":
        old = int.from_bytes(data[word : word + 4], "little")
        new = old + rng.choice((-4, -2, -1, 1, 2, 4)) if rng.random() < 0.7 else 2 * old
        return Edit(word, 4, struct.pack("<I", new & 0xFFFFFFFF))
    if kind == "float":
        return Edit(word, 4, struct.pack("<f", rng.choice(_FLOATS)))
    other = rng.randrange(len(data)) & ~3
    if kind == "copy":
        return Edit(word, 4, data[other : other + 4])
    count = rng.choice((1, 4, 64, len(data)))
    return Edit(at, count, b"") if rng.random() < 0.5 else Edit(at, 0, data[at : at + count])
