# SPDX-License-Identifier: Apache-2.0
"""Rewrites of a partition that make it faster and change no output; one a file, in order."""

from __future__ import annotations

from collections.abc import Callable

from delegate.graph.ir import Node
from delegate.graph.partition import Partition
from delegate.passes.on_partitions import fuse_add, fuse_pad

# Whether a node that a pass would make lowers and builds; else it leaves things as they are.
Accepts = Callable[[Node], bool]
Pass = Callable[[Partition, Accepts], Partition]
PASSES: tuple[Pass, ...] = (fuse_pad.rewrite, fuse_add.rewrite)


def run_passes(partition: Partition, accepts: Accepts) -> Partition:
    """Return the partition after every pass; the same object where none changed it."""
    for rewrite in PASSES:
        partition = rewrite(partition, accepts)
    return partition
