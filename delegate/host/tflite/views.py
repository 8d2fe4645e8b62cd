# SPDX-License-Identifier: Apache-2.0
"""Cached array views of a kernel's tensors in TFLite's memory."""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import AbiMismatch
from delegate.host.tflite import abi

Bytes = NDArray[np.uint8]


class Views:
    """The bytes of a context's tensors. Valid only during a call.

    Creating them in each call is measurable in networks of a few microseconds. Instead, only
    addresses are read in each call.
    """

    def __init__(self, context: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """`context`: the address of the TfLiteContext; the others are tensor indices."""
        self.context = context
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        # Address of the tensor table, which TFLite reallocates as it grows.
        self._array = C.c_void_p.from_address(context + abi.TfLiteContext.tensors.offset)
        self._array_seen: int | None = None
        # Each tensor's address and size in that table.
        self._fields: list[C.c_void_p | C.c_size_t] = []
        self._seen: list[int | None] = []
        self._made: tuple[tuple[Bytes, ...], tuple[Bytes, ...]] = ((), ())

    def now(self) -> tuple[tuple[Bytes, ...], tuple[Bytes, ...]]:
        """Return views of the inputs and outputs; the same objects unless addresses changed.

        Raises:
            AbiMismatch: a tensor has no memory.
        """
        is_there = self._array.value == self._array_seen
        if not (is_there and [field.value for field in self._fields] == self._seen):
            self._make()
        return self._made

    def _make(self) -> None:
        self._array_seen = None
        array = self._array.value or 0
        places = [array + i * C.sizeof(abi.TfLiteTensor) for i in (*self._inputs, *self._outputs)]
        self._fields = [
            kind.from_address(place + field.offset)
            for place in places
            for kind, field in (
                (C.c_void_p, abi.TfLiteTensor.data),
                (C.c_size_t, abi.TfLiteTensor.bytes),
            )
        ]
        self._seen = [field.value for field in self._fields]
        tensors = abi.TfLiteContext.from_address(self.context).tensors
        self._made = (
            tuple(tensor_bytes(tensors[index], index) for index in self._inputs),
            tuple(tensor_bytes(tensors[index], index) for index in self._outputs),
        )
        self._array_seen = array


def tensor_bytes(tensor: abi.TfLiteTensor, index: int) -> Bytes:
    """Return a tensor's bytes in TFLite's memory.

    Raises:
        AbiMismatch: it has no memory.
    """
    if not tensor.bytes:  # TFLite allocates nothing for an empty tensor
        return np.empty(0, np.uint8)
    if not tensor.data:
        raise AbiMismatch(f"tensor {index} has no memory")
    return np.frombuffer((C.c_ubyte * tensor.bytes).from_address(tensor.data), np.uint8)
