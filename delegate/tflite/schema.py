# SPDX-License-Identifier: Apache-2.0
"""The .tflite schema, taken from the generated classes of the `tflite` package.

Names, numbers, field slots and defaults only: no file is read or written here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from flatbuffers import number_types

FILE_IDENTIFIER = b"TFL3"
VERSION = 3  # Model.version; TFLite refuses every other

# Builtin codes up to here fit the deprecated 8-bit field as well.
LAST_SHORT_CODE = 127

_NUMPY_DTYPES = frozenset(
    {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    name: str  # as the schema spells it: "stride_w"
    slot: int  # position in the table's vtable
    kind: Literal["scalar", "string", "table", "vector"]
    flags: Any = None  # flatbuffers' number type of a scalar or of a vector's numbers; else None
    default: Any = None  # of a scalar; a bool for a bool
    enum: str = ""  # class of the enum its numbers belong to
    # Class of the table it points to, or of the vector's tables; of a union the enum's class.
    child: str = ""


# The generated Python classes keep an enum field's number but not which enum it is: this table is
# the schema's, by field name (the names do not clash among the 8 and 32 bit fields).
_ENUM_OF_FIELD = {
    "algorithm": "RngAlgorithm",
    "combiner": "CombinerType",
    "compare_type": "StablehloComparisonType",
    "comparison_direction": "StablehloComparisonDirection",
    "composite_attributes_format": "CustomOptionsFormat",
    "fused_activation_function": "ActivationFunctionType",
    "idx_out_type": "TensorType",
    "in_data_type": "TensorType",
    "kernel_type": "LSTMKernelType",
    "key_dtype": "TensorType",
    "mode": "MirrorPadMode",
    "out_data_type": "TensorType",
    "out_type": "TensorType",
    "output_type": "TensorType",
    "padding": "Padding",
    "precision_config": "StablehloPrecisionConfig",
    "quantized_bias_type": "TensorType",
    "reduce_function": "ReduceWindowFunction",
    "type": "LSHProjectionType",
    "value_dtype": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}

# The enum that says which class a union's table has: the field of its name with "_type" has it.
UNIONS = {
    "array_indices": "SparseIndexVector",
    "array_segments": "SparseIndexVector",
    "builtin_options": "BuiltinOptions",
    "builtin_options2": "BuiltinOptions2",
    "details": "QuantizationDetails",
}

# Ops whose options class does not have the op's own name.
_OPTIONS_OF_OP = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SUM": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}


@functools.cache
def _module(name: str) -> ModuleType:
    # NOTE: importing `tflite` itself loads all its 180 modules; one of them is found and run here
    # without its package, which is enough because only class definitions are wanted.
    package = importlib.util.find_spec("tflite")
    if package is None or package.submodule_search_locations is None:
        raise ModuleNotFoundError("No module named 'tflite': pip install tflite", name="tflite")
    places = list(package.submodule_search_locations)
    spec = importlib.machinery.PathFinder.find_spec(name, places)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"the tflite package has no module {name!r}", name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def enum_values(enum: str) -> dict[str, int]:
    """Return the numbers of an enum by name; tensor types by the name numpy has for them."""
    members = {
        name: value
        for name, value in vars(getattr(_module(enum), enum)).items()
        if not name.startswith("_")
    }
    if enum == "TensorType":
        return {name.lower(): value for name, value in members.items()}
    return members


@functools.cache
def enum_names(enum: str) -> dict[int, str]:
    """Return the names of an enum by number."""
    return {value: name for name, value in enum_values(enum).items()}


def builtin_name(code: int) -> str:
    """Return a builtin op's name; "BUILTIN_999" for a code that the schema lacks."""
    return enum_names("BuiltinOperator").get(code, f"BUILTIN_{code}")


@functools.cache
def numpy_dtype(dtype: str) -> np.dtype[Any] | None:
    """Return a tensor type as the file stores it (little-endian); None: numpy has no such type."""
    if dtype not in _NUMPY_DTYPES:
        return None
    # By way of the text ("<f4"), a native type stays numpy's own.
    little_endian: np.dtype[Any] = np.dtype(np.dtype(dtype).newbyteorder("<").str)
    return little_endian


