# SPDX-License-Identifier: Apache-2.0
"""FlexBuffer options of custom ops: decoding and encoding of a map."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from flatbuffers import flexbuffers

Value = int | float | str | tuple[int, ...]
_LONGEST = 64  # elements of a vector; real options have fewer


def values_in(options: Mapping[str, Any]) -> dict[str, Value]:
    """Return the numbers, strings and vectors of numbers in a custom op's options.

    Raises:
        ValueError: the options are not a map, or damaged.
    """
    content = options.get("custom_options")
    if not isinstance(content, bytes) or not content:
        raise ValueError("no options")
    try:
        entries = flexbuffers.GetRoot(content).AsMap
        names = [key.AsKey for key in entries.Keys]
        found = {str(name): _value(entries[name]) for name in names}
    except (ArithmeticError, AttributeError, LookupError, TypeError, struct.error) as error:
        raise ValueError("options that are not a FlexBuffer map") from error
    return {name: value for name, value in found.items() if value is not None}


def numbers_in(options: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the numbers in a custom op's options, without other values.

    Raises:
        ValueError: the options are not a map, or damaged.
    """
    found = values_in(options)
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _value(entry: flexbuffers.Ref) -> Value | None:
    if entry.IsString or entry.IsKey:
        return str(entry.AsString if entry.IsString else entry.AsKey)
    if entry.IsTypedVector:
        numbers = entry.AsTypedVector
        is_short = len(numbers) <= _LONGEST
        is_whole = is_short and all(each.IsInt for each in numbers)
        return tuple(int(each.AsInt) for each in numbers) if is_whole else None
    if entry.IsFloat:
        return float(entry.AsFloat)
    if entry.IsBool:
        return int(entry.AsBool)
    return int(entry.AsInt) if entry.IsNumeric else None


def flexbuffer_of(**values: float | str | Sequence[int]) -> dict[str, Any]:
    """Return a custom op's options with these values."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            builder.Key(name)
            if isinstance(value, int | float | str):
                builder.Add(value)
            else:
                builder.TypedVectorFromElements(value)
    return {"custom_options": bytes(builder.Finish())}
