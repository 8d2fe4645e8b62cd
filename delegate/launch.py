# SPDX-License-Identifier: Apache-2.0
"""The frozen records that cross from ops to compiler to runtime.

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


@dataclass(frozen=True, eq=False)  # without slots: the runtime refers to it weakly
class Constant:
    """Bytes the kernels read: packed when they are uploaded, never during a verdict."""

    size_bytes: int
    pack: Callable[[], NDArray[Any]]  # -> exactly size_bytes bytes


# What kernels read as macros: ints, or a tensor or constant, which give their byte offset.
Params = dict[str, int | Tensor | Constant]
# What kernels are built with: macros of literals.
Defines = dict[str, int | str]
_TEMPORARY = -2  # an index of no tensor that is in a file or may come into one


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel run: what it computes is `params`, how it is built is `defines`."""

    file: str  # stem of the .cl file
    kernel: str  # function in it
    tiles: int  # work-groups; a tile is what one work-group computes
    group_items: int  # work-items wanted a work-group; the kernel's own limit may lower it
    params: Mapping[str, int | Tensor | Constant]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]  # the node's outputs and temporaries
    defines: Mapping[str, int | str] = field(default_factory=dict)  # compile-time macros
    # Whether the ints of `params` are literals and no loads: then no other launch has its program.
    is_specialised: bool = False

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The constants that it reads, each once."""
        found = (value for value in self.params.values() if isinstance(value, Constant))
        return tuple(dict.fromkeys(found))

    @property
    def constant_bytes(self) -> int:
        """The bytes of these."""
        return sum(constant.size_bytes for constant in self.constants)

    def fields(self) -> dict[str, str]:
        """Return the macros of `params`: a load from the field's place, or an int's value."""
        return {
            name.upper(): _literal(value)
            if self.is_specialised and isinstance(value, int)
            else f"(params[{place}])"
            for place, (name, value) in enumerate(self.params.items())
        }

    def reading(self, others: Mapping[Tensor, Tensor]) -> Launch:
        """Return the same that reads other tensors in the place of these."""
        if others.keys().isdisjoint(self.reads):
            return self
        params = {
            name: others.get(value, value) if isinstance(value, Tensor) else value
            for name, value in self.params.items()
        }
        reads = tuple(others.get(tensor, tensor) for tensor in self.reads)
        return replace(self, params=params, reads=reads)

    def specialised(self) -> Launch:
        """Return the same with its numbers as literals."""
        return replace(self, is_specialised=True)


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """What a node requires of the values of an input: on others TFLite's kernel fails when it runs.

    So does a run of the delegate (delegate/run/requirements.py). Kernels must be safe on any
    values.
    """

    tensor: Tensor
    subject: str  # for people: "an index"
    rule: str  # what is wrong with a value that breaks it: "outside of 5 elements"
    least: int | None = None  # None: no limit
    most: int | tuple[int, ...] | None = None  # a tuple: of each element of the last dimension
    excluded: int | None = None

    def broken_by(self, values: NDArray[Any]) -> Any:
        """Return a value that breaks it; None: there is none.

        Shapes:
            values: the tensor's, or more dimensions before
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
    """One way to run a node. Without launches it is a view: the output is the input's bytes."""

    name: str  # for people and for tune: "tiled 4x32", "plain"
    launches: tuple[Launch, ...]
    view: tuple[Tensor, Tensor] | None = None  # (input, output) that share their bytes
    # (input, output): the first launch copies the one to the other, and no other reads the input.
    # In place, where nobody needs the input any more, that launch is left out.
    copied: tuple[Tensor, Tensor] | None = None
    requirements: tuple[Requirement, ...] = ()  # the same in all alternatives of a node

    def specialised(self) -> Alternative:
        """Return the same with the numbers of every launch as literals."""
        return replace(self, launches=tuple(launch.specialised() for launch in self.launches))


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node of a program and the alternative it runs as."""

    node_index: int
    op: str
    alternative: Alternative
    names: tuple[str, ...] = ()  # of all alternatives that the node has, this one included


@dataclass(frozen=True, slots=True)
class NodeAlternatives:
    """The alternatives that a node has on a device, and the one that runs."""

    node: int  # index in the file, which is TFLite's node index
    op: str  # TFLite's name, or the delegate's own for a node that a pass made of several
    names: tuple[str, ...]  # the one expected to be fastest comes first, the plain one last
    taken: str


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All that the runtime needs to run one partition."""

    steps: tuple[Step, ...]
    inputs: tuple[Tensor, ...]  # copied in before a run
    outputs: tuple[Tensor, ...]  # copied out after it
    # The last of the outputs, which nobody reads but `Requirement`s.
    watched: tuple[Tensor, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch in execution order."""
        return tuple(launch for step in self.steps for launch in step.alternative.launches)

    def roots(self) -> dict[Tensor, Tensor]:
        """Return, for each tensor that is a view of another one, the tensor whose bytes it has."""
        found: dict[Tensor, Tensor] = {}
        for step in self.steps:
            if step.alternative.view is not None:
                source, result = step.alternative.view
                found[result] = found.get(source, source)
        return found

    def specialised(self) -> Program:
        """Return the same with the numbers of every launch as literals."""
        steps = (replace(s, alternative=s.alternative.specialised()) for s in self.steps)
        return replace(self, steps=tuple(steps))


def constants_of(launches: Iterable[Launch]) -> tuple[Constant, ...]:
    """Return the constants that launches read, each once, in the order of the launches."""
    return tuple(dict.fromkeys(constant for each in launches for constant in each.constants))


def _literal(value: int) -> str:
    # In C the least int is no literal: -2147483648 is the negative of a long.
    return f"({value})" if value > -(2**31) else "(-2147483647 - 1)"


def temporary(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return a tensor that lives between the launches of one alternative, and is no file's.

    Some launch writes it before others read it. Whoever compares what alternatives give looks at
    outputs alone, so one may have temporaries that another has not.
    """
    return Tensor(_TEMPORARY, name, shape, dtype)


def is_temporary(tensor: Tensor) -> bool:
    """Whether it is of `temporary`."""
    return tensor.index == _TEMPORARY


def size_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's values, dense.

    Raises:
        TypeError: the dtype has no fixed size (strings).
    """
    if tensor.dtype in BITS:
        return packed_bytes(tensor.shape, tensor.dtype)
    return math.prod(tensor.shape) * element_type(tensor.dtype).itemsize


def is_empty(tensor: Tensor) -> bool:
    """Whether a tensor of a type of fixed size has no elements."""
    return 0 in tensor.shape and tensor.dtype not in ("string", "resource", "variant")


def storage_type(dtype: str) -> np.dtype[Any]:
    """Return NumPy's type of what a tensor is stored as: bytes, where several values share one.

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
        Unsupported: there is none; the last reason, which is the plain one's.
    """
    reason: str | None = None
    for alternative in alternatives:
        reason = check(alternative)
        if reason is None:
            return alternative
    raise Unsupported(reason or "no way to run it")
