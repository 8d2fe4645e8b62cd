# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding becomes one kernel.

x -SLICE-> a, x -SLICE-> b, (a cos - b sin, b cos + a sin) -CONCATENATION-> y
    becomes        (x, cos, sin) -rope-> y
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import Match, is_plain


def found_at(links: DefUse, join: Node) -> Match | None:
    """Return the nine nodes that end with a CONCATENATION."""
    if join.op != "CONCATENATION" or len(join.inputs) != 2 or not is_plain(join):
        return None
    sub = links.sole_producer(join.inputs[0], "SUB")
    add = links.sole_producer(join.inputs[1], "ADD")
    rank = len(join.outputs[0].shape)
    if sub is None or add is None or int(join.options.get("axis", 0)) % rank != rank - 1:
        return None
    if not (is_plain(sub) and is_plain(add)):
        return None
    products = [links.sole_producer(t, "MUL") for t in (*sub.inputs, *add.inputs)]
    if any(each is None or not is_plain(each) for each in products):
        return None
    muls = [each for each in products if each is not None]
    (one, cos), (two, sin) = (each.inputs for each in muls[:2])
    halves = links.producer(one, "SLICE"), links.producer(two, "SLICE")
    sums = {frozenset(each.inputs) for each in muls[2:]}
    if sums != {frozenset((two, cos)), frozenset((one, sin))} or None in halves:
        return None
    slices = [each for each in halves if each is not None]
    source = slices[0].inputs[0]
    if source is None or slices[1].inputs[0] is not source or len(source.shape) != rank:
        return None
    half = source.shape[-1] // 2
    if not all(_is_half(each, at, half) for each, at in zip(slices, (0, half), strict=True)):
        return None
    readers = [*links.consumers(slices[0].outputs[0]), *links.consumers(slices[1].outputs[0])]
    if set(readers) != set(muls) or len(readers) != 4:
        return None
    if any(links.is_output(each.outputs[0]) for each in slices):
        return None
    nodes = [*slices, *muls, sub, add]
    inner = tuple(each.outputs[0] for each in nodes)
    made = replace(join, op="rope", inputs=(source, cos, sin), options={}, inner=inner)
    return [*nodes, join], made


def _is_half(node: Node, at: int, half: int) -> bool:
    """Whether a SLICE takes half of the columns, from `at` on, of all rows."""
    source, begin, size = node.inputs
    if source is None or begin is None or begin.data is None or size is None:
        return False
    first = [0] * (len(source.shape) - 1) + [at]
    shape = (*source.shape[:-1], half)
    return begin.data.reshape(-1).tolist() == first and node.outputs[0].shape == shape
