# SPDX-License-Identifier: Apache-2.0
"""Partition -> Partition with fp16 between its nodes: half the memory traffic, other rounding.

Requires Options.precision. Ops are unaware of it: a node is lowered in float32, and kernels that
support fp16 storage are switched by a macro, HALVES of float.clh. On devices proven to multiply
fp16, a second macro, HALF_ARITHMETIC, makes convolutions do so. Ops that only move data move fp16
as well. All other nodes keep float32, as do the partition's inputs and outputs; the nodes to_halves
and to_floats convert in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import COPY, float_result
from delegate.graph.ir import Node, Tensor
from delegate.graph.partition import Partition
from delegate.isa import FP16, FP16_STORAGE
from delegate.launch import Alternative, Constant, Launch, is_temporary, temporary
from delegate.plan.fp16.fp16_range import Ranges
from delegate.target import Target

Lower = Callable[[Node, Target], tuple[Alternative, ...]]
Field = int | Tensor | Constant
TO_FP16, TO_FLOAT32 = "to_halves", "to_floats"
_FLOAT, _HALF = "float32", "float16"
# Kernels that support fp16 storage, and their constants that are fp16, too. Others stay float32: a
# bias is added to a float32 sum.
KERNELS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        [
            *("conv_2d_float", "conv_2d_tiled_float", "conv_2d_1x1_float"),
            *("depthwise_conv_2d_float", "depthwise_conv_2d_vector_float"),
            *("depthwise_conv_2d_3x3_float", "depthwise_conv_2d_columns_float"),
        ],
        frozenset({"weights"}),
    ),
    "binary_float": frozenset({"left", "right"}),
    **dict.fromkeys(
        [
            *("activation_float", "unary_float", "prelu_float", "prelu_row_float"),
            *("pool_2d_float", "pool_2d_vector_float", "softmax_float", "softmax_row_float"),
            *("reduce", "reduce_row", "reduce_vector", "resize_bilinear"),
        ],
        frozenset(),
    ),
}
_WIDE_REGISTERS = 80  # enough for kernels that load eight fp16 values at once


@dataclass(frozen=True, slots=True, eq=False)
class Fp16Node(Node):
    """A node whose float tensors are stored as fp16."""

    full: Node = field(kw_only=True)  # the same in float32


def can_store_fp16(proven: Collection[str]) -> bool:
    """Whether a device may store fp16 at all, by its proven properties."""
    return FP16_STORAGE in proven


def in_fp16(partition: Partition, accepts: Callable[[Node], bool]) -> Partition:
    """Return the partition with fp16 between nodes that support it, if their range allows.

    `accepts`: whether a node lowers and builds. The same partition if nothing changes.
    """
    tensors, ranges = _Fp16Tensors(), Ranges()
    nodes: list[Node] = []
    as_floats, as_fp16 = set(partition.inputs), set[Tensor]()  # available in either type

    def bring(tensor: Tensor, there: set[Tensor], op: str, node: Node) -> None:
        if tensor not in there:
            ends = (tensor, tensors.of(tensor))[:: 1 if op == TO_FP16 else -1]
            nodes.append(Node(node.index, op, 1, ends[:1], ends[1:]))
            there.add(tensor)

    for node in partition.nodes:
        made = tensors.node(node) if ranges.note(node) else None
        is_worth_it = not _is_copy(node) or any(t in as_fp16 for t in node.inputs)
        is_half = made is not None and is_worth_it and accepts(made)
        there, op = (as_fp16, TO_FP16) if is_half else (as_floats, TO_FLOAT32)
        for tensor in filter(_is_computed_float, node.inputs):
            assert tensor is not None
            bring(tensor, there, op, node)
        there.update(node.outputs)
        nodes.append(made if is_half and made is not None else node)
    for tensor in filter(_is_computed_float, partition.outputs):
        bring(tensor, as_floats, TO_FLOAT32, nodes[-1])
    return replace(partition, nodes=tuple(nodes)) if as_fp16 else partition


def alternatives(node: Fp16Node, target: Target, lower: Lower) -> tuple[Alternative, ...]:
    """Return the alternatives of a node made by `in_fp16`; the last one computes in float32.

    Raises:
        Unsupported: it has no fp16 kernel.
    """
    if _is_copy(node):
        return lower(node, target)
    full = node.full
    twins = dict(zip((*full.inputs, *full.outputs), (*node.inputs, *node.outputs), strict=True))
    has_fp16 = FP16 in target.isa
    is_wide = has_fp16 and target.keeps(_WIDE_REGISTERS)
    ways = lower(full, replace(target, load_lanes=8) if is_wide else target)
    found = [
        half
        for alternative in ways
        if (half := fp16_alternative(alternative, twins, has_fp16)) is not None
    ]
    if not found:
        raise Unsupported("no fp16 kernel")
    return (*found, _between_floats(node, full, target, lower))


def of_float16(node: Node, full: Node, target: Target, lower: Lower) -> tuple[Alternative, ...]:
    """Return the alternatives of a node on float16 tensors; `full`: the float32 node.

    All compute in float32. On devices not proven to store fp16, values are converted like CAST,
    with integer operations only.

    Raises:
        Unsupported: the node does not lower in float32.
    """
    twins = dict(zip((*full.inputs, *full.outputs), (*node.inputs, *node.outputs), strict=True))
    ways = lower(full, target)
    if ways[-1].view is not None:
        source, result = (twins[tensor] for tensor in ways[-1].view)
        assert source is not None
        assert result is not None
        return (replace(ways[-1], view=(source, result)),)
    if not can_store_fp16(target.isa):
        return (_between_floats(node, full, target, lower, ("CAST", "CAST")),)
    found: list[Alternative | None] = []
    # The macro HALVES applies to everything that a kernel reads and writes.
    is_of_floats = any(map(_is_computed_float, node.inputs))
    if not is_of_floats and all(tensor.dtype == _HALF for tensor in node.outputs):
        found = [fp16_alternative(alternative, twins, has_fp16=False) for alternative in ways]
    return (*filter(None, found), _between_floats(node, full, target, lower))


class _Fp16Tensors:
    """The fp16 counterparts of float32 tensors."""

    def __init__(self) -> None:
        self._known: dict[Tensor, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """Return a float32 tensor's fp16 counterpart."""
        if tensor not in self._known:
            data = None if tensor.data is None else _rounded(tensor.data)
            self._known[tensor] = replace(tensor, dtype=_HALF, data=data)
        return self._known[tensor]

    def node(self, node: Node) -> Fp16Node | None:
        """Return the fp16 node; None if it reads or writes other types."""
        ends = (*node.inputs, *node.outputs)
        is_plain = not any(
            t is not None and (t.state_name or t.is_variable or t.is_folded) for t in ends
        )
        is_of_floats = any(map(_is_computed_float, node.inputs)) and all(
            map(_is_computed_float, node.outputs)
        )
        if (
            node.body is not None
            or float_result(node.op).is_steep
            or not (is_plain and is_of_floats)
        ):
            return None
        inputs = (self.of(t) if t is not None and t.dtype == _FLOAT else t for t in node.inputs)
        same = {each.name: getattr(node, each.name) for each in fields(node)}
        own = {"inputs": tuple(inputs), "outputs": tuple(map(self.of, node.outputs)), "full": node}
        return Fp16Node(**{**same, **own})


