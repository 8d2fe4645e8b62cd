# SPDX-License-Identifier: Apache-2.0
"""Restores frozen dataclasses from the JSON of dataclasses.asdict."""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from typing import Any


def from_json(kind: Any, found: Any) -> Any:
    """Return a value of an annotated type: a dataclass, or a type of its fields.

    Lists become tuples if the annotation is a tuple. A field with a default may be missing.
    Raises: TypeError: the value is of another type, or a field is missing or unknown.
    """
    made, of = typing.get_origin(kind) or kind, typing.get_args(kind)
    if made in (typing.Union, types.UnionType):
        plain = next(each for each in of if each is not types.NoneType)
        return None if found is None else from_json(plain, found)
    if dataclasses.is_dataclass(made) and isinstance(found, dict):
        hints = typing.get_type_hints(made)
        if unknown := {*found} - {*hints}:
            raise TypeError(f"unknown: {min(unknown)}")
        return kind(**{name: from_json(hints[name], value) for name, value in found.items()})
    if made is collections.abc.Mapping and isinstance(found, dict):
        return {name: from_json(of[1], value) for name, value in found.items()}
    if made is collections.abc.Sequence and isinstance(found, list):
        return [from_json(of[0], each) for each in found]
    if made is tuple and isinstance(found, list):
        kinds = of[:1] * len(found) if of[1:] == (...,) else of
        if len(kinds) == len(found):
            return tuple(map(from_json, kinds, found))
    if isinstance(found, (int, float) if made is float else made):
        return found
    raise TypeError(f"{found!r} is no {kind}")
