# SPDX-License-Identifier: Apache-2.0
"""All that is known of a graph before it runs: shapes, then values, then ranges of indices."""

from __future__ import annotations

from collections.abc import Mapping

from delegate.graph.edit import with_shapes
from delegate.graph.fold import fold
from delegate.graph.ir import Graph
from delegate.graph.ranges import with_ranges


def infer(graph: Graph, shapes: Mapping[int, tuple[int, ...]] | None = None) -> Graph:
    """Return the graph with all that follows from its constants and shapes.

    `shapes`: those TFLite has now, by tensor index. None: TFLite is not asked, and the file's are
    the model's.
    """
    return with_ranges(fold(graph if shapes is None else with_shapes(graph, shapes)))
