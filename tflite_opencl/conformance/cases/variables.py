# SPDX-License-Identifier: Apache-2.0
"""Resource variables, which persist from one input set of a case to the next, and resets."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._rows import VERSIONS, step
from tflite_opencl.conformance.cases.recurrent import lstm, svdf
from tflite_opencl.models.build import (
    Array,
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    node,
    seeded,
    sizes,
    tensor,
    usual,
)

_KINDS = ("uint8", "int8", "16x8", "float32", "int32", "int64", "bool")
_SHAPES: tuple[Shape, ...] = ((), (7,), (2, 3, 5))


class _Model:
    """A graph under construction, of one type and shape; CALL_ONCE initialises its variables."""

    def __init__(self, kind: str, shape: Shape) -> None:
        self._dtype, self._shape = dtype_of(kind), shape
        self._rng = seeded("variables", kind, shape)
        self._begun: dict[str, Array] = {}
        self._nodes: list[Node] = []
        self.x = self._value()

    def variable(self, name: str, container: str = "") -> Tensor:
        """Return a handle of a new variable."""
        made, handle = _handle(name, container)
        self._nodes.append(made)
        whole = f"{container}/{name}"
        most = 2 if self._dtype == "bool" else 90
        values = np.asarray(self._rng.integers(0, most, self._shape))
        self._begun.setdefault(whole, values.astype(self._dtype))
        return handle

    def read(self, handle: Tensor) -> Tensor:
        """Return the variable's current value."""
        self._nodes.append(node("READ_VARIABLE", [handle], [self._value()]))
        return self._nodes[-1].outputs[0]

    def assign(self, handle: Tensor, value: Tensor) -> None:
        """Assign a value to the variable."""
        self._nodes.append(node("ASSIGN_VARIABLE", [handle, value], []))

    def joined(self, left: Tensor, right: Tensor) -> Tensor:
        """Return a value that depends on both, and is exact: floats are not summed."""
        op, options, version = "MAXIMUM", {}, VERSIONS.get(self._dtype, 1)
        if self._dtype == "bool":
            op = "LOGICAL_OR"
        elif self._dtype in ("int32", "int64"):
            op, options = "ADD", {"fused_activation_function": "NONE"}
        self._nodes.append(step(op, [left, right], [self._value()], options, version))
        return self._nodes[-1].outputs[0]

    def graph(self, *outputs: Tensor) -> Graph:
        """Return the graph, with variables initialised to constants."""
        body = _beginning(self._begun)
        once = node("CALL_ONCE", [], [], {"init_subgraph_index": 1})
        nodes = [dataclasses.replace(once, body=body), *self._nodes]
        return graph(nodes, [self.x], outputs)

    def _value(self) -> Tensor:
        # A single quantisation: variables have none, and store values unchanged.
        limits = (-1000, 1000) if self._dtype in ("int32", "int64") else None
        return usual(self._shape, self._dtype, limits=limits)


def _before(made: _Model) -> list[Tensor]:
    """The value assigned in the previous run."""
    held = made.variable("held")
    was = made.read(held)
    made.assign(held, made.x)
    return [was]


def _after(made: _Model) -> list[Tensor]:
    """The value assigned in this run, and the old one, which determine each other's next value."""
    held = made.variable("held")
    was = made.read(held)
    made.assign(held, made.joined(was, made.x))
    return [was, made.read(held)]


def _alone(made: _Model) -> list[Tensor]:
    """A variable that is never assigned."""
    return [made.joined(made.read(made.variable("held")), made.x)]


def _unseen(made: _Model) -> list[Tensor]:
    """A value that only the next run reads."""
    held = made.variable("held")
    was = made.read(held)
    made.assign(held, made.joined(was, made.x))
    return [was]


def _again(made: _Model) -> list[Tensor]:
    """Two assignments in a run: the second counts."""
    held = made.variable("held")
    was = made.read(held)
    made.assign(held, made.x)
    made.assign(held, made.joined(made.read(held), was))
    return [was]


