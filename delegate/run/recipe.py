# SPDX-License-Identifier: Apache-2.0
"""What a constant's bytes follow from, known without packing them.

A `pack` is a function that reads what it closes over and nothing else: arrays of a file, numbers,
frozen records. Two with the same code that close over equals make the same bytes. So the weights of
another shape of a layer are found on the device without being packed again. A record with sizes
of the shape makes another recipe: `Convolution.layer` has none.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.plan.contents import owner_of

# Arrays that were computed are compared by their bytes up to this, others by place.
_SMALL_BYTES = 1 << 14

_PLAIN = (int, str, bytes, type(None), type, np.dtype)


class Recipe:
    """How bytes are made. Equal recipes make equal bytes while either exists.

    Attributes:
        arrays: the long ones that are read.
    """

    __slots__ = ("_hash", "_key", "arrays")

    def __init__(self, key: Hashable, arrays: Iterable[NDArray[Any]]) -> None:
        self._key = key
        self._hash = hash(key)
        # Held, so that no other array comes to lie at the place by which one is known.
        self.arrays = tuple(arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


def recipe_of(pack: Callable[[], object]) -> Recipe | None:
    """Return what a constant's bytes follow from; None where that cannot be told."""
    arrays: list[NDArray[Any]] = []
    try:
        return Recipe(_key(pack, arrays), arrays)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """Something is read that may change, or of which nothing is known."""


def _key(value: object, arrays: list[NDArray[Any]]) -> Hashable:
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, float | np.generic):
        return type(value), np.asarray(value).tobytes()  # 0.0 equals -0.0, and NaN not itself
    if isinstance(value, np.ndarray):
        return _array_key(value, arrays)
    if isinstance(value, MethodType):
        return value.__func__.__qualname__, _key(value.__self__, arrays)
    if isinstance(value, functools.partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, FunctionType):
        # A code object knows its place in its file, so the module alone is missing.
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = (value.__defaults__, value.__kwdefaults__, *cells)
        return value.__module__, value.__code__, tuple(_key(part, arrays) for part in parts)
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(value, tuple | frozenset):
        return type(value), tuple(_key(part, arrays) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise _UnknownError
        parts = tuple(getattr(value, field.name) for field in dataclasses.fields(value))
        return type(value), tuple(_key(part, arrays) for part in parts)
    raise _UnknownError


def _array_key(array: NDArray[Any], arrays: list[NDArray[Any]]) -> Hashable:
    form = (array.dtype.str, array.shape)
    if array.nbytes <= _SMALL_BYTES and isinstance(owner_of(array), np.ndarray):
        return form, array.tobytes()
    arrays.append(array)
    return form, array.strides, array.__array_interface__["data"][0]
