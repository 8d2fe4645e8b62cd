# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a verified model to write as C programs, and with which inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from delegate import Verdict
from delegate.inspect import Graph, infer, list_bans
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.faults.find import Suspect
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.faults.trial import NoFault
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.cut import Uncut, cut, part_name
from tflite_opencl.oracle.judge import Values, values_of
from tflite_opencl.verify.records import Check, InputSets, Verification

_SIMULATOR = "Oclgrind"  # its faults are accesses, which need no wrong result


class Suspects:
    """The suspects of a model."""

    def __init__(self, model: str, graph: Graph, runtime: Runtime, sets: InputSets) -> None:
        self._model, self._known = model, infer(graph)

        @cache
        def values(number: int) -> Values:
            return values_of(runtime, model, graph, sets.of(number))

        self._values: Callable[[int], Values] = values

    def of(self, found: Verification) -> Iterator[Suspect]:
        """Yield a verified model's suspects: one for the nodes of each wrong kernel, and others."""
        groups: dict[tuple[object, ...], list[Check]] = {}
        every = _SIMULATOR in found.device
        for check in found.checks:
            if every or (check.alone is not None and check.alone.is_beyond):
                launches = tuple((each.kernel, each.macros) for each in check.step.launches)
                key = check.step.op, check.step.alternative, launches
                groups.setdefault(key, []).append(check)
        for checks in groups.values():
            first, others = checks[0], [check.step.node for check in checks[1:]]
            nodes = [first.step.node, *first.with_nodes]
            more = f", and in nodes {', '.join(map(str, others))}" if others else ""
            yield self._suspect(nodes, first.number, more, [first.step.alternative], not every)
        yield from self.left(found.verdicts)
        yield from self._banned(found.checks)

    def left(self, verdicts: Sequence[Verdict]) -> Iterator[Suspect]:
        """Yield a node for each reason why nodes are not taken, as a build may have failed."""
        reasons: set[tuple[str, str]] = set()
        for verdict in verdicts:
            key = verdict.op, str(verdict.reason)
            if not verdict.is_taken and key not in reasons:
                reasons.add(key)
                yield self._suspect([verdict.node], 0, "", [], False)

    def _banned(self, checks: Sequence[Check]) -> Iterator[Suspect]:
        """Yield a node of each kind, for alternatives whose kernel files killed children."""
        files = frozenset(ban.trial.name for ban in list_bans() if ban.holds and ban.trial.name)
        kinds: set[tuple[str, str]] = set()
        for check in checks if files else ():
            key = check.step.op, check.step.alternative
            if key not in kinds:
                kinds.add(key)
                nodes = [check.step.node, *check.with_nodes]
                yield self._suspect(nodes, check.number, "", [], False, files)

    def _suspect(
        self,
        nodes: Sequence[int],
        number: int,
        more: str,
        alternatives: Sequence[str],
        is_wrong: bool,
        files: frozenset[str] = frozenset(),
    ) -> Suspect:
        first, last = min(nodes), max(nodes)
        name, op = part_name(first, last), self._known.nodes[last].op.lower()
        told = f"node {first}" if first == last else f"nodes {first} to {last}"
        return Suspect(
            f"{name}-{op}",
            f"{told} of {self._model}{more}",
            lambda: self._case(first, last, number),
            alternatives,
            files,
            is_wrong,
        )

    def _case(self, first: int, last: int, number: int) -> Candidate:
        """Return nodes with the inputs that the reference kernels give them; raises NoFault."""
        try:
            part, values = cut(self._known, first, last), self._values(number)
            return Candidate(part, [values(tensor) for tensor in part.inputs])
        except (Uncut, OneLineError) as error:
            raise NoFault(str(error)) from error
