# SPDX-License-Identifier: Apache-2.0
"""pointwise, by passes/fuse_pointwise.py: nodes of one 8-bit tensor and constants, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import EXACT
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_same_shape, tensors_of
from delegate.ops._launches.lookup import lookup, lookup_by_channel
from delegate.ops._launches.on_host import Arithmetic, Values, on_host
from delegate.ops._registry import lower, lowers
from delegate.target import Target


@lowers("pointwise", floats=EXACT)
def lower_pointwise(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Look up what the nodes of the body compute from each 8-bit value.

    The option "tables" is their number: 1, or one for each channel.

    Raises:
        Unsupported: a node that its own op refuses, that can fail at run time, or that the host
            does not compute as TFLite does.
    """
    source, result = tensors_of(node, 1)
    for tensor in (source, result):
        if tensor.dtype not in quantized.QUANT8:
            raise Unsupported(f"{tensor.dtype}: only {' and '.join(quantized.QUANT8)}")
    require_same_shape(source, result)
    if node.body is None:
        raise Unsupported("no body: the nodes that it stands for are missing")
    steps = [(each, _arithmetic(each, target)) for each in node.body.nodes]
    tables = int(node.options["tables"])

    def entries(values: NDArray[np.int64]) -> NDArray[np.int64]:
        found = _computed(steps, source, values.reshape(-1, 1))[result]
        every: NDArray[np.int64] = np.broadcast_to(found, (values.size, tables)).T
        return every

    if tables > 1:
        return lookup_by_channel(source, result, entries, tables, target)
    return lookup(source, result, lambda values: entries(values)[0], target)


def _arithmetic(node: Node, target: Target) -> Arithmetic:
    """Return what a node computes: the arithmetic of its op's fallback kernel."""
    fallback = lower(node, target)[-1]
    if fallback.requirements:
        raise Unsupported(f"{node.op} fails at run time on some values")
    if len(fallback.launches) != 1:
        raise Unsupported(f"{node.op} is not a single launch")
    return on_host(fallback.launches[0], target.rules)


def _computed(
    steps: Sequence[tuple[Node, Arithmetic]], source: Tensor, values: NDArray[np.int64]
) -> dict[Tensor, Values]:
    """Return all values of each tensor.

    Shapes:
        values: (256, 1); -> each (256, 1 or channels)
    """
    known: dict[Tensor, Values] = {source: values}
    for node, arithmetic in steps:
        operands = []
        for tensor in node.inputs:
            assert tensor is not None
            if tensor.data is not None and tensor not in known:
                row = tensor.data.reshape(1, -1)
                known[tensor] = row if row.dtype == np.float32 else row.astype(np.int64)
            operands.append(known[tensor])
        with np.errstate(all="ignore"):
            known[node.outputs[0]] = arithmetic(*operands)
    return known
