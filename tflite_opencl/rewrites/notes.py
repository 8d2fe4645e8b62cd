# SPDX-License-Identifier: Apache-2.0
"""What a pass did and what it left, with the reasons; knows no op."""

from __future__ import annotations

from dataclasses import dataclass

from delegate.inspect import Node


@dataclass(frozen=True, slots=True)
class Note:
    """One place that a pass treated, or could have treated and left."""

    node_index: int  # in the graph that the pass was given; -1: the whole graph
    op: str  # "" for the whole graph
    output: str  # name of the node's first output; "" where it has none
    treated: bool
    text: str  # what became of the node, or why it was left
    loss_db: float | None = None  # signal to quantisation noise, in dB; None: nothing was lost


class Notes:
    """Collects the notes of one pass on one graph."""

    def __init__(self) -> None:
        self.records: list[Note] = []

    def treated(self, node: Node | None, text: str, loss_db: float | None = None) -> None:
        """Note that a node was rewritten, and what became of it."""
        self._add(node, True, text, loss_db)

    def left(self, node: Node | None, reason: str) -> None:
        """Note why a node that looks like work for the pass stays as it is; None: all nodes."""
        self._add(node, False, reason, None)

    def _add(self, node: Node | None, treated: bool, text: str, loss_db: float | None) -> None:
        if node is None:
            self.records.append(Note(-1, "", "", treated, text, loss_db))
        else:
            name = node.outputs[0].name if node.outputs else ""
            self.records.append(Note(node.index, node.op, name, treated, text, loss_db))