def _exchanged(made: _Model) -> list[Tensor]:
    """Two variables that swap, one of which grows."""
    one, other = made.variable("one"), made.variable("other")
    first, second = made.read(one), made.read(other)
    made.assign(other, first)
    made.assign(one, made.joined(second, made.x))
    return [first, second]


def _begun_alike(made: _Model) -> list[Tensor]:
    """Three variables initialised by one graph, one of them constant."""
    held = [made.variable(name) for name in ("a", "b", "c")]
    was = [made.read(each) for each in held]
    made.assign(held[0], made.joined(was[1], made.x))
    made.assign(held[2], made.joined(was[0], was[2]))
    return was


def _two_handles(made: _Model) -> list[Tensor]:
    """Two handles of one variable."""
    reader, writer = made.variable("held"), made.variable("held")
    was = made.read(reader)
    made.assign(writer, made.joined(was, made.x))
    return [was, made.read(reader)]


def _containers(made: _Model) -> list[Tensor]:
    """Two variables with the same name, in two containers."""
    one, other = made.variable("held", "first"), made.variable("held", "second")
    was, seen = made.read(one), made.read(other)
    made.assign(other, made.joined(was, made.x))
    made.assign(one, seen)
    return [was, seen]


_FORMS: Mapping[str, Mapping[str, Callable[[_Model], list[Tensor]]]] = {
    "read_variable": {"before": _before, "before_and_after": _after, "alone": _alone},
    "assign_variable": {"unseen": _unseen, "again": _again, "exchanged": _exchanged},
    "call_once": {"three": _begun_alike},
    "var_handle": {"two_handles": _two_handles, "containers": _containers},
}


def cases() -> Iterator[Case]:
    """Yield the cases of the ops of resource variables."""
    for family, forms in _FORMS.items():
        for (name, make), kind, shape in itertools.product(forms.items(), _KINDS, _SHAPES):
            yield case(family, kind, f"{name}-{sizes(shape)}", _graph, make, kind, shape)


def behaviours() -> Iterator[Case]:
    """Yield the cases of resets and resizes, with variables of both kinds."""
    for name, kinds in (("variables", _KINDS), ("svdf", ("int8", "hybrid", "float32"))):
        for kind in kinds:
            yield _state(kind, name)
    yield from (_state(kind, "lstm") for kind in ("int8", "float32"))


def _state(kind: str, name: str) -> Case:
    made: Mapping[str, Callable[[], Graph]] = {
        "variables": lambda: _graph(_exchanged, kind, (2, 3)),
        "svdf": lambda: svdf(kind, (1, 7, 5, 1, 3)),
        "lstm": lambda: lstm(kind, (1, 1, 7, 5), "plain"),
    }
    full = f"behaviour/{kind}/state-{name}"
    return Case(full, "behaviour", kind, lambda: _beside(made[name]()), "state")


def _graph(make: Callable[[_Model], list[Tensor]], kind: str, shape: Shape) -> Graph:
    made = _Model(kind, shape)
    return made.graph(*make(made))


def _beside(of: Graph) -> Graph:
    """Return the graph with an independent node, whose input may be resized."""
    source = tensor((2, 3), name="beside")
    alone = node("ABS", [source], [tensor((2, 3))])
    return graph([*of.nodes, alone], [*of.inputs, source], [*of.outputs, *alone.outputs])


def _handle(name: str, container: str = "") -> tuple[Node, Tensor]:
    made = tensor((), "resource")
    return node("VAR_HANDLE", [], [made], {"container": container, "shared_name": name}), made


def _beginning(values: Mapping[str, Array]) -> Graph:
    """Return the graph that initialises variables, named CONTAINER/NAME, to these values."""
    nodes = []
    for whole, array in values.items():
        container, _, name = whole.partition("/")
        made, handle = _handle(name, container)
        nodes += [made, node("ASSIGN_VARIABLE", [handle, constant(array)], [])]
    return graph(nodes, [], [])
