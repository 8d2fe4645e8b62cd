# SPDX-License-Identifier: Apache-2.0
"""Frozen records passed from ops to planning: launches, alternatives, schedules.

Nothing here touches OpenCL: a launch names a kernel, it does not hold one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.graph.packed import BITS, packed_bytes


@dataclass(frozen=True, eq=False)  # without slots: weakly referenced at run time
class Constant:
    """Bytes that kernels read: packed on upload, never during a verdict."""

    size_bytes: int
    pack: Callable[[], NDArray[Any]]  # -> exactly size_bytes bytes


# What kernels read through macros: ints, or tensors and constants, given as byte offsets.
Params = dict[str, int | Tensor | Constant]
# Build-time macros of kernels, with constant values.
Defines = dict[str, int | str]
_TEMPORARY = -2  # an index that no tensor of a file has


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel launch: `params` are its arguments, `defines` its build-time macros."""

    file: str  # stem of the .cl file
    kernel: str  # function in it
    tiles: int  # work-groups; a tile is what one work-group computes
    group_items: int  # requested work-group size; the kernel's own limit may lower it
    params: Mapping[str, int | Tensor | Constant]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]  # the node's outputs and temporaries
    defines: Mapping[str, int | str] = field(default_factory=dict)  # compile-time macros
    # Whether the ints of `params` are constants in the source: then no other launch shares it.
    is_specialised: bool = False

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The distinct constants that it reads."""
        found = (value for value in self.params.values() if isinstance(value, Constant))
        return tuple(dict.fromkeys(found))

    @property
    def constant_bytes(self) -> int:
        """Total size of these."""
        return sum(constant.size_bytes for constant in self.constants)

    def fields(self) -> dict[str, str]:
        """Return the macros of `params`: a load of the field, or an int's value."""
        return {
            name.upper(): _literal(value)
            if self.is_specialised and isinstance(value, int)
            else f"(params[{place}])"
            for place, (name, value) in enumerate(self.params.items())
        }

    def reading(self, others: Mapping[Tensor, Tensor]) -> Launch:
        """Return a copy that reads other tensors in place of these."""
        if others.keys().isdisjoint(self.reads):
            return self
        params = {
            name: others.get(value, value) if isinstance(value, Tensor) else value
            for name, value in self.params.items()
        }
        reads = tuple(others.get(tensor, tensor) for tensor in self.reads)
        return replace(self, params=params, reads=reads)

    def specialised(self) -> Launch:
        """Return a specialised copy, with its parameters as constants."""
        return replace(self, is_specialised=True)


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """A condition on an input's values: on others TFLite's kernel fails at run time.

    So does a run of the delegate (delegate/run/requirements.py). Kernels must be memory-safe for
    all values.
    """

    tensor: Tensor
    subject: str  # for messages: "an index"
    rule: str  # the violation, for messages: "outside of 5 elements"
    least: int | None = None  # None: no limit
    most: int | tuple[int, ...] | None = None  # a tuple: per element of the last dimension
    excluded: int | None = None

    def broken_by(self, values: NDArray[Any]) -> Any:
        """Return a value that violates it; None: there is none.

        Shapes:
            values: the tensor's, optionally with more leading dimensions
        """
        breaks = np.zeros(values.shape, np.bool_)
        if self.least is not None:
            breaks |= values < self.least
        if self.most is not None:
            breaks |= values > np.array(self.most)
        if self.excluded is not None:
            breaks |= values == self.excluded
        return values[breaks][0] if breaks.any() else None


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One implementation of a node. Without launches it is a view: the output aliases the input."""

    name: str  # for messages and tuning: "tiled 4x32", "plain"
    launches: tuple[Launch, ...]
    view: tuple[Tensor, Tensor] | None = None  # (input, output) that share memory
    # (input, output): the first launch copies input to output, and no other launch reads the input.
    # If the input is dead afterwards, the launch is omitted and the output is in place.
    copied: tuple[Tensor, Tensor] | None = None
    requirements: tuple[Requirement, ...] = ()  # the same in all alternatives of a node

    def specialised(self) -> Alternative:
        """Return a copy with every launch specialised."""
        return replace(self, launches=tuple(launch.specialised() for launch in self.launches))


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node of a schedule and its chosen alternative."""

    node_index: int
    op: str
    alternative: Alternative
    names: tuple[str, ...] = ()  # of all alternatives of the node


