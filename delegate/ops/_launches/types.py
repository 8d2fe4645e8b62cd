# SPDX-License-Identifier: Apache-2.0
"""OpenCL C types of tensor elements, for arithmetic and for copies."""

from __future__ import annotations

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import element_type

# Types for arithmetic; a bool is one byte, 0 or 1.
ELEM = {
    "uint8": "uchar",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "int64": "uint2",  # two words, the low one first: `long` is not available on every device
    "float32": "float",
    "bool": "uchar",
}
# Types for copies, by width.
_BY_BYTES = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}
WIDEST_BYTES = max(_BY_BYTES)
_LARGEST_ELEMENT = 8


def type_of_bytes(count: int) -> str:
    """Return the unsigned type of 1, 2, 4, 8 or 16 bytes."""
    return _BY_BYTES[count]


def copy_type(tensor: Tensor) -> str:
    """Return the unsigned type as wide as the tensor's elements.

    Raises:
        Unsupported: a type without a fixed size, or wider than 8 bytes.
    """
    try:
        dtype = element_type(tensor.dtype)
    except TypeError:
        raise Unsupported(f"{tensor.dtype}: only types of a fixed size") from None
    if dtype.hasobject or dtype.itemsize > _LARGEST_ELEMENT or dtype.itemsize not in _BY_BYTES:
        raise Unsupported(f"{tensor.dtype}: only types of 1, 2, 4 or 8 bytes")
    return type_of_bytes(dtype.itemsize)
