# SPDX-License-Identifier: Apache-2.0
"""Identity of a constant's bytes, known without packing them.

A `pack` is a function of nothing but its closure: arrays of a file, numbers, frozen records. The
same code with equal closures packs the same bytes. So the weights of a layer at another input shape
are found on the device without packing them again. A record that contains sizes of the input shape
makes a different recipe: `Convolution.layer` has none.
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

# Computed arrays up to this size are compared by value, others by address.
_SMALL_BYTES = 1 << 14

_PLAIN = (int, str, bytes, type(None), type, np.dtype)


class Recipe:
    """How bytes are packed. Equal recipes give equal bytes while either exists.

    Attributes:
        arrays: the large arrays that are read.
    """

    __slots__ = ("_hash", "_key", "arrays")

    def __init__(self, key: Hashable, arrays: Iterable[NDArray[Any]]) -> None:
        self._key = key
        self._hash = hash(key)
        # Held so that no other array can reuse the address.
        self.arrays = tuple(arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


def recipe_of(pack: Callable[[], object]) -> Recipe | None:
    """Return the recipe of a constant; None if it cannot be determined."""
    arrays: list[NDArray[Any]] = []
    try:
        return Recipe(_key(pack, arrays), arrays)
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """The closure holds something mutable or unknown."""


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
        # A code object records its place in the file, so only the module is added.
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
