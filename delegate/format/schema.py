# SPDX-License-Identifier: Apache-2.0
"""The schema of .tflite files and their metadata: names, numbers, field slots, defaults."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flatbuffers import number_types

FILE_IDENTIFIER = b"TFL3"
VERSION = 3  # Model.version; TFLite rejects every other

# Builtin codes up to here fit the deprecated 8-bit field as well.
LAST_SHORT_CODE = 127

_NUMPY_DTYPES = frozenset(
    {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)
_NUMBERS = ("bool", "float32", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)))
_NUMBER_FLAGS = {name: getattr(number_types, f"{name.capitalize()}Flags") for name in _NUMBERS}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    name: str  # as in the schema: "stride_w"
    slot: int  # index in the table's vtable
    kind: Literal["scalar", "string", "table", "vector"]
    flags: Any = None  # flatbuffers' number type of a scalar or vector element; else None
    default: Any = None  # of a scalar; a bool for a bool
    enum: str = ""  # class of its enum, if any
    # Class of the table it points to, or of the vector's tables; for a union, the enum's class.
    child: str = ""


# The enum of a union's class; the field of its name with "_type" contains the value.
UNIONS = {
    "array_indices": "SparseIndexVector",
    "array_segments": "SparseIndexVector",
    "builtin_options": "BuiltinOptions",
    "builtin_options2": "BuiltinOptions2",
    "details": "QuantizationDetails",
    "options": "ProcessUnitOptions",
}

# Ops whose options class is not named after the op.
_OPTIONS_OF_OP = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"), "RandomOptions"),
    **dict.fromkeys((f"REDUCE_{how}" for how in ("ALL", "ANY", "MAX", "MIN")), "ReducerOptions"),
    **dict.fromkeys(("MEAN", "REDUCE_PROD", "SUM"), "ReducerOptions"),
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}


@functools.cache
def _schema() -> dict[str, dict[str, dict[str, Any]]]:
    # make_schema.py writes schema.json. The other is metadata_schema.fbs of tflite-support, version
    # 1.5, limited to what is read here; their table names do not overlap.
    files = (Path(__file__).with_name(name) for name in ("metadata_schema.json", "schema.json"))
    parts = [json.loads(file.read_text()) for file in files]
    return {part: parts[0][part] | parts[1][part] for part in ("enums", "tables")}


@functools.cache
def enum_values(enum: str) -> dict[str, int]:
    """Return the numbers of an enum by name; tensor types by numpy's names."""
    members: dict[str, int] = _schema()["enums"][enum]
    if enum == "TensorType":
        return {name.lower(): value for name, value in members.items()}
    return members


@functools.cache
def enum_names(enum: str) -> dict[int, str]:
    """Return the names of an enum by number."""
    return {value: name for name, value in enum_values(enum).items()}


def builtin_op_numbers() -> dict[str, int]:
    """Return the number of every builtin op by its name."""
    return enum_values("BuiltinOperator")


def builtin_name(code: int) -> str:
    """Return a builtin op's name; "BUILTIN_999" for a code that the schema lacks."""
    return enum_names("BuiltinOperator").get(code, f"BUILTIN_{code}")


@functools.cache
def numpy_dtype(dtype: str) -> np.dtype[Any] | None:
    """Return a tensor type as stored in the file (little-endian); None: numpy lacks the type."""
    if dtype not in _NUMPY_DTYPES:
        return None
    # The round trip through text ("<f4") keeps a native type numpy's own.
    little_endian: np.dtype[Any] = np.dtype(np.dtype(dtype).newbyteorder("<").str)
    return little_endian


@functools.cache
def options_class(op: str) -> tuple[str, int, str] | None:
    """Return the class of a builtin op's options, its number, and the union it belongs to.

    None: the op has no options. The union is the operator's field: "builtin_options", or
    "builtin_options2" for ops added since the first one was full.
    """
    wanted = _OPTIONS_OF_OP.get(op, op.replace("_", "") + "Options").lower()
    for union in ("builtin_options", "builtin_options2"):
        for name, number in enum_values(UNIONS[union]).items():
            if name.lower() == wanted:
                return name, number, union
    return None


def union_class(field: Field, number: int) -> str | None:
    """Return the class of a union's table by its number.

    "" for NONE, whose table is not read; None for a number that the schema lacks.
    """
    name = enum_names(field.child).get(number)
    return "" if name == "NONE" else name


@functools.cache
def fields(table: str) -> dict[str, Field]:
    """Return the fields of a table class such as "Conv2DOptions" by name, in the schema's order."""
    return {name: _field(name, *parts) for name, parts in _schema()["tables"][table].items()}


def _field(name: str, slot: int, type_text: str, default: Any = None, enum: str = "") -> Field:
    first, _, rest = type_text.partition(" ")
    is_vector = first == "vector"
    kind, _, child = rest.partition(" ") if is_vector else (first, " ", rest)
    flags = _NUMBER_FLAGS.get(kind)
    if kind == "union":
        child = UNIONS[name]
    if is_vector:
        return Field(name, slot, "vector", flags, enum=enum, child=child)
    if flags is not None:
        return Field(name, slot, "scalar", flags, default, enum)
    return Field(name, slot, "string" if kind == "string" else "table", child=child)
