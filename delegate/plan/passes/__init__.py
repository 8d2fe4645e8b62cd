# SPDX-License-Identifier: Apache-2.0
"""Graph rewrites that make a partition faster without changing outputs: one a file, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from delegate.graph.ir import Node
from delegate.graph.partition import Partition
from delegate.plan.passes import (
    fuse_add,
    fuse_attention,
    fuse_gate,
    fuse_layer_norm,
    fuse_logistic,
    fuse_pad,
    fuse_pointwise,
    fuse_rms_norm,
    fuse_rope,
    fuse_scale,
    fuse_shifts,
    fuse_shuffle,
)
from delegate.plan.passes.matching import Find, fused

# In the order in which they run: a convolution that pads may also absorb an ADD, chains that begin
# and end with 8 bits contain float nodes, and a gate contains the pair that fuse_logistic matches.
PASSES: Mapping[str, Find] = {
    "fuse_pad": fuse_pad.found_at,
    "fuse_add": fuse_add.found_at,
    "fuse_shuffle": fuse_shuffle.found_at,
    "fuse_pointwise": fuse_pointwise.found_at,
    "fuse_attention": fuse_attention.found_at,
    "fuse_rms_norm": fuse_rms_norm.found_at,
    "fuse_layer_norm": fuse_layer_norm.found_at,
    "fuse_scale": fuse_scale.found_at,
    "fuse_rope": fuse_rope.found_at,
    "fuse_gate": fuse_gate.found_at,
    "fuse_logistic": fuse_logistic.found_at,
    "fuse_shifts": fuse_shifts.found_at,
}


def run_passes(
    partition: Partition, accepts: Callable[[Node], bool], names: Collection[str] = tuple(PASSES)
) -> Partition:
    """Return the partition after the named passes; the same object if nothing changed.

    `accepts`: whether a fused node lowers and builds; else the match is left alone.
    """
    for name, find in PASSES.items():
        if name in names:
            partition = fused(partition, accepts, find)
    return partition
