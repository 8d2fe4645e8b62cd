# SPDX-License-Identifier: Apache-2.0
"""Rewrites of a partition that make it faster and change no output; one a file, in order."""

from __future__ import annotations

from collections.abc import Callable

from delegate.graph.partition import Partition
from delegate.passes import fuse_pad

Pass = Callable[[Partition], Partition]
PASSES: tuple[Pass, ...] = (fuse_pad.rewrite,)


def run_passes(partition: Partition, accepts: Callable[[Partition], bool]) -> Partition:
    """Return the partition after every pass whose result is accepted: all its nodes still lower."""
    for rewrite in PASSES:
        rewritten = rewrite(partition)
        if rewritten is not partition and accepts(rewritten):
            partition = rewritten
    return partition
