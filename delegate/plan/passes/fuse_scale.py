# SPDX-License-Identifier: Apache-2.0
"""A per-column scale and shift of rows become one kernel: MobileBERT's NoNorm.

    (x, y) -ADD-> -MUL by a row-> -ADD a row-> z        becomes        (x, rows, y) -scaled-> z

The first ADD is optional. The rows are constants.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node, Tensor
from delegate.plan.passes.matching import Match, is_plain


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the chain that ends with an ADD."""
    by_row = _by_row(node, "ADD")
    mul = None if by_row is None else links.sole_producer(by_row[0], "MUL")
    scaled = None if mul is None else _by_row(mul, "MUL")
    if by_row is None or mul is None or scaled is None:
        return None
    (moved, offset), (source, scale) = by_row, scaled
    chain, inner, inputs = [mul, node], [moved], [source, scale, offset]
    add = links.sole_producer(source, "ADD")
    if add is not None and is_plain(add):
        one, other = add.inputs
        if one is not None and other is not None and one.shape == other.shape:
            chain, inner, inputs = [add, *chain], [source, *inner], [one, scale, offset, other]
    made = replace(node, op="scaled", inputs=tuple(inputs), options={}, inner=tuple(inner))
    return chain, made


def _by_row(node: Node, op: str) -> tuple[Tensor, Tensor] | None:
    """Return the operand of an ADD or MUL by a constant row, and that row."""
    if node.op != op or node.outputs[0].dtype != "float32" or not is_plain(node):
        return None
    one, other = node.inputs
    assert one is not None
    assert other is not None
    for source, row in ((one, other), (other, one)):
        width = source.shape[-1:]
        if row.data is not None and source.data is None and row.shape == width != ():
            return source, row
    return None
