# SPDX-License-Identifier: Apache-2.0
"""An operator's options by the schema's field tables; knows no op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatbuffers import number_types

from delegate.tflite import schema
from delegate.tflite.table import Table


def options_of(operator: Table, op: str) -> Mapping[str, Any]:
    """Return the options of a builtin op by name; those that the file leaves out by default."""
    options_class = schema.options_class(op)
    if options_class is None:
        return {}
    kind, number, union = options_class
    # TFLite ignores a table of another op's class, too.
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
