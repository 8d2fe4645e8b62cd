# SPDX-License-Identifier: Apache-2.0
"""Pickles requests for one child; large arrays that it already has are sent by number.

Requests of a start share weights: those of the graph, of its partitions, and of the file's other
graphs.
"""

from __future__ import annotations

import copyreg
import pickle
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.guard.children.channel import Buffer

_LARGE_BYTES = 1 << 16
_MOST_BYTES = 1 << 30  # of arrays stored in a child

_arrays: list[NDArray[Any]] = []  # in a child, by number


class RequestPickler:
    """The parent's record of the arrays that a child has."""

    def __init__(self) -> None:
        # By address and layout. The weak reference detects that an address was reused.
        self._numbers: dict[object, tuple[int, weakref.ref[NDArray[Any]]]] = {}
        self._count = 0  # arrays stored in the child
        self._bytes = 0  # of them

    def dumps(self, request: object) -> list[Buffer]:
        """Return a pickled request; requests must be sent in the order they are pickled.

        Large arrays are separate parts that are not copied.
        """
        if self._bytes > _MOST_BYTES:  # the child drops them when numbering restarts
            self._numbers, self._count, self._bytes = {}, 0, 0
        file = _PartWriter([])
        pickler = pickle.Pickler(file, protocol=5)
        pickler.dispatch_table = {**copyreg.dispatch_table, np.ndarray: self._reduce}
        pickler.dump(request)
        return file.parts

    def _reduce(self, array: NDArray[Any]) -> Any:
        if array.nbytes < _LARGE_BYTES or array.dtype.kind not in "biuf":
            return array.__reduce_ex__(5)
        place = array.__array_interface__["data"][0]
        key = place, array.dtype.str, array.shape, array.strides
        number, is_there = self._numbers.get(key, (0, None))
        if is_there is not None and is_there() is not None:
            return _stored_array, (number,)
        owner = array.base if isinstance(array.base, np.ndarray) else array
        self._numbers[key] = self._count, weakref.ref(owner)
        self._count, self._bytes = self._count + 1, self._bytes + array.nbytes
        values = pickle.PickleBuffer(np.ascontiguousarray(array).data)
        return _store_array, (self._count - 1, values, array.dtype.str, array.shape)


@dataclass(frozen=True, slots=True)
class _PartWriter:
    """The file object of a pickler."""

    parts: list[Buffer]

    def write(self, part: Buffer) -> None:
        """Append a part: a pickler passes large objects uncopied, and else new bytes."""
        self.parts.append(part)


def _store_array(number: int, values: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    del _arrays[number:]
    _arrays.append(np.frombuffer(values, dtype).reshape(shape))
    return _arrays[-1]


def _stored_array(number: int) -> NDArray[Any]:
    return _arrays[number]
