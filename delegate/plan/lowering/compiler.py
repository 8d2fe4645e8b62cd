# SPDX-License-Identifier: Apache-2.0
"""Graph + target -> verdicts; partition -> Schedule. Never touches a device, except by `check`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from delegate.errors import Unsupported
from delegate.graph import resources
from delegate.graph.def_use import DefUse
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.partition import (
    SIZED_BY_VALUES,
    Partition,
    is_inlined,
    plain_nodes,
    without_dynamic,
    work,
)
from delegate.graph.verdict import Verdict
from delegate.guard.children import progress
from delegate.launch import Alternative, Schedule, Step, first_that_runs, is_empty
from delegate.plan.fp16 import fp16
from delegate.plan.lowering.common_subexpressions import eliminate_common_launches
from delegate.plan.lowering.in_place import in_place
from delegate.plan.lowering.lowering_cache import LoweringCache
from delegate.plan.passes import PASSES, run_passes
from delegate.target import Target

_EXCLUDED = "excluded by exclude_ops"
Check = Callable[[Alternative], str | None]
Choose = Callable[[Node, Sequence[Alternative]], Alternative]  # or Unsupported


def verdicts(
    graph: Graph,
    target: Target,
    check: Check,
    exclude_ops: Collection[str] = (),
    lowered: LoweringCache | None = None,
) -> list[Verdict]:
    """Return for each node whether it is supported: it lowers, builds, and has static tensors.

    `lowered`: as in `compile_partition`.
    """
    if (disorder := _disorder(graph)) is not None:
        return [Verdict(node.index, node.op, disorder) for node in graph.nodes]
    result: list[Verdict] = []
    changeable = graph.changeable
    for node in progress.each(graph.nodes, _words):
        reason = _EXCLUDED if node.op in exclude_ops else None
        changed = [t for t in node.inputs if t is not None and t in changeable]
        if reason is None and graph.resources.why_not and node.op in resources.OPS:
            reason = graph.resources.why_not
        if reason is None and changed:
            reason = f"tensor {changed[0].index} is a constant and an input of the graph, too"
        if reason is None:
            reason = _obstacle(node, target, check, exclude_ops, lowered)
        result.append(Verdict(node.index, node.op, reason))
    return without_dynamic(graph, result)


def _obstacle(
    node: Node,
    target: Target,
    check: Check,
    exclude_ops: Collection[str],
    lowered: LoweringCache | None,
) -> str | None:
    """Return why a node, or a node that it is inlined to, is not supported."""
    if node.calls is not None and node.body is None:
        return node.calls.obstacle
    for each in plain_nodes([node]):
        try:
            if each.op in exclude_ops:
                raise Unsupported(_EXCLUDED)
            first_choice(each, target, check, lowered)
        except Unsupported as refusal:
            reason: str = refusal.args[0]  # not converted: it may be a KilledReason
            return type(reason)(f"{each.op} in it: {reason}") if is_inlined(node) else reason
    return None


def _disorder(graph: Graph) -> str | None:
    """Return which node reads a tensor computed after it; None: there is none.

    TFLite runs nodes in file order. Partitions are ordered by data flow, which would differ.
    """
    links = DefUse(graph)
    for node, place in links.places.items():
        for tensor in node.inputs:
            maker = links.producer(tensor)
            if tensor is not None and maker is not None and links.places[maker] >= place:
                return (
                    f"the nodes are out of order: node {node.index} reads tensor {tensor.index}, "
                    f"which node {maker.index} computes"
                )
    return None


def compile_partition(
    partition: Partition,
    target: Target,
    choose: Choose,
    known: dict[Node, Step] | None = None,
    lowered: LoweringCache | None = None,
) -> Schedule:
    """Return the schedule of a partition.

    `known`: compiled steps of nodes, reused and extended. `lowered`: alternatives of nodes, reused
    and extended.

    Raises:
        Unsupported: a node does not lower, with its index.
    """
    steps = {} if known is None else known
    # If there is no time to measure all, measure the nodes first that may gain most.
    new = [node for node in partition.nodes if node not in steps]
    new.sort(key=lambda node: work([node]), reverse=True)
    for node in progress.each(new, _words):
        try:
            alternatives = _lower(node, target, lowered)
            names = tuple(each.name for each in alternatives)
            steps[node] = Step(node.index, node.op, choose(node, alternatives), names)
        except Unsupported as refusal:
            raise Unsupported(f"node {node.index} ({node.op}): {refusal}") from None
    in_order = tuple(steps[node] for node in partition.nodes)
    watched = _watched(in_order, (*partition.inputs, *partition.outputs))
    outputs = (*partition.outputs, *watched)
    return eliminate_common_launches(
        in_place(Schedule(in_order, partition.inputs, outputs, watched))
    )


def _watched(steps: Sequence[Step], known: Collection[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors with requirements that are not visible to the host already."""
    required = (need.tensor for step in steps for need in step.alternative.requirements)
    return tuple(dict.fromkeys(tensor for tensor in required if tensor not in known))


def rewritten(
    partition: Partition,
    target: Target,
    check: Check,
    passes: Collection[str] = tuple(PASSES),
    lowered: LoweringCache | None = None,
    allows_fp16: bool = False,
) -> Partition:
    """Return the partition after these passes, which create no unsupported node.

    `lowered`: as in `compile_partition`. `allows_fp16`: store floats as fp16 if the device
    supports it.
    """

    def accepts(node: Node) -> bool:
        try:
            first_choice(node, target, check, lowered)
        except Unsupported:
            return False
        return True

    partition = run_passes(partition, accepts, passes)
    if allows_fp16 and fp16.can_store_fp16(target.isa):
        return fp16.in_fp16(partition, accepts)
    return partition


def first_choice(
    node: Node, target: Target, check: Check, lowered: LoweringCache | None = None
) -> Alternative:
    """Return the first alternative that the device can run: the one expected to be fastest.

    Raises:
        Unsupported: there is none, or the node does not lower.
    """
    return first_that_runs(_lower(node, target, lowered), check)


def _words(node: Node) -> str:
    return f"node {node.index}, {node.op}"


def _lower(node: Node, target: Target, lowered: LoweringCache | None) -> tuple[Alternative, ...]:
    lowered = LoweringCache() if lowered is None else lowered
    if node not in lowered:
        lowered[node] = _alternatives(node, target, lowered)
    return lowered[node]


def _alternatives(node: Node, target: Target, lowered: LoweringCache) -> tuple[Alternative, ...]:
    if any(t is not None and t.state_name for t in node.inputs + node.outputs) and node.op in (
        resources.READ,
        resources.ASSIGN,
    ):
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None
        return (Alternative("kept", (), (source, result)),)
    if not node.outputs or any(
        t is not None and t.is_variable and not t.state_name for t in node.inputs
    ):
        raise Unsupported("no output" if not node.outputs else "state in a variable tensor")
    if all(tensor.is_folded for tensor in node.outputs):
        return (Alternative("constant", ()),)
    if all(map(is_empty, node.outputs)):
        return (Alternative("empty", ()),)
    if node.op in SIZED_BY_VALUES:
        raise Unsupported("how many places it gives is known only at run time")
    found = lowered.lower(node, target)
    if any(need.tensor.state_name for each in found[-1:] for need in each.requirements):
        # It stays on the device, where nobody checks it.
        raise Unsupported("TFLite fails on some values, and these are persistent")
    return found
