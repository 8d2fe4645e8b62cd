# SPDX-License-Identifier: Apache-2.0
"""Random graphs whose nodes are placed by timings, measured or as if a cut had been faster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from delegate.graph.float16 import has_float16
from delegate.graph.partition import Partition
from delegate.host.placement import Placement
from delegate.inspect import Graph

MEASURED = "fastest"
_CUTS = {"first": True, "last": False}  # the part that the device has


def ways(graph: Graph) -> list[str]:
    """Return the ways to place nodes; TFLite's kernels may lack nodes on float16."""
    if len(graph.nodes) < 2 or any(map(has_float16, graph.nodes)):
        return []
    return [f"placement {each}" for each in (MEASURED, *_CUTS)]


@contextlib.contextmanager
def placed(how: str) -> Iterator[None]:
    """Make half of each partition's nodes faster on the CPU, unless that is to be measured."""

    def timed(self: Placement, group: Partition, executor: Any) -> dict[str, Any]:
        nodes = group.indices
        half = (len(nodes) + 1) // 2
        left = nodes[half:] if _CUTS[how] else nodes[:half]
        return {"device": 3.0, "cpu": 2.0, "cut": 1.0 if left else 9.0, "left": left}

    if how == MEASURED:
        yield
    else:
        with mock.patch.object(Placement, "_timed", timed):
            yield
