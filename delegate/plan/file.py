# SPDX-License-Identifier: Apache-2.0
"""Portable plan files: plans, contents of constants, and binaries, for other machines.

A line of JSON describes the origin and the parts that follow. Nothing is executed before all keys
match, and no content is used whose digest differs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import PlanError
from delegate.guard.cache import MappedFile, replace_file
from delegate.plan.contents import MissingContent, digest_of

_MAGIC = b"tflite-opencl plan 1\n"
_ALIGNMENT = 64
_Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class PlanFile:
    """An open plan file.

    Attributes:
        path; about: its origin: "device", "proven", "code", "runtime".
    """

    path: str
    about: Mapping[str, Any]
    _parts: Mapping[str, tuple[int, int, str]]  # offset, size and digest, by name
    _content: MappedFile

    def __reduce__(self) -> tuple[Any, ...]:
        return read_plan, (os.path.abspath(self.path),)

    def part(self, name: str) -> _Bytes | None:
        """Return a part; None: not present. Raises: PlanError: it is damaged."""
        if name not in self._parts:
            return None
        offset, size, digest = self._parts[name]
        values = np.frombuffer(self._content, np.uint8)[offset : offset + size]
        if values.size != size or digest_of(values) != digest:
            raise PlanError(f"plan {self.path}: it is damaged; make it again")
        return values

    def content(self, digest: str, size_bytes: int) -> _Bytes:
        """Return a constant's content. Raises: MissingContent, PlanError."""
        values = self.part(f"constants/{digest}")
        if values is None or values.size != size_bytes:
            raise MissingContent(digest)
        return values

    @property
    def answers(self) -> Mapping[str, bytes]:
        """All plans, encoded, by key. Raises: PlanError."""
        names = [name for name in self._parts if name.startswith("answers/")]
        found = {name.removeprefix("answers/"): self.part(name) for name in names}
        return {name: values.tobytes() for name, values in found.items() if values is not None}


def write_plan(
    path: str | os.PathLike[str], about: Mapping[str, Any], parts: Mapping[str, _Bytes]
) -> None:
    """Write a plan file atomically. Raises: PlanError."""
    places, at = {}, 0
    for name, values in parts.items():
        places[name] = at, values.nbytes, digest_of(values)
        at += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
    head = _MAGIC + json.dumps({"about": about, "parts": places}).encode() + b"\n"
    head += b"\0" * (-len(head) % _ALIGNMENT)
    content = bytearray(head)
    for values in parts.values():
        content += values.tobytes()
        content += b"\0" * (-values.nbytes % _ALIGNMENT)
    try:
        replace_file(Path(path), memoryview(content))
    except OSError as error:
        raise PlanError(f"cannot write {path}: {error.strerror or error}") from error


def read_plan(path: str | os.PathLike[str]) -> PlanFile:
    """Open a plan file. Raises: PlanError: not a plan, or unreadable."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = MappedFile.of(file.fileno())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is empty"
        raise PlanError(f"plan {name}: {why}") from error
    end = content.find(b"\n", len(_MAGIC))
    if content[: len(_MAGIC)] != _MAGIC or end < 0:
        raise PlanError(f"{name} is no plan: `tflite-opencl plan MODEL --output FILE` makes one")
    first = -(-(end + 1) // _ALIGNMENT) * _ALIGNMENT
    try:
        head = json.loads(content[len(_MAGIC) : end])
        about = dict(head["about"])
        parts = {
            str(part): (first + int(offset), int(size), str(digest))
            for part, (offset, size, digest) in head["parts"].items()
        }
        if any(offset < first or size < 0 for offset, size, _ in parts.values()):
            raise ValueError(name)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise PlanError(f"plan {name}: it is damaged; make it again") from error
    return PlanFile(name, about, parts, content)