@dataclass(frozen=True, slots=True)
class NodeAlternatives:
    """The alternatives of a node on a device, and the chosen one."""

    node: int  # index in the file, which is TFLite's node index
    op: str  # TFLite's name, or the delegate's own for a fused node
    names: tuple[str, ...]  # the one expected to be fastest first, the fallback last
    taken: str


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The launches of one partition in order, before memory is planned."""

    steps: tuple[Step, ...]
    inputs: tuple[Tensor, ...]  # copied in before a run
    outputs: tuple[Tensor, ...]  # copied out after it
    # The trailing outputs, which are read only by `Requirement`s.
    watched: tuple[Tensor, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches in execution order."""
        return tuple(launch for step in self.steps for launch in step.alternative.launches)

    def roots(self) -> dict[Tensor, Tensor]:
        """Return, for each view, the tensor whose memory it shares."""
        found: dict[Tensor, Tensor] = {}
        for step in self.steps:
            if step.alternative.view is not None:
                source, result = step.alternative.view
                found[result] = found.get(source, source)
        return found

    def specialised(self) -> Schedule:
        """Return a copy with every launch specialised."""
        steps = (replace(s, alternative=s.alternative.specialised()) for s in self.steps)
        return replace(self, steps=tuple(steps))


def constants_of(launches: Iterable[Launch]) -> tuple[Constant, ...]:
    """Return the distinct constants that launches read, in order."""
    return tuple(dict.fromkeys(constant for each in launches for constant in each.constants))


def _literal(value: int) -> str:
    # C has no literal for the least int: -2147483648 is the negation of a long.
    return f"({value})" if value > -(2**31) else "(-2147483647 - 1)"


def temporary(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return a tensor that lives between the launches of one alternative.

    A launch must write it before others read it. Comparisons of alternatives cover outputs only,
    so alternatives may have different temporaries.
    """
    return Tensor(_TEMPORARY, name, shape, dtype)


def is_temporary(tensor: Tensor) -> bool:
    """Whether it was made by `temporary`."""
    return tensor.index == _TEMPORARY


def size_bytes(tensor: Tensor) -> int:
    """Return the size of a tensor's values, dense.

    Raises:
        TypeError: the dtype has no fixed size (strings).
    """
    if tensor.dtype in BITS:
        return packed_bytes(tensor.shape, tensor.dtype)
    return math.prod(tensor.shape) * element_type(tensor.dtype).itemsize


def is_empty(tensor: Tensor) -> bool:
    """Whether a tensor of a fixed-size type has no elements."""
    return 0 in tensor.shape and tensor.dtype not in ("string", "resource", "variant")


def storage_type(dtype: str) -> np.dtype[Any]:
    """Return NumPy's storage type of a tensor: bytes for packed types.

    Raises:
        TypeError: the dtype has no fixed size (strings).
    """
    return np.dtype(np.uint8) if dtype in BITS else element_type(dtype)


def element_type(dtype: str) -> np.dtype[Any]:
    """Return NumPy's own type of a tensor's elements.

    Raises:
        TypeError: it has none. Packages such as ml_dtypes add some, with another layout than
            TFLite's.
    """
    found = np.dtype(dtype)
    if found.isbuiltin == 2:
        raise TypeError(f"NumPy has no {dtype} of its own")
    return found


def first_that_runs(
    alternatives: Iterable[Alternative], check: Callable[[Alternative], str | None]
) -> Alternative:
    """Return the first alternative without a reason against it.

    Raises:
        Unsupported: there is none; with the last reason, which is the fallback's.
    """
    reason: str | None = None
    for alternative in alternatives:
        reason = check(alternative)
        if reason is None:
            return alternative
    raise Unsupported(reason or "no way to run it")