def _is_copy(node: Node) -> bool:
    """Whether it copies data, independent of the type."""
    return float_result(node.op).kind == COPY


def _is_computed_float(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype == _FLOAT and tensor.data is None


def _rounded(values: NDArray[np.generic]) -> NDArray[np.float16]:
    """Round to nearest fp16; out of range becomes infinity, as on the device."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def fp16_alternative(
    alternative: Alternative, twins: dict[Tensor | None, Tensor | None], has_fp16: bool
) -> Alternative | None:
    """Return a float32 alternative with fp16 storage; None if a kernel does not support it."""

    def half(tensor: Tensor) -> Tensor:
        if tensor not in twins and is_temporary(tensor) and tensor.dtype == _FLOAT:
            twins[tensor] = temporary(tensor.name, tensor.shape, _HALF)
        return twins.get(tensor) or tensor

    def value(name: str, of: Field, halves: frozenset[str]) -> Field:
        if isinstance(of, Tensor):
            return half(of)
        if isinstance(of, Constant) and name in halves:
            return Constant(of.size_bytes // 2, partial(_packed, of.pack))
        return of

    launches: list[Launch] = []
    for launch in alternative.launches:
        if launch.kernel not in KERNELS:
            return None
        halves = KERNELS[launch.kernel]
        defines = {**launch.defines, "HALVES": 1}
        if "weights" in halves and has_fp16:
            defines["HALF_ARITHMETIC"] = 1
        launches.append(
            replace(
                launch,
                params={name: value(name, of, halves) for name, of in launch.params.items()},
                reads=tuple(map(half, launch.reads)),
                writes=tuple(map(half, launch.writes)),
                defines=defines,
            )
        )
    if alternative.view is not None:
        return None
    return replace(alternative, launches=tuple(launches), copied=None)


def _packed(pack: Callable[[], NDArray[np.generic]]) -> NDArray[np.float16]:
    return _rounded(pack())


def _between_floats(
    node: Node,
    full: Node,
    target: Target,
    lower: Lower,
    ops: tuple[str, str] = (TO_FLOAT32, TO_FP16),
) -> Alternative:
    """Return a node's fallback kernels in float32, with conversions from and to fp16.

    It is the reference for the other alternatives, which round more. `ops`: the conversions.

    Raises:
        Unsupported: the node does not lower, or its result aliases its input.
    """
    own: dict[Tensor, Tensor] = {}  # fp16 -> the float32 tensor that it is converted to
    for tensor in (*node.inputs, *node.outputs):
        if tensor is not None and tensor.dtype == _HALF and tensor.data is None:
            own[tensor] = temporary(tensor.name, tensor.shape, _FLOAT)

    def launches(op: str, *ends: Tensor) -> tuple[Launch, ...]:
        return lower(Node(node.index, op, 1, ends[:1], ends[1:]), target)[-1].launches

    def floats(tensor: Tensor | None, known: Tensor | None) -> Tensor | None:
        return own.get(tensor, known) if tensor is not None else None

    inputs = tuple(map(floats, node.inputs, full.inputs))
    outputs = tuple(own.get(tensor, tensor) for tensor in node.outputs)
    last = lower(replace(full, inputs=inputs, outputs=outputs), target)[-1]
    read = dict.fromkeys(t for t in node.inputs if t in own)
    halves = {known: tensor for tensor, known in own.items()}
    needs = (replace(r, tensor=halves.get(r.tensor, r.tensor)) for r in last.requirements)
    return Alternative(
        "floats",
        (
            *(each for t in read if t is not None for each in launches(ops[0], t, own[t])),
            *last.launches,
            *(each for t in node.outputs if t in own for each in launches(ops[1], own[t], t)),
        ),
        requirements=tuple(needs),
    )
