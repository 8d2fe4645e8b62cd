# SPDX-License-Identifier: Apache-2.0
"""Quantisation parameters of tensors: per tensor, per channel, and blockwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from delegate.errors import ModelError
from delegate.format.table import Table
from delegate.graph.ir import Blocks, Quantization, Tensor


@dataclass(frozen=True, slots=True)
class BlockDetails:
    """Location of a blockwise quantised tensor's scales; TFLite ignores its zero points."""

    scales: int  # the index of a tensor
    size: int
    where: str  # for messages


def read_quantization(tensor: Table) -> Quantization | BlockDetails | None:
    """Return a tensor's quantisation, as far as known before all tensors are read."""
    table = tensor.table("quantization")
    if table is None:
        return None
    details = table.union("details")
    if details is not None and details.kind == "BlockwiseQuantization":
        return BlockDetails(details.scalar("scales"), details.scalar("block_size"), tensor.where)
    scale = table.numbers("scale")
    if not scale:
        return None
    return Quantization(
        scale=scale,
        zero_point=table.numbers("zero_point") or (0,) * len(scale),
        axis=table.scalar("quantized_dimension"),
    )


def with_blocks(
    tensors: tuple[Tensor, ...], found: Mapping[int, BlockDetails], given: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """Return the tensors with blockwise scales attached.

    A tensor whose scales are computed, or set by a caller, is unchanged.
    `found`: by tensor index; `given`: the indices of the graph's inputs.

    Raises:
        ModelError: scales that are not a tensor of the model, or an invalid block size.
    """
    new = [*tensors]
    for index, details in found.items():
        if not 0 <= details.scales < len(tensors):
            raise ModelError(
                f"{details.where}: the scales of its blocks are tensor {details.scales}, "
                f"but the model has {len(tensors)}"
            )
        if details.size < 1:
            raise ModelError(f"{details.where} has blocks of {details.size} values")
        scales = tensors[details.scales].data
        if scales is not None and details.scales not in given:
            new[index] = replace(tensors[index], blocks=Blocks(scales, details.size))
    return tuple(new)
