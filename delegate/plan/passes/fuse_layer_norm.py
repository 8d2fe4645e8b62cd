# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation becomes one kernel.

x -MEAN of rows-> m, (x, m) -SQUARED_DIFFERENCE-> -MEAN of rows-> -ADD epsilon-> -RSQRT->
-MUL scale-> s, (m, s) -MUL-> p, (offset, p) -SUB-> d, (x, s) -MUL-> t, (t, d) -ADD-> y
    becomes        (x, scale, offset) -layer_norm-> y

Converters leave out a scale of ones. Where a MEAN drops its axis, RESHAPEs bring it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from delegate.graph.def_use import DefUse
from delegate.graph.ir import Node, Tensor
from delegate.plan.passes.matching import Match, is_of_rows, is_plain, number_of

_Pair = tuple[Tensor, Tensor]


class _Rows(NamedTuple):
    """What a norm reads: x, a MEAN of its rows, and the factor of x, from RSQRT."""

    source: Tensor
    mean: Node
    factor: Tensor


def found_at(links: DefUse, node: Node) -> Match | None:
    """Return the nodes that end with this ADD, RESHAPEs included."""
    if node.op != "ADD" or not is_plain(node):
        return None
    for scaled, shifted in _orders(node):
        times, moved = links.producer(scaled, "MUL"), _producer(links, shifted, "SUB")
        if times is None or moved is None or len(moved.inputs) != 2:
            continue
        rows = _rows(links, times, moved) if shifted.shape in _shapes(scaled) else None
        match = None if rows is None else _norm(links, node, (times, moved), rows)
        if match is not None:
            return match
    return None


def _rows(links: DefUse, times: Node, moved: Node) -> _Rows | None:
    """Return what (x, s) -MUL-> and (offset, (m, s) -MUL->) -SUB-> read, if it is the same s."""
    product = moved.inputs[1]
    by_mean = _producer(links, product, "MUL")
    if by_mean is None:
        return None
    for source, factor in _orders(times):
        for average, other in _orders(by_mean):
            mean = _producer(links, average, "MEAN")
            shapes = {*_shapes(source)}
            are_aligned = average.shape == other.shape or {average.shape, other.shape} <= shapes
            is_same = (
                _before_reshapes(links, factor) is _before_reshapes(links, other)
                and factor.shape in shapes
            )
            if mean is not None and mean.inputs[0] is source and is_same and are_aligned:
                return _Rows(source, mean, factor)
    return None


def _norm(links: DefUse, node: Node, ends: tuple[Node, Node], rows: _Rows) -> Match | None:
    """Return the match that ends with `node` and these two, if nothing else reads its inside."""
    times, moved = ends
    by_mean = _producer(links, moved.inputs[1], "MUL")
    scaling = links.producer(_before_reshapes(links, rows.factor), "MUL")
    root, scale = (rows.factor, None) if scaling is None else _scaled_root(links, scaling)
    rsqrt = _producer(links, root, "RSQRT")
    raised = None if rsqrt is None else _producer(links, rsqrt.inputs[0], "ADD")
    epsilon = None if raised is None else number_of(raised)
    if rsqrt is None or raised is None or epsilon is None or by_mean is None:
        return None
    variance = next((m for t in raised.inputs if (m := _producer(links, t, "MEAN"))), None)
    square = None if variance is None else links.producer(variance.inputs[0], "SQUARED_DIFFERENCE")
    if variance is None or square is None or not _is_of_source(links, square, rows):
        return None
    offset, product = moved.inputs
    is_zero = offset is not None and _is_zero(offset)
    # An offset of columns is aligned with whole rows, or with what has one value a row.
    is_aligned = is_zero or (product is not None and product.shape in _shapes(rows.source))
    are_rows = all(is_of_rows(each, keeps_axis=False) for each in (rows.mean, variance))
    chain = {node, times, moved, by_mean, rsqrt, raised, variance, square, rows.mean}
    chain |= set() if scaling is None else {scaling}
    region = _region(links, node, rows.source)
    is_whole = {each for each in region if each.op != "RESHAPE"} == chain
    if not (is_aligned and are_rows and is_whole and all(map(is_plain, chain))):
        return None
    nodes = sorted(region, key=links.places.__getitem__)
    if not all(_is_inside(links, each.outputs[0], region) for each in nodes[:-1]):
        return None
    made = replace(
        node,
        op="layer_norm",
        inputs=(rows.source, scale, None if is_zero else offset),
        options={"epsilon": epsilon},
        inner=tuple(each.outputs[0] for each in nodes[:-1]),
    )
    return nodes, made


def _orders(node: Node) -> Iterator[_Pair]:
    """Yield the two inputs of a node in both orders."""
    if len(node.inputs) == 2:
        one, other = node.inputs
        if one is not None and other is not None:
            yield from ((one, other), (other, one))


def _shapes(source: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes that broadcast over rows: the rows', and that of one value a row."""
    return source.shape, (*source.shape[:-1], 1)


def _before_reshapes(links: DefUse, tensor: Tensor | None) -> Tensor | None:
    """Return the tensor that RESHAPEs made this one of."""
    while (reshape := links.producer(tensor, "RESHAPE")) is not None:
        tensor = reshape.inputs[0]
    return tensor


def _producer(links: DefUse, tensor: Tensor | None, op: str) -> Node | None:
    return links.producer(_before_reshapes(links, tensor), op)


def _scaled_root(links: DefUse, scaling: Node) -> tuple[Tensor | None, Tensor | None]:
    """Return the inputs of the MUL by a scale: what RSQRT computes for each row, and the scale."""
    for root, scale in _orders(scaling):
        is_column = root.shape == (*scaling.outputs[0].shape[:-1], 1)
        if _producer(links, root, "RSQRT") is not None and is_column:
            return root, scale
    return None, None


def _is_of_source(links: DefUse, square: Node, rows: _Rows) -> bool:
    """Whether a SQUARED_DIFFERENCE is of the rows and their mean."""
    return any(
        source is rows.source
        and _producer(links, average, "MEAN") is rows.mean
        and average.shape in _shapes(source)
        for source, average in _orders(square)
    )


def _is_zero(tensor: Tensor) -> bool:
    return tensor.data is not None and tensor.data.size == 1 and not tensor.data.any()


def _region(links: DefUse, node: Node, source: Tensor) -> set[Node]:
    """Return the nodes between a tensor and this node."""
    region, pending = set[Node](), [node]
    while pending:
        each = pending.pop()
        region.add(each)
        makers = (links.producer(t) for t in each.inputs if t is not None and t is not source)
        pending += [maker for maker in makers if maker is not None and maker not in region]
    return region


def _is_inside(links: DefUse, tensor: Tensor, region: set[Node]) -> bool:
    return {*links.consumers(tensor)} <= region and not links.is_output(tensor)
