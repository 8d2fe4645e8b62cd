# SPDX-License-Identifier: Apache-2.0
"""The options of custom ops that are a FlexBuffer: a map from names to numbers, both ways."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from flatbuffers import flexbuffers


def numbers_in(options: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the numbers of a custom op's options; without those that are none.

    Raises:
        ValueError: the options are no map, or damaged.
    """
    content = options.get("custom_options")
    if not isinstance(content, bytes) or not content:
        raise ValueError("no options")
    try:
        entries = flexbuffers.GetRoot(content).AsMap
        names = [key.AsKey for key in entries.Keys]
        found = {str(name): entries[name] for name in names}
        return {name: _number(entry) for name, entry in found.items() if _is_number(entry)}
    except (ArithmeticError, AttributeError, LookupError, TypeError, struct.error) as error:
        raise ValueError("options that are no FlexBuffer's map") from error


def _is_number(entry: flexbuffers.Ref) -> bool:
    return bool(entry.IsNumeric or entry.IsBool)


def _number(entry: flexbuffers.Ref) -> int | float:
    if entry.IsFloat:
        return float(entry.AsFloat)
    return int(entry.AsBool) if entry.IsBool else int(entry.AsInt)


def flexbuffer_of(**values: float) -> dict[str, Any]:
    """Return the options of a custom op that have these numbers."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            builder.Key(name)
            builder.Add(value)
    return {"custom_options": bytes(builder.Finish())}
