# SPDX-License-Identifier: Apache-2.0
"""Hybrid FULLY_CONNECTED of few rows, where a work-group shares the weights of a few channels.

With a work-item per channel most of a GPU would be idle, and accesses would not be coalesced. The
kernels are in fully_connected_row.cl.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.isa import BY_NAME, DOTS
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._convolution import hybrid
from delegate.ops._convolution.hybrid_blocks import BlockProduct, by_eights
from delegate.ops._launches.tiles import launch_of
from delegate.ops._numbers import ceil_div
from delegate.target import Target

_CHANNELS = 4  # per work-group
_MOST_ROWS = 4  # with more, other kernels share loaded weights between rows
_GROUP = 32  # int4 weights that a work-item loads at once
_MOST_BLOCKS = 512  # per row: a work-group has local memory for their floats
_FILE = "fully_connected_row"


def alternatives(product: hybrid.Product, target: Target) -> tuple[Alternative, ...]:
    """Return the alternative; none on CPUs, for many rows, or for too few channels."""
    out_c, depth = product.out_c, product.in_c
    if target.group_items == 1 or product.batch > _MOST_ROWS or out_c < _CHANNELS:
        return ()
    rows = hybrid.quantised_rows(product, target)
    words, weights = ceil_div(depth, 4), product.weights

    def pack() -> NDArray[np.int8]:
        padded = np.zeros((out_c, 4 * words), np.int8)
        padded[:, :depth] = weights.reshape(out_c, depth)
        return padded

    params = hybrid.by_rows(product, rows)
    params["channel_rows"] = params.pop("channels")
    params |= {"weights": Constant(4 * words * out_c, pack), "words": words}
    defines = product.defines | {"SCRATCH_INTS": _CHANNELS * target.group_items}
    return (_alternative("hybrid", product.batch, out_c, params, defines, rows, target),)


def of_blocks(product: BlockProduct, target: Target) -> tuple[Alternative, ...]:
    """Return the same for blockwise int4 weights."""
    (out_c, blocks), size = product.scales.shape, 2 * product.pairs.shape[2]
    is_few = product.batch <= _MOST_ROWS and blocks <= _MOST_BLOCKS
    if target.group_items == 1 or not is_few or out_c < _CHANNELS or size % _GROUP:
        return ()
    depth, pairs, scales = product.in_c, product.pairs, product.scales
    sizes = product.batch, depth, hybrid.pitch_of(depth)
    rows = hybrid.quantised(product.source, sizes, True, target)
    params: Params = {
        **rows.fields,
        "output": product.result,
        "out_c": out_c,
        "blocks": blocks,
        "groups": size // _GROUP,
        "weights": Constant(pairs.size, lambda: by_eights(pairs)),
        "scales": Constant(4 * scales.size, lambda: scales.astype(np.float32)),
        "channel_rows": product.channels(),
        **product.more(1),
    }
    defines = product.defines | {"SCRATCH_INTS": _CHANNELS * blocks}
    return (_alternative("blocks_hybrid", product.batch, out_c, params, defines, rows, target),)


def _alternative(
    family: str,
    batch: int,
    out_c: int,
    params: Params,
    defines: Defines,
    rows: hybrid.Rows,
    target: Target,
) -> Alternative:
    blocks = ceil_div(out_c, _CHANNELS)
    proven = [dot for dot in DOTS if dot.takes_int8 and dot.name in target.isa]
    dot = (*proven, BY_NAME["emulated_dot"])[0]
    launch = launch_of(
        _FILE,
        f"{_FILE}_{family}",
        batch * blocks,
        target.group_items,
        params | {"channel_blocks": blocks},
        defines | {dot.macro: 1},
    )
    return Alternative(f"{dot.name if proven else 'row'} {_CHANNELS}", (*rows.launches, launch))
