# SPDX-License-Identifier: Apache-2.0
"""Requests as bytes for one child: a large array that it was sent before is only named.

Requests of a start have the same weights: of the graph that is judged, of its partition, and of the
file's other graphs.
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
_MOST_BYTES = 1 << 30  # of arrays that a child keeps

_arrays: list[NDArray[Any]] = []  # in a child, by number


class RequestPickler:
    """What the parent knows of the arrays that a child has."""

    def __init__(self) -> None:
        # By place and form. One whose memory is gone may have left its place to another one.
        self._numbers: dict[object, tuple[int, weakref.ref[NDArray[Any]]]] = {}
        self._count = 0  # arrays that the child keeps
        self._bytes = 0  # of them

    def dumps(self, request: object) -> list[Buffer]:
        """Return a request as bytes, which the child gets before any later one's.

        Large arrays are parts of it where they lie: they are not copied.
        """
        if self._bytes > _MOST_BYTES:  # the child forgets them with the next first one
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
    """What a pickler writes to."""

    parts: list[Buffer]

    def write(self, part: Buffer) -> None:
        """Keep a part: a pickler gives what is large as it is, and else bytes that it made."""
        self.parts.append(part)


def _store_array(number: int, values: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    del _arrays[number:]
    _arrays.append(np.frombuffer(values, dtype).reshape(shape))
    return _arrays[-1]


def _stored_array(number: int) -> NDArray[Any]:
    return _arrays[number]
