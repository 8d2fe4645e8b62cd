# SPDX-License-Identifier: Apache-2.0
"""A partition with some nodes on TFLite's kernels, because their shapes do not fit the device.

TFLite cannot take a claimed node back. After a resize such a node therefore runs on TFLite's own
kernel, inside the partition, and its verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from delegate.engine import Engine
from delegate.errors import REFUSALS, KilledChild, Unsupported
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import Partition
from delegate.graph.shapes import output_shapes
from delegate.graph.verdict import KilledReason, Verdict
from delegate.guard.isolation.backend import AnyExecutor
from delegate.host.tflite.reference import NodeOnTFLite
from delegate.launch import size_bytes
from delegate.plan.layout import as_bytes
from delegate.target import Target

Arrays = Sequence[NDArray[np.uint8]]
# Runs a part on the device: executor, inputs, outputs.
OnDevice = Callable[[AnyExecutor, Arrays, Arrays], None]


class MixedPartition:
    """The parts of one partition, in execution order.

    Attributes:
        on_tflite: node index -> why it runs on TFLite's kernels.
    """

    def __init__(
        self,
        engine: Engine,
        partition: Partition,
        target: Target,
        on_tflite: Mapping[int, str] | None = None,
    ) -> None:
        """Create each part; nodes that the device refuses run on TFLite's kernels.

        `on_tflite`: nodes to run there in any case.
        Raises:
            Unsupported: TFLite refuses a node as well, or is not installed.
            DeviceError: an OpenCL call fails other than for a size.
        """
        self.on_tflite: dict[int, str] = unknown_shapes(partition) | dict(on_tflite or {})
        self._whole = partition
        self._parts: list[tuple[Partition, AnyExecutor | NodeOnTFLite]] = []
        while not self._are_made(engine, target):
            self.close()
        inner = {t for part, _ in self._parts for t in part.outputs}
        self._between: dict[Tensor, NDArray[np.uint8]] = {
            tensor: np.empty(size_bytes(tensor), np.uint8)
            for tensor in inner.difference(partition.outputs)
        }
        # Folded values of an inlined loop, such as its trip count: no node computes them.
        self._known = {
            tensor: as_bytes(np.asarray(tensor.data))
            for tensor in set(partition.outputs) - inner
            if tensor.data is not None
        }

    def _are_made(self, engine: Engine, target: Target) -> bool:
        """Create the parts; if one does not fit, add its nodes to `on_tflite` and return False."""
        if inlined := self._whole.inlined.keys() & self.on_tflite.keys():
            index = min(inlined)
            op, why = self._whole.inlined[index], self.on_tflite[index]
            raise Unsupported(f"node {index} ({op}) cannot leave the device after a resize: {why}")
        for part in split(self._whole, self.on_tflite):
            if part.nodes[0].index in self.on_tflite:
                self._parts.append((part, NodeOnTFLite(target.rules, part.nodes[0])))
                continue
            try:
                self._parts.append((part, engine.executor(part, target)))
            except REFUSALS as error:
                self.on_tflite |= _refused(engine, target, part, error)
                return False
        return True

    @property
    def executors(self) -> list[AnyExecutor]:
        """The executors of the parts on the device."""
        return [made for _, made in self._parts if isinstance(made, AnyExecutor)]

    def run(self, inputs: Arrays, outputs: Arrays, on_device: OnDevice) -> None:
        """Run once, on the partition's inputs and outputs."""
        ends = (*self._whole.inputs, *self._whole.outputs)
        values = {**self._between, **dict(zip(ends, (*inputs, *outputs), strict=True))}
        for part, made in self._parts:
            if isinstance(made, AnyExecutor):
                given, results = ([values[t] for t in some] for some in (part.inputs, part.outputs))
                on_device(made, given, results)
            else:
                made.run(values)
        for tensor, known in self._known.items():
            np.copyto(values[tensor], known)

    def close(self) -> None:
        """Free the device memory."""
        for executor in self.executors:
            executor.close()
        self._parts.clear()


def split(partition: Partition, apart: Collection[int]) -> list[Partition]:
    """Cut a partition into parts that run in sequence, each on the device or on TFLite.

    `apart`: indices of nodes that each become their own part.
    """
    runs: list[list[Node]] = []
    for node in partition.nodes:
        if runs and node.index not in apart and runs[-1][-1].index not in apart:
            runs[-1].append(node)
        else:
            runs.append([node])
    wanted, parts = {*partition.outputs}, []
    for nodes in reversed(runs):
        inside = {tensor for node in nodes for tensor in node.outputs}
        read = {t for node in nodes for t in node.inputs if t is not None and t.data is None}
        inputs = sorted(read - inside, key=attrgetter("index"))
        outputs = sorted(inside & wanted, key=attrgetter("index"))
        own = {each.index for each in nodes}
        inlined = {index: op for index, op in partition.inlined.items() if index in own}
        parts.append(Partition(tuple(nodes), tuple(inputs), tuple(outputs), inlined))
        wanted |= read
    return parts[::-1]


def unknown_shapes(partition: Partition) -> dict[int, str]:
    """Return the nodes whose output shapes do not follow from their inputs', with a reason.

    They would keep the shapes from before a resize. TFLite refuses most such nodes.
    """
    return {
        node.index: "the shapes of its outputs do not follow from its inputs"
        for node in partition.nodes
        if not any(tensor.is_folded or tensor.state_name for tensor in node.outputs)
        and "resource" not in {t.dtype for t in (*node.inputs, *node.outputs) if t is not None}
        and output_shapes(node) != tuple(tensor.shape for tensor in node.outputs)
    }


def _refused(
    engine: Engine, target: Target, part: Partition, error: Exception
) -> Mapping[int, str]:
    """Return the nodes of a part that the device refuses individually, else all of them."""
    tensors = dict.fromkeys(
        t for node in part.nodes for t in (*node.inputs, *node.outputs) if t is not None
    )
    alone = Graph(tuple(tensors), part.nodes, part.inputs, part.outputs)
    found = {v.node: v.reason for v in engine.verdicts(alone, target) if v.reason is not None}
    why = KilledReason(error) if isinstance(error, KilledChild) else str(error)
    return found or dict.fromkeys(part.indices, why)


def verdicts(partition: Partition, on_tflite: Mapping[int, str]) -> list[Verdict]:
    """Return the verdicts of a partition's nodes; those in `on_tflite` run on its kernels."""
    ops = {node.index: node.op for node in partition.nodes} | dict(partition.inlined)
    return [
        Verdict(index, ops[index], f"on TFLite's kernel at these shapes: {on_tflite[index]}")
        if index in on_tflite
        else Verdict(index, ops[index], None)
        for index in partition.indices
    ]
