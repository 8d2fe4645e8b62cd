# SPDX-License-Identifier: Apache-2.0
"""Verdicts on nodes, and as text: it runs on the device, or why it stays on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from delegate.graph.ir import Graph, Tensor


class KilledReason(str):
    """A reason why a node stays on the CPU: its kernels have killed child processes."""

    __slots__ = ()


class Verdict(NamedTuple):
    """One node's verdict. A tuple, so that users may write `for node, op, reason in verdicts`."""

    node: int  # index in the file, which is TFLite's node index
    op: str
    reason: str | None  # why the node stays on the CPU; None: it runs on the device

    @property
    def is_taken(self) -> bool:
        """Whether the node runs on the device."""
        return self.reason is None

    @property
    def is_lost(self) -> bool:
        """Whether it stays on the CPU because its kernels have killed child processes."""
        return isinstance(self.reason, KilledReason)

    def refused(self, reason: str) -> Verdict:
        """Return the verdict of a node that stays on the CPU; an earlier reason is kept."""
        return self._replace(reason=reason) if self.is_taken else self


def graph_table(graph: Graph, verdicts: Sequence[Verdict]) -> str:
    """Return a row per node, then the refusals grouped by op and reason with counts."""
    rows = [("node", "op", "inputs", "outputs", "shape", "dtype", "scale", "verdict")]
    for node, verdict in zip(graph.nodes, verdicts, strict=True):
        first = node.outputs[0] if node.outputs else None
        rows.append(
            (
                str(verdict.node),
                verdict.op,
                ",".join("-" if t is None else str(t.index) for t in node.inputs),
                ",".join(str(t.index) for t in node.outputs),
                "x".join(map(str, first.shape)) if first else "",
                first.dtype if first else "",
                _scale(first),
                verdict.reason or ("constant" if first and first.is_folded else "opencl"),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    ]
    for (op, reason), count in refusals(verdicts):
        lines.append(f"{count} x {op}: {reason}")
    return "\n".join(lines)


def refusals(verdicts: Sequence[Verdict]) -> list[tuple[tuple[str, str], int]]:
    """Return ((op, reason), count), the most frequent first."""
    reasons = [(each.op, each.reason) for each in verdicts if each.reason is not None]
    return Counter(reasons).most_common()


def _scale(tensor: Tensor | None) -> str:
    if tensor is None or tensor.quantization is None:
        return ""
    scales = tensor.quantization.scale
    return f"{scales[0]:g}" if len(scales) == 1 else f"{len(scales)} scales"
