# SPDX-License-Identifier: Apache-2.0
"""A delegate that misreads models as front ends and accelerators were reported to.

Its option `fault` names the way; without it the delegate is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, write_model
from tests.attacks.liars import Bytes, Kernel, PassThrough

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _without(*names: str, **values: Any) -> Callable[[Node], Node]:
    """Return a change of a node's options: these are 0, or have the given values."""

    def change(node: Node) -> Node:
        wanted = {**dict.fromkeys(names, 0), **values}
        own = {name: value for name, value in wanted.items() if name in node.options}
        return replace(node, options={**node.options, **own})

    return change


_CHANGES: Mapping[str, Callable[[Node], Node]] = {
    "masks": _without(*_MASKS),
    "activations": _without(fused_activation_function="NONE"),
    "resize_options": _without(align_corners=False, half_pixel_centers=False),
    "keep_num_dims": _without(keep_num_dims=False),
}


class _Misread(Kernel):
    """Runs the model with its nodes changed."""

    def __init__(self, model: bytes, fault: str) -> None:
        super().__init__(model)
        self._fault = fault
        change = _CHANGES.get(fault)
        if change is not None:
            self._model = write_model(_changed(self.graph, change))
            self._made = self.new_interpreter()

    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        super().invoke(inputs, outputs)
        read = {tensor for node in self.graph.nodes for tensor in node.inputs}
        if self._fault == "output_and_read":
            for tensor, memory in zip(self.graph.outputs, outputs, strict=True):
                if tensor in read and self.ops & {"ADD", "MAX_POOL_2D"}:
                    memory[...] = inputs[0][: memory.size]

    def spoil(self, values: NDArray[Any]) -> NDArray[Any]:
        if self._fault == "pad_rank_3" and "PAD" in self.ops and values.ndim == 3:
            return np.concatenate([np.zeros_like(values[:1]), values[:-1]])
        if self._fault == "half_sums" and "SUM" in self.ops:
            with np.errstate(over="ignore"):
                return (values * 56**2).astype(np.float16).astype(np.float32) / 56**2
        return values


def _changed(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    return replace(graph, nodes=tuple(map(change, graph.nodes)))


class misreads(PassThrough):
    """The delegate."""

    def partition(self, context: int, nodes: tuple[int, ...]) -> Any:
        return _Misread(self.model, self.options.get("fault", ""))
