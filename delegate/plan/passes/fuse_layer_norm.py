# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation becomes one kernel.

x -MEAN of rows-> m, (x, m) -SQUARED_DIFFERENCE-> -MEAN of rows-> -ADD epsilon-> -RSQRT->
-MUL scale-> s, (m, s) -MUL-> p, (offset, p) -SUB-> d, (x, s) -MUL-> t, (t, d) -ADD-> y
    becomes        (x, scale, offset) -layer_norm-> y
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node
from delegate.plan.passes.matching import (
    Match,
    first_made,
    is_of_rows,
    is_plain,
    number_of,
    other_than,
)

_SQUARE = "SQUARED_DIFFERENCE"


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the ten nodes that end with this ADD."""
    if node.op != "ADD" or not is_plain(node):
        return None
    times, moved = first_made(links, node, "MUL"), first_made(links, node, "SUB")
    by_mean = None if moved is None else links.sole_producer(moved.inputs[1], "MUL")
    if times is None or moved is None or by_mean is None:
        return None
    both = [tensor for tensor in times.inputs if tensor in by_mean.inputs]
    scaling = links.producer(both[0], "MUL") if len(both) == 1 else None
    root = None if scaling is None else first_made(links, scaling, "RSQRT")
    raised = None if root is None else links.sole_producer(root.inputs[0], "ADD")
    variance = None if raised is None else first_made(links, raised, "MEAN")
    square = None if variance is None else links.sole_producer(variance.inputs[0], _SQUARE)
    if not (scaling and root and raised and variance and square):
        return None
    scaled, source = scaling.outputs[0], other_than(times, scaling.outputs[0])
    average, epsilon = other_than(by_mean, scaled), number_of(raised)
    mean, scale = links.producer(average, "MEAN"), other_than(scaling, root.outputs[0])
    offset = moved.inputs[0]
    if epsilon is None or mean is None or not (source and average and scale and offset):
        return None
    chain = [mean, square, variance, raised, root, scaling, by_mean, moved, times]
    are_rows = is_of_rows(mean) and is_of_rows(variance) and mean.inputs[0] is source
    has_parts = {*square.inputs} == {source, average}
    are_alone = all(
        {*links.consumers(tensor)} == {*readers} and not links.is_output(tensor)
        for tensor, readers in ((scaled, (times, by_mean)), (average, (square, by_mean)))
    )
    are_plain = all(map(is_plain, (scaling, by_mean, moved, times)))
    if not (are_rows and has_parts and are_alone and are_plain):
        return None
    made = replace(
        node,
        op="layer_norm",
        inputs=(source, scale, offset),
        options={"epsilon": epsilon},
        inner=tuple(each.outputs[0] for each in chain),
    )
    return [*chain, node], made
