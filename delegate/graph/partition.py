# SPDX-License-Identifier: Apache-2.0
"""Verdicts -> the partitions that TFLite will form, and their inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from delegate.graph.float16 import has_float16
from delegate.graph.ir import UNSIZED, Graph, Node, Tensor
from delegate.graph.mediapipe import is_lacking
from delegate.graph.shapes import output_shapes
from delegate.graph.verdict import Verdict

# Ops whose output shapes depend on input values, beyond a computed shape input.
SIZED_BY_VALUES = frozenset({"UNIQUE", "WHERE"})
# Ops that run subgraphs. TFLite runs them in file order, without considering what these do.
CALLERS = frozenset({"CALL", "CALL_ONCE", "IF", "WHILE"})


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Nodes that run together."""

    # In execution order. The nodes of an inlined WHILE or IF have its index.
    nodes: tuple[Node, ...]
    # By tensor index; persistent tensors too: their versions before and after a run.
    inputs: tuple[Tensor, ...]  # computed outside and read inside
    outputs: tuple[Tensor, ...]  # computed inside and read outside
    # The op of each inlined node, by its index.
    inlined: Mapping[int, str] = field(default_factory=dict)

    @property
    def indices(self) -> tuple[int, ...]:
        """The distinct node indices, including a folded loop's without nodes."""
        return tuple(sorted({*self.inlined, *(node.index for node in self.nodes)}))

    @property
    def computed(self) -> frozenset[Tensor]:
        """The tensors of TFLite that the nodes compute.

        Persistent tensors other than variable tensors are copies.
        """
        nodes = [n for n in self.nodes if not any(map(_is_hidden, n.inputs))]
        made = (tensor for node in nodes for tensor in node.outputs)
        return frozenset(tensor for tensor in made if not tensor.state_name and tensor.index >= 0)

    def with_nodes(self, new: Mapping[Node, Node | None]) -> Partition:
        """Return the partition with these nodes replaced or removed.

        The same object if there are none.
        """
        steps = (new.get(node, node) for node in self.nodes)
        nodes = tuple(node for node in steps if node is not None)
        return replace(self, nodes=nodes) if new else self


def partitions(
    graph: Graph, claimed: Collection[int], keeps_order: bool = True
) -> tuple[Partition, ...]:
    """Group the claimed nodes as TFLite does.

    A group takes every node of one kind, claimed or not, whose inputs are available, then the
    other kind follows. `keeps_order`: nodes that use resources or call subgraphs stay in file
    order, as observed in ai-edge-litert.
    Source: tflite/graph_info.cc PartitionGraphIntoIndependentNodeSubsets,
    core/subgraph.cc OpMightHaveSideEffect
    """
    producer = {tensor: node for node in graph.nodes for tensor in node.outputs}
    ready = set(graph.tensors) - set(producer)
    waiting = list(graph.nodes)
    in_order = [*filter(_has_side_effects, graph.nodes)] if keeps_order else []
    before = dict(zip(in_order[1:], in_order, strict=False))
    taken: set[Node] = set()
    groups: list[list[int]] = []
    while waiting:
        kind: bool | None = None
        group: list[Node] = []
        grew = True
        while grew:
            grew = False
            for node in waiting:
                if node in before and before[node] not in taken:
                    continue
                is_ready = all(t is None or t.state_name or t in ready for t in node.inputs)
                if is_ready and kind in (None, node.index in claimed):
                    kind = node.index in claimed
                    group.append(node)
                    taken.add(node)
                    ready.update(node.outputs)
                    grew = True
            waiting = [node for node in waiting if node not in taken]
        if not group:
            break  # a cycle: TFLite rejects such a model itself
        if kind:
            groups.append([node.index for node in group])
    return tuple(partition_of(graph, group) for group in groups)


def _has_side_effects(node: Node) -> bool:
    ends = (*node.inputs, *node.outputs)
    return node.op in CALLERS or any(t is not None and t.dtype == "resource" for t in ends)


def partition_of(graph: Graph, members: Collection[int]) -> Partition:
    """Return the partition of these node indices."""
    members = frozenset(members)
    group = [node for node in graph.nodes if node.index in members]
    inside = {tensor for node in group for tensor in node.outputs}
    read = {t for node in group for t in node.inputs if t is not None and t.data is None}
    wanted = set(graph.outputs)
    wanted.update(
        {t.state_name: t for node in group for t in node.outputs if t.state_name}.values()
    )
    for node in graph.nodes:
        if node.index not in members:
            wanted.update(tensor for tensor in node.inputs if tensor is not None)
    return Partition(
        plain_nodes(group),
        tuple(sorted(read - inside, key=_index)),
        # A handle of a persistent variable carries no data.
        tuple(sorted((t for t in inside & wanted if t.dtype != "resource"), key=_index)),
        {node.index: node.op for node in group if is_inlined(node)},
    )


def plain_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes, with inlined ones replaced by their bodies."""
    own = (node.body.nodes if is_inlined(node) and node.body else (node,) for node in nodes)
    return tuple(each for nodes in own for each in nodes)


def is_inlined(node: Node) -> bool:
    """Whether a WHILE or an IF is replaced by the nodes of its `body`."""
    return node.calls is not None and node.body is not None


def _is_hidden(tensor: Tensor | None) -> bool:
    """Whether its value is not visible in TFLite's tensors."""
    return tensor is not None and bool(tensor.state_name) and not tensor.is_variable


def _index(tensor: Tensor) -> int:
    return tensor.index


