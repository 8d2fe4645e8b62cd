# SPDX-License-Identifier: Apache-2.0
"""Rewrites of a partition that make it faster and change no output; one a file, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from delegate.graph.ir import Node
from delegate.graph.partition import Partition
from delegate.passes import (
    fuse_add,
    fuse_attention,
    fuse_gate,
    fuse_layer_norm,
    fuse_logistic,
    fuse_pad,
    fuse_rms_norm,
    fuse_rope,
    fuse_scale,
    fuse_shifts,
    fuse_shuffle,
    fuse_silu,
)

# Whether a node that a pass would make lowers and builds; else it leaves things as they are.
Accepts = Callable[[Node], bool]
Pass = Callable[[Partition, Accepts], Partition]
# In the order in which they run: a convolution that pads may take an ADD, too, and a gate has the
# pair that fuse_logistic looks for.
PASSES: Mapping[str, Pass] = {
    "fuse_pad": fuse_pad.rewrite,
    "fuse_add": fuse_add.rewrite,
    "fuse_shuffle": fuse_shuffle.rewrite,
    "fuse_silu": fuse_silu.rewrite,
    "fuse_attention": fuse_attention.rewrite,
    "fuse_rms_norm": fuse_rms_norm.rewrite,
    "fuse_layer_norm": fuse_layer_norm.rewrite,
    "fuse_scale": fuse_scale.rewrite,
    "fuse_rope": fuse_rope.rewrite,
    "fuse_gate": fuse_gate.rewrite,
    "fuse_logistic": fuse_logistic.rewrite,
    "fuse_shifts": fuse_shifts.rewrite,
}


def run_passes(
    partition: Partition, accepts: Accepts, names: Collection[str] = tuple(PASSES)
) -> Partition:
    """Return the partition after the passes of these names; the same one where none changed it."""
    for name, rewrite in PASSES.items():
        if name in names:
            partition = rewrite(partition, accepts)
    return partition
