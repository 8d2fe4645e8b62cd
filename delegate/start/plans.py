# SPDX-License-Identifier: Apache-2.0
"""What was chosen for a graph that runs here wholly: a later start need not find it again.

A plan names the alternative of each node, and the form of them all. It is kept by all that they
follow from, but for the bytes of long constants: nodes are lowered anew, and so checked with their
weights. A plan is not used where that leads to another program than the one that it is of, nor
after a change of a file of this package or of what is known of the device.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from delegate import cache as disk_cache
from delegate.errors import Unsupported
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import Partition
from delegate.launch import Alternative
from delegate.options import Options
from delegate.runtime.sources import folder
from delegate.sandbox.trials import Free, Trial
from delegate.target import Target
from delegate.tuning.chooser import Chooser
from delegate.tuning.forms import Chosen

_SMALL_BYTES = 1024  # a constant that may be sizes or indices; weights are longer
_FEW_SCALES = 8


class Plan(NamedTuple):
    """What was chosen for a partition."""

    is_rewritten: bool  # whether it is of the nodes that passes made
    names: Sequence[str]  # of the alternatives, node by node
    form: str
    is_literal: bool
    key: str  # of Chosen

    @classmethod
    def of(cls, chosen: Chosen, rewritten: Partition) -> Plan:
        """Return the plan that leads to this; `rewritten`: the partition as passes left it."""
        steps = chosen.program.steps
        names = [step.alternative.name for step in steps]
        is_rewritten = [step.op for step in steps] == [node.op for node in rewritten.nodes]
        return cls(is_rewritten, names, chosen.form, chosen.is_literal, chosen.key)

    def taker(self) -> Callable[[Node, Sequence[Alternative]], Alternative]:
        """Return what takes the alternative of each node, in order; that raises Unsupported."""
        names = iter(self.names)

        def take(_: Node, alternatives: Sequence[Alternative]) -> Alternative:
            wanted = next(names, None)
            for each in alternatives:
                if each.name == wanted:
                    return each
            raise Unsupported(f"there is no alternative {wanted}")

        return take


class Plans:
    """The plans of the graph that was judged last."""

    def __init__(self, identity: str, options: Options, chooser: Chooser, trials: Free) -> None:
        """`identity`: of the device; `chooser`, `trials`: what else is known of it."""
        told = options.alternative, options.profiling, options.precision, options.passes
        self._facts = identity, told
        self._chooser, self._trials = chooser, trials
        self._nodes: tuple[Node, ...] = ()  # of the graph
        self._name = ""  # of the graph's plans in the cache
        self._plans: dict[str, Plan] = {}  # by batch
        self._left_out: frozenset[Trial] = frozenset()  # when they were loaded
        self._new: tuple[str, Plan] | None = None  # batch and plan, not kept yet
        self._wrong: set[str] = set()  # names of those that do not hold

    @property
    def are_known(self) -> bool:
        """Whether an earlier start found that all nodes run here."""
        return bool(self._plans) and self._are_used

    def judge(self, graph: Graph, target: Target, excluded: Sequence[str]) -> None:
        """Go on with the plans of this graph."""
        self._nodes, self._plans, self._new = (), {}, None
        if self._trials.repeats:
            rest = sorted(target.isa), replace(target, isa=frozenset()), excluded
            facts = repr((self._facts, rest, _structure(graph)))
            self._name = f"plans/{hashlib.sha256(facts.encode()).hexdigest()[:40]}"
            self._nodes, self._left_out = graph.nodes, self._trials.left_out
            self._plans = self._loaded()

    def of(self, partition: Partition, batch: int) -> Plan | None:
        """Return the plan of a partition, if it is the whole graph and there is one."""
        is_whole = partition.nodes == self._nodes
        return self._plans.get(str(batch)) if is_whole and self._are_used else None

    def note(self, partition: Partition, batch: int, plan: Plan) -> None:
        """Remember what was chosen for the whole graph, until nothing more is asked for it."""
        if partition.nodes == self._nodes:
            self._new = str(batch), plan

    def keep(self) -> None:
        """Keep what was noted last, unless a later start may measure something else."""
        (batch, plan), self._new = self._new or ("", None), None
        if plan is not None and self._chooser.is_settled:
            content = json.dumps([self._known(), {**self._loaded(), batch: plan}])
            disk_cache.store(self._name, content.encode())

    def forget(self) -> None:
        """Use no plan of the graph, nor of one that differs in its weights alone."""
        self._wrong.add(self._name)

    @property
    def _are_used(self) -> bool:
        return self._trials.left_out == self._left_out and self._name not in self._wrong

    def _loaded(self) -> dict[str, Plan]:
        return _unpacked(disk_cache.load(self._name), self._known())

    def _known(self) -> str:
        choices, left_out = self._chooser.state()[0], self._trials.left_out
        known = _code(), self._chooser.mode, sorted(choices.items()), sorted(left_out)
        return hashlib.sha256(repr(known).encode()).hexdigest()


def _unpacked(content: bytes | None, known: str) -> dict[str, Plan]:
    """Return the plans in a file, if as much was known when they were made."""
    try:
        then, plans = json.loads(content or b"")
        found = {batch: Plan(*plan) for batch, plan in plans.items()}
        are_names = all(isinstance(each.names, list) for each in found.values())
        return found if then == known and are_names else {}
    except (AttributeError, RecursionError, TypeError, ValueError):
        return {}


@cache
def _code() -> str:
    """Return a digest of the times and sizes of all files of code and kernels."""
    found = hashlib.sha256()
    for top in (Path(__file__).parents[1], folder()):
        for path, folders, files in os.walk(top):
            folders[:] = sorted({*folders} - {"__pycache__"})
            for name in sorted(files):
                status = os.stat(os.path.join(path, name))
                found.update(repr((path, name, status.st_size, status.st_mtime_ns)).encode())
    return found.hexdigest()


def _structure(graph: Graph) -> Hashable:
    """Return all of a graph but names and the bytes of long constants."""
    places: dict[Tensor | None, int] = {None: -1}

    def at(tensors: Sequence[Tensor | None]) -> list[int]:
        return [places.setdefault(tensor, len(places)) for tensor in tensors]

    nodes = [
        (
            (node.index, node.op, node.version, node.is_custom, repr(node.options)),
            (at(node.inputs), at(node.outputs), at(node.intermediates)),
            node.body and _structure(node.body),
        )
        for node in graph.nodes
    ]
    ends = at(graph.inputs), at(graph.outputs), graph.unkept, graph.is_called
    return nodes, ends, [_facts(tensor) for tensor in places if tensor is not None]


def _facts(tensor: Tensor) -> Hashable:
    data, ranges = tensor.data, tensor.ranges or ()
    quantization: Hashable = tensor.quantization
    if tensor.quantization is not None and len(tensor.quantization.scale) > _FEW_SCALES:
        quantization = len(tensor.quantization.scale), tensor.quantization.axis
    arrays = [each for each in (data, *ranges) if each is not None]
    return (
        (tensor.shape, tensor.dtype, quantization, tensor.kept, tensor.is_variable),
        (tensor.is_sparse, tensor.is_folded, tensor.blocks is None, data is None, len(ranges)),
        [each.tobytes() if each.nbytes <= _SMALL_BYTES else each.nbytes for each in arrays],
    )
