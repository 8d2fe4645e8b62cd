# SPDX-License-Identifier: Apache-2.0
"""Parses answers into verdicts, and into plans with their programs and constants.

An answer is bytes: a line with the reasons why kernels were left out and the error that ended
planning, if any; then the plan. Subclasses obtain the bytes.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from delegate.errors import DeviceError, KilledChild, TooLarge, Unsupported
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.graph.verdict import KilledReason, Verdict
from delegate.guard.cache import keep_digests
from delegate.guard.isolation.backend import AnyConstants, AnyDevice, backend_of
from delegate.options import Options
from delegate.plan.codec import TunedPlan, UnreadablePlan, decode
from delegate.plan.contents import ContentSource
from delegate.plan.key import graph_facts, key_of, partition_facts, target_facts
from delegate.plan.record import PartitionPlan, Region
from delegate.plan.tuning.chooser import OFF
from delegate.target import Target

_ERRORS = {each.__name__: each for each in (Unsupported, TooLarge, KilledChild)}
_MOST_REPLIES = 64
ResultT = TypeVar("ResultT")
_log = logging.getLogger("delegate")


# Options that no plan depends on, and those that the key has in another form: of the device and its
# profile, the instructions that are proven, the graph's nodes, whether anything is measured.
_NOT_IN_KEY = frozenset(
    (
        "device", "device_profile", "exclude_isa", "exclude_ops", "in_child_first", "isolate",
        "max_delegated_partitions", "min_nodes_per_partition", "own_context", "placement", "plan",
        "run_timeout", "tune",
    )
)  # fmt: skip
IN_KEY = sorted({field.name for field in fields(Options)} - _NOT_IN_KEY)

Parse = Callable[[bytes, ContentSource], ResultT]


class PlanReader:
    """Planning by parsed answers; subclasses obtain them.

    Attributes:
        replies: the first answers used, by key; a resized model would add more without end.
    """

    def __init__(self, options: Options, device: AnyDevice) -> None:
        self._options = options
        self._device = device
        self._backend = backend_of(device)
        planning_options = [getattr(options, name) for name in IN_KEY]
        is_off = options.tune == OFF
        self._facts = device.identity, sorted(device.proven), planning_options, is_off
        self._unmeasured: dict[tuple[int, ...], int] = {}  # by the node indices of a partition
        self._lock = threading.RLock()  # held while obtaining an answer
        self.replies: dict[str, bytes] = {}

    @property
    def unmeasured(self) -> int:
        """The number of choices that were not measured."""
        return sum(self._unmeasured.values())

    def registers(self) -> int:
        """Return the 32-bit values that a work-item is certain to keep in registers; 0: unknown."""

        def read(content: bytes, _: ContentSource) -> int:
            return int(json.loads(content))

        return self._answer(self._name("registers", ()), "registers", (), read)

    def verdicts(self, graph: Graph, target: Target, exclude_ops: Sequence[str]) -> list[Verdict]:
        """Return for each node whether it is supported by the device."""

        def read(content: bytes, _: ContentSource) -> list[Verdict]:
            rows = json.loads(content)
            if len(rows) != len(graph.nodes):
                raise UnreadablePlan("verdicts of other nodes")
            return [
                Verdict(int(node), str(op), KilledReason(why) if is_lost else why)
                for node, op, why, is_lost in rows
            ]

        facts = graph_facts(graph), target_facts(target), sorted(exclude_ops)
        arguments = graph, target, exclude_ops
        return self._answer(self._name("verdicts", facts), "verdicts", arguments, read)

    def partition(
        self, partition: Partition, target: Target, batch: int, region: Region
    ) -> tuple[PartitionPlan, AnyConstants]:
        """Return the plan of a partition, and its constants, for the caller to close.

        Raises:
            Unsupported: a node does not lower. DeviceError: planning failed.
        """
        where = sorted(region.offsets.items()), region.size_bytes
        facts = partition_facts(partition), target_facts(target), batch, where
        ends = partition.inputs, partition.outputs

        def read(content: bytes, source: ContentSource) -> tuple[TunedPlan, AnyConstants]:
            tuned = decode(content, ends, source.content)
            self._require(tuned)
            return tuned, self._backend.constants(content, ends, tuned, source)

        arguments = partition, target, batch, region
        name = self._name("partition", facts)
        tuned, constants = self._answer(name, "partition", arguments, read)
        self._unmeasured[partition.indices] = tuned.unmeasured
        if tuned.unmeasured:
            _log.info(
                "%d choices were not measured%s: `tflite-opencl tune MODEL` measures them",
                tuned.unmeasured,
                f" (about {tuned.unmeasured_seconds:.0f} s)" if tuned.unmeasured_seconds else "",
            )
        return tuned.plan, constants

    def placement(
        self, facts: Hashable, threads: int, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a partition's timings here and on the CPU, measured if they are not known.

        `facts`: all that they depend on, except for the CPU's `threads`. They are JSON.
        """

        def read(content: bytes, _: ContentSource) -> dict[str, Any]:
            found = json.loads(content)
            if not isinstance(found, dict):
                raise UnreadablePlan("timings of another form")
            return found

        name = self._name("placement", facts)
        return self._measured(name, threads, read, lambda: json.dumps(measure()).encode())

    def why_not_on_cpu(self, graph: Graph, package: str, threads: int) -> str:
        """Return why TFLite's CPU path cannot run a graph; "": it can."""

        def read(content: bytes, _: ContentSource) -> str:
            return str(json.loads(content))

        name = self._name("cpu", (graph_facts(graph), package))
        return self._answer(name, "cpu", (graph, package, threads), read)

    @abstractmethod
    def _measured(
        self, name: str, threads: int, read: Parse[ResultT], measure: Callable[[], bytes]
    ) -> ResultT:
        """Return the parsed timings of this key; `measure`: makes what is parsed."""

    def _require(self, tuned: TunedPlan) -> None:
        """Check that a plan satisfies the options; raises UnreadablePlan."""

    @abstractmethod
    def _answer(
        self, name: str, call: str, arguments: tuple[object, ...], read: Parse[ResultT]
    ) -> ResultT:
        """Return the parsed answer to a request.

        `name`: its key. `call`, `arguments`: the request. `read`: parses the answer, given a source
        of contents.
        """

    def _name(self, call: str, facts: Hashable) -> str:
        """Return the key of an answer, the same on any machine."""
        return key_of(call, self._facts, facts)

    def _parse(
        self,
        name: str,
        content: bytes,
        source: ContentSource,
        read: Parse[ResultT],
    ) -> ResultT:
        """Parse an answer, or raise the error that it contains."""
        line, _, payload = content.partition(b"\n")
        reasons, error = json.loads(line)
        self._note_exclusions({*reasons})
        if error is not None:
            kind, text = error
            raise _ERRORS.get(kind, DeviceError)(text)
        found = read(payload, source)
        keep_digests()  # of the weights in its key, and of its constants
        if len(self.replies) < _MOST_REPLIES:
            self.replies[name] = content
        return found

    def _note_exclusions(self, reasons: Collection[str]) -> None:
        """Called with the reasons why kernels were left out of an answer."""