# In multiplications: what a CPU computes in the overhead of a partition, which is to call it, copy
# its inputs and wait. See ARCHITECTURE.md for the measurement.
LEAST_WORK = 1 << 20
# The same per additional launch. A board's driver takes 20 to 200 us for it.
LEAST_LAUNCH = 1 << 17
_ELEMENT = 16  # cost of reading or writing one element, in multiplications


def is_worth_its_launches(node: Node) -> bool:
    """Whether an unrolled loop's nodes cost more on a CPU than their separate launches."""
    nodes = plain_nodes([node])
    return work(nodes) >= LEAST_LAUNCH * len(nodes)


def work(nodes: Iterable[Node]) -> int:
    """Return the estimated number of multiplications that nodes cost a CPU.

    Weights are constants; each output element sums as many products as an output channel has
    weights.
    """
    total = 0
    for node in nodes:
        if all(tensor.is_folded for tensor in node.outputs):
            continue
        computed = [t for t in (*node.inputs, *node.outputs) if t is not None and t.data is None]
        total += _ELEMENT * sum(math.prod(tensor.shape) for tensor in computed) + products(node)
    return total


def products(node: Node) -> int:
    """Return the multiply-adds of a node with constant weights; about none for others."""
    result = node.outputs[0]
    weights = [math.prod(t.shape) for t in node.inputs if t is not None and t.data is not None]
    channels = result.shape[-1] if result.shape else 1
    return math.prod(result.shape) * (max(weights, default=0) // max(channels, 1))


def can_leave(group: Partition) -> bool:
    """Whether TFLite's own kernels have all nodes of a partition."""
    return not any(is_lacking(node) or has_float16(node) for node in group.nodes)


def too_small_or_too_many(
    graph: Graph, groups: Sequence[Partition], least_nodes: int, most_groups: int
) -> tuple[Partition, str] | None:
    """Return the first partition to leave to the CPU, and why; None: all may stay.

    `least_nodes`: per partition; 0: it must cost a CPU LEAST_WORK, unless it is a whole
    uncalled graph: conditions of loops are small.
    `most_groups`: 0 = no limit; beyond it the smallest is refused.
    Partitions with a node that TFLite's own kernels lack always stay: nothing else can run it.
    """
    free = [group for group in groups if can_leave(group)]
    for group in free:
        nodes = len(group.indices)
        if nodes < least_nodes:
            return group, f"a partition of {nodes}: min_nodes_per_partition is {least_nodes}"
        is_whole = nodes == len(graph.nodes) and not graph.is_called
        if least_nodes == 0 and not is_whole and work(group.nodes) < LEAST_WORK:
            return group, f"a partition of {nodes} that costs a CPU less than its copies"
    if free and 0 < most_groups < len(groups):
        smallest = min(free, key=lambda group: len(group.indices))
        return smallest, f"{len(groups)} partitions: max_delegated_partitions is {most_groups}"
    return None


def _may_be_sizes(tensor: Tensor | None) -> bool:
    # A computed integer or list of integers (a shape, an axis), or PAD's list of pairs.
    return (
        tensor is not None
        and (tensor.data is None or tensor.is_folded)
        and tensor.dtype in ("int32", "int64")
        and tensor.shape[1:] in ((), (2,))
    )


def may_be_dynamic(node: Node) -> bool:
    """Whether TFLite may know the shape of a node's outputs only at run time.

    It may be known here all the same, by folding.
    """
    if node.op == "READ_VARIABLE":  # a persistent one has a constant shape, its initial one
        return not any(t is not None and t.state_name for t in node.inputs)
    if node.calls is not None:
        return not node.calls.is_sized
    if node.op in SIZED_BY_VALUES | CALLERS or node.is_custom:
        return True
    if node.op == "SEGMENT_SUM":  # TFLite's is dynamic, unless all of its inputs are constants
        return True
    return any(map(_may_be_sizes, node.inputs)) and output_shapes(node) is None


def may_have_other_shapes(node: Node) -> bool:
    """Whether outputs without a shape rule may have other shapes than recorded.

    Files record unknown sizes as 0.
    """
    return may_be_dynamic(node) or any(0 in tensor.shape for tensor in node.outputs)


def dynamic_tensors(graph: Graph, claimed: Collection[int]) -> frozenset[Tensor]:
    """Return the tensors whose shape may be known only at run time.

    A node left to the CPU may size its output by an integer tensor (RESHAPE's new shape) that no
    constant and no shape determines; its output is dynamic, and so is everything that depends on
    it. Conservative: a false positive costs a delegated node, never a wrong result.
    """
    dynamic: set[Tensor] = {
        tensor
        for tensor in graph.tensors
        if tensor.data is None and min(tensor.shape, default=0) < 0
    }
    for node in graph.nodes:
        made = [tensor for tensor in node.outputs if tensor.data is None and 0 in tensor.shape]
        if made and output_shapes(node) is None:
            dynamic.update(made)
        if node.index not in claimed and may_be_dynamic(node):
            dynamic.update(node.outputs)
        if any(tensor in dynamic for tensor in node.inputs):
            dynamic.update(node.outputs)
    return frozenset(dynamic)


def without_dynamic(graph: Graph, verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts with nodes refused that use a tensor of unknown shape."""
    # A refused node may make others dynamic, so iterate to a fixed point.
    while True:
        claimed = {verdict.node for verdict in verdicts if verdict.is_taken}
        dynamic = dynamic_tensors(graph, claimed)
        touching = {
            node.index
            for node in graph.nodes
            if node.index in claimed
            and any(tensor in dynamic for tensor in (*node.inputs, *node.outputs))
        }
        if not touching:
            return verdicts
        verdicts = [each.refused(UNSIZED) if each.node in touching else each for each in verdicts]
