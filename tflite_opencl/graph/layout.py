# SPDX-License-Identifier: Apache-2.0
"""Graph layout: nodes as boxes in rows, and lines between them. Draws nothing; units are pixels.

A node's row follows the lowest row that it reads from. Within a row, nodes are centred below
their inputs. A line across several rows is routed on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delegate.inspect import Graph

WIDTH, HEIGHT = 220, 62  # of a box
_GAP_X, _GAP_Y = 40, 34
_LANE = 14  # distance between routed lines
_LANES = 5


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The positions of all boxes; `lines` are SVG paths, each with its two nodes."""

    boxes: dict[int, tuple[float, float]]  # node index -> left and top edge
    lines: Sequence[tuple[int, int, str]]
    width: float
    height: float


def layout_of(graph: Graph) -> GraphLayout:
    """Place every node of a graph."""
    makers = {tensor: node.index for node in graph.nodes for tensor in node.outputs}
    reads: dict[int, list[int]] = {}
    row_of: dict[int, int] = {}
    for node in graph.nodes:
        reads[node.index] = [*dict.fromkeys(makers[t] for t in node.inputs if t in makers)]
        # Nodes may be out of order in the file: later ones are ignored here.
        above = [row_of[source] for source in reads[node.index] if source in row_of]
        row_of[node.index] = max(above, default=-1) + 1
    boxes = _boxes(row_of, reads)
    lines = [
        (source, index, _line(boxes, source, index, row_of[index] - row_of[source]))
        for index, sources in reads.items()
        for source in sources
    ]
    right = max((x for x, _ in boxes.values()), default=0)
    bottom = max((y for _, y in boxes.values()), default=0)
    return GraphLayout(boxes, lines, right + WIDTH + _LANE * (_LANES + 1), bottom + HEIGHT)


def _boxes(row_of: dict[int, int], reads: dict[int, list[int]]) -> dict[int, tuple[float, float]]:
    step = WIDTH + _GAP_X
    middles: dict[int, float] = {}
    for row in sorted({*row_of.values()}):
        wanted = {}
        for index in (index for index, of in row_of.items() if of == row):
            above = [middles[source] for source in reads[index] if source in middles]
            wanted[index] = sum(above) / len(above) if above else 0.0
        members = sorted(wanted, key=lambda index: (wanted[index], index))
        middle = sum(wanted.values()) / len(wanted)
        for place, index in enumerate(members):
            middles[index] = middle + (place - (len(members) - 1) / 2) * step
    left = min(middles.values(), default=0.0)
    return {i: (middle - left, row_of[i] * (HEIGHT + _GAP_Y)) for i, middle in middles.items()}


def _line(boxes: dict[int, tuple[float, float]], source: int, target: int, passed: int) -> str:
    """Return a line from the bottom of one box to the top of another."""
    (from_x, from_y), (to_x, to_y) = boxes[source], boxes[target]
    begin_x, begin_y = from_x + WIDTH / 2, from_y + HEIGHT
    end_x, end_y = to_x + WIDTH / 2, to_y
    if passed == 1:
        middle = (begin_y + end_y) / 2
        return (
            f"M{begin_x:.0f} {begin_y:.0f}C{begin_x:.0f} {middle:.0f} "
            f"{end_x:.0f} {middle:.0f} {end_x:.0f} {end_y:.0f}"
        )
    side = max(from_x, to_x) + WIDTH + _LANE * (1 + passed % _LANES)
    half = _GAP_Y / 2
    return (
        f"M{begin_x:.0f} {begin_y:.0f}C{begin_x:.0f} {begin_y + half:.0f} {side:.0f} "
        f"{begin_y:.0f} {side:.0f} {begin_y + 2 * half:.0f}L{side:.0f} {end_y - 2 * half:.0f}"
        f"C{side:.0f} {end_y:.0f} {end_x:.0f} {end_y - half:.0f} {end_x:.0f} {end_y:.0f}"
    )
