# SPDX-License-Identifier: Apache-2.0
"""Views of tensors in TFLite's memory, which TFLite may move, with fake C structures."""

from __future__ import annotations

import ctypes as C

import numpy as np
import pytest

from delegate.errors import AbiMismatch
from delegate.host.tflite import abi
from delegate.host.tflite.views import Views


class Memory:
    """A context with two tensors, of 4 and 2 bytes, and their memory."""

    def __init__(self) -> None:
        self.context = abi.TfLiteContext()
        self.arrays = [np.arange(4, dtype=np.uint8), np.arange(10, 12, dtype=np.uint8)]
        self.tensors = (abi.TfLiteTensor * 2)()
        self.move_array()
        for index, array in enumerate(self.arrays):
            self.move(index, array)
        self.views = Views(C.addressof(self.context), [0], [1])

    def move(self, index: int, array: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        self.arrays[index] = array
        self.tensors[index].data = array.ctypes.data
        self.tensors[index].bytes = array.nbytes

    def move_array(self) -> None:
        moved = (abi.TfLiteTensor * 2)()
        C.memmove(moved, self.tensors, C.sizeof(moved))
        C.memset(self.tensors, 0xFF, C.sizeof(moved))  # arbitrary: freed memory
        self.tensors = moved
        self.context.tensors = C.cast(moved, C.POINTER(abi.TfLiteTensor))

    def seen(self) -> list[list[int]]:
        inputs, outputs = self.views.now()
        return [array.tolist() for array in (*inputs, *outputs)]


def test_views_are_cached() -> None:
    memory = Memory()
    first = memory.views.now()
    assert memory.seen() == [[0, 1, 2, 3], [10, 11]]
    assert memory.views.now() is first
    memory.arrays[0][2] = 7
    assert memory.seen() == [[0, 1, 7, 3], [10, 11]]
    assert memory.views.now() is first


def test_views_follow_a_tensor_that_moves() -> None:
    memory = Memory()
    memory.views.now()
    memory.move(1, np.array([20, 21], np.uint8))
    assert memory.seen() == [[0, 1, 2, 3], [20, 21]]
    memory.move(0, memory.arrays[0][:3])  # shorter at the same address
    assert memory.seen() == [[0, 1, 2], [20, 21]]


def test_views_follow_the_array_of_tensors() -> None:
    memory = Memory()
    memory.views.now()
    memory.move_array()
    assert memory.seen() == [[0, 1, 2, 3], [10, 11]]
    memory.move(0, np.array([5], np.uint8))
    assert memory.seen() == [[5], [10, 11]]


def test_tensor_without_memory_is_an_error() -> None:
    memory = Memory()
    memory.views.now()
    memory.tensors[1].data = None
    for _ in range(2):
        with pytest.raises(AbiMismatch, match="tensor 1 has no memory"):
            memory.views.now()
