# SPDX-License-Identifier: Apache-2.0
"""What a tensor's table says of its quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from delegate.errors import ModelError
from delegate.format.table import Table
from delegate.graph.ir import Blocks, Quantization, Tensor


@dataclass(frozen=True, slots=True)
class BlockDetails:
    """Where the scales of a tensor in blocks are; its zero points no TFLite reads."""

    scales: int  # the index of a tensor
    size: int
    where: str  # for messages


def read_quantization(tensor: Table) -> Quantization | BlockDetails | None:
    """Return what is known of a tensor before all tensors are."""
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
    """Return the tensors with the scales of those that are in blocks.

    A tensor whose scales are not known stays without: they are computed, or a caller gives them.
    `found`: by the tensor's index; `given`: the indices of the graph's inputs.

    Raises:
        ModelError: scales that are no tensor of the model, blocks of less than one value.
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