@functools.cache
def options_class(op: str) -> tuple[str, int, str] | None:
    """Return the class of a builtin op's options, its number, and the union it belongs to.

    None: the op has no options. The union is the operator's field: "builtin_options", or
    "builtin_options2" for ops added since the first one was full.
    """
    wanted = _OPTIONS_OF_OP.get(op, op.replace("_", "") + "Options").lower()
    for union, enum in (
        ("builtin_options", "BuiltinOptions"),
        ("builtin_options2", "BuiltinOptions2"),
    ):
        for name, number in enum_values(enum).items():
            if name.lower() == wanted:
                return name, number, union
    return None


class _Recorded(Exception):
    """Ends a recorded accessor before it reads values that do not exist."""


class _Recorder:
    """Stands for a flatbuffers table and notes how a generated accessor reads it."""

    Pos = 0
    Bytes = b""

    def __init__(self, present: bool) -> None:
        self.present = present
        self.slot = 0
        self.is_vector = False
        self.flags: Any = None
        self.kind: Literal["scalar", "string", "table"] = "scalar"

    def Offset(self, vtable_offset: int) -> int:
        # A vtable opens with two 16-bit sizes, then has 16 bits a slot.
        self.slot = (vtable_offset - 4) // 2
        return 1 if self.present else 0

    def Vector(self, offset: int) -> int:
        self.is_vector = True
        return 0

    def Get(self, flags: Any, offset: int) -> int:
        self.flags = flags
        raise _Recorded

    def String(self, offset: int) -> bytes:
        self.kind = "string"
        raise _Recorded

    def Indirect(self, offset: int) -> int:
        self.kind = "table"
        raise _Recorded

    def Union(self, table: Any, offset: int) -> None:
        self.kind = "table"
        raise _Recorded


@functools.cache
def fields(table: str) -> dict[str, Field]:
    """Return the fields of a table class such as "Conv2DOptions" by name, in the schema's order."""
    if table == "OperatorCode":
        # The package's accessor hides which of the two codes the file has.
        return {
            field.name: field
            for field in (
                Field("deprecated_builtin_code", 0, "scalar", number_types.Int8Flags, 0),
                Field("custom_code", 1, "string"),
                Field("version", 2, "scalar", number_types.Int32Flags, 1),
                Field("builtin_code", 3, "scalar", number_types.Int32Flags, 0),
            )
        }
    cls = getattr(_module(table), table)
    found = {}
    for accessor_name, accessor in vars(cls).items():
        base = re.sub(r"(AsNumpy|Length|IsNone)$", "", accessor_name)
        is_extra = base != accessor_name and base in vars(cls)
        # Class methods have no code of their own, so only `Init` is left besides the accessors.
        if is_extra or accessor_name == "Init" or not hasattr(accessor, "__code__"):
            continue
        field = _record(cls, accessor_name, accessor)
        found[field.name] = field
    return found


def _record(cls: Any, accessor_name: str, accessor: Any) -> Field:
    # A vector's accessor takes the position to read.
    arguments = [0] * (accessor.__code__.co_argcount - 1)
    recorder = _Recorder(present=True)
    reading = cls()
    reading._tab = recorder
    with contextlib.suppress(_Recorded):
        accessor(reading, *arguments)
    reading._tab = _Recorder(present=False)
    default = accessor(reading, *arguments)

    name = re.sub(r"(?<!^)(?=[A-Z])", "_", accessor_name).lower()
    is_enum = cls.__name__.endswith("Options") and recorder.flags is not number_types.Int64Flags
    enum = _ENUM_OF_FIELD.get(name, "") if is_enum else ""
    child = UNIONS.get(name, "") or _child_class(accessor) if recorder.kind == "table" else ""
    if recorder.is_vector:
        return Field(name, recorder.slot, "vector", recorder.flags, enum=enum, child=child)
    if recorder.kind != "scalar":
        return Field(name, recorder.slot, recorder.kind, child=child)
    return Field(name, recorder.slot, "scalar", recorder.flags, default, enum)


def _child_class(accessor: Any) -> str:
    # The accessor imports it: `from tflite.Tensor import Tensor`.
    (module,) = (name for name in accessor.__code__.co_names if name.startswith("tflite."))
    return str(module).removeprefix("tflite.")
