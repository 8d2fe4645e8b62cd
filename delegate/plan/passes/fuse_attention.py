# SPDX-License-Identifier: Apache-2.0
"""Attention: two products and the softmax between them become one kernel.

    (q, k) -BATCH_MATMUL-> -MUL by a number-> -ADD a mask-> -SOFTMAX-> s, (s, v) -BATCH_MATMUL-> y
        becomes        (q, k, v, mask) -attention-> y

The MUL and the ADD are optional, and a MUL may follow the ADD (relative positions, in a Conformer).
Where a mask hides the trailing positions, as of a partly filled cache, the fused kernel skips them,
which the separate nodes cannot.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node, Tensor
from delegate.plan.passes.matching import Match, is_plain, number_of

_LEAST_SCALE = 1e-6  # after a mask: what it hides must stay hidden


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the chain that ends with a BATCH_MATMUL."""
    if node.op != "BATCH_MATMUL" or _is_adjoint(node) != (False, False):
        return None
    shares, values = node.inputs
    softmax = links.sole_producer(shares, "SOFTMAX")
    if softmax is None or softmax.options.get("beta") != 1:
        return None
    chain, mask = [softmax, node], None
    source, masked_scale = _unscaled(links, softmax.inputs[0], "ADD", chain)
    add = links.sole_producer(source, "ADD")
    if add is not None and is_plain(add):
        parted = _parted(links, add, ("MUL", "BATCH_MATMUL"))
        if parted is None or masked_scale < _LEAST_SCALE:
            return None
        source, mask = parted
        chain.insert(0, add)
    source, scale = _unscaled(links, source, "BATCH_MATMUL", chain)
    product = links.sole_producer(source, "BATCH_MATMUL")
    if product is None or _is_adjoint(product) != (False, True):
        return None
    inner = tuple(each.outputs[0] for each in [product, *chain[:-1]])
    queries, keys = product.inputs
    made = replace(
        node,
        op="attention",
        inputs=(queries, keys, values, *(() if mask is None else (mask,))),
        options={"scale": scale, "masked_scale": masked_scale},
        inner=inner,
    )
    return [product, *chain], made


def _unscaled(
    links: DefUse, scaled: Tensor | None, op: str, chain: list[Node]
) -> tuple[Tensor | None, float]:
    """Return the result of a node of this op before a MUL by a scalar, and the scalar.

    The MUL becomes part of the match. Without a MUL: the tensor itself, and 1.
    """
    mul = links.sole_producer(scaled, "MUL")
    number = None if mul is None else number_of(mul)
    parted = None if mul is None else _parted(links, mul, (op,))
    if mul is None or number is None or parted is None:
        return scaled, 1.0
    chain.insert(0, mul)
    return parted[0], number


def _parted(links: DefUse, node: Node, ops: tuple[str, ...]) -> tuple[Tensor, Tensor] | None:
    """Return the input of a node that one of these ops computes, and the other input."""
    one, other = node.inputs
    assert one is not None
    assert other is not None
    for source, rest in ((one, other), (other, one)):
        if any(links.sole_producer(source, op) is not None for op in ops):
            return source, rest
    return None


def _is_adjoint(node: Node) -> tuple[bool, bool]:
    return bool(node.options.get("adj_x")), bool(node.options.get("adj_y"))
