# SPDX-License-Identifier: Apache-2.0
"""Packed types, with several values per byte, as in files and TFLite's memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

BITS = {"int4": 4, "int2": 2}  # per value


def packed_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Return the packed size of a shape; the last byte may be partly used."""
    return -(-math.prod(shape) * BITS[dtype] // 8)


def unpacked(content: NDArray[Any], shape: tuple[int, ...], dtype: str) -> NDArray[np.int8]:
    """Return packed values; the first value of a byte is in its low bits.

    Raises:
        ValueError: the number of bytes does not match the shape.
    Source: tflite/kernels/internal/portable_tensor_utils.cc UnpackPackedIntToInt8
    """
    if content.size != packed_bytes(shape, dtype):
        raise ValueError(f"{content.size} bytes for {dtype} {'x'.join(map(str, shape)) or '()'}")
    bits = BITS[dtype]
    stored = content.reshape(-1).view(np.uint8)
    each = [stored << shift for shift in range(8 - bits, -1, -bits)]
    values = np.stack(each, axis=-1).view(np.int8) >> (8 - bits)
    return np.ascontiguousarray(values.reshape(-1)[: math.prod(shape)]).reshape(shape)


def packed(values: NDArray[Any], dtype: str) -> NDArray[np.uint8]:
    """Pack values, each an int8 in the type's range."""
    bits = BITS[dtype]
    flat = values.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    of_bytes = np.append(flat, np.zeros(-flat.size % (8 // bits), np.uint8)).reshape(-1, 8 // bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    content: NDArray[np.uint8] = np.bitwise_or.reduce(of_bytes << shifts, axis=1)
    return content
