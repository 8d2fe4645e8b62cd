# SPDX-License-Identifier: Apache-2.0
"""Formats a rewritten model as text and JSON, and lists passes and bundles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple
from typing import Any

from rich import box
from rich.table import Table

from tflite_opencl.console.tables import render
from tflite_opencl.rewrites import Note, PassStep, RewrittenModel, graph_passes, pass_bundles
from tflite_opencl.rewrites.agreement import Agreement

_MOST_LAYERS = 5  # of a lossy pass, those with the largest loss
_MOST_REASONS = 12


def listing(width: int) -> str:
    """Return all passes and bundles."""
    passes = Table("pass", "", "what it does", "who wants it", box=box.SIMPLE)
    for each in graph_passes().values():
        passes.add_row(each.name, _kind(each.name), each.does, each.wanted_by)
    bundles = Table("--for", "passes", "where it comes from", box=box.SIMPLE)
    for bundle in pass_bundles().values():
        bundles.add_row(bundle.name, "\n".join(bundle.passes), bundle.why)
    return render(width, passes, bundles)


def text_of(made: RewrittenModel, found: Agreement | None, width: int) -> str:
    """Return a row per pass, the largest losses, the nodes left and why, and the agreement."""
    table = Table(
        "pass", "treated", "left", "nodes", "multiply-adds", "weights", "", box=box.SIMPLE
    )
    lossy: list[str] = []
    left: list[str] = []
    for steps in zip(*made.steps, strict=True):
        name, notes = steps[0].name, [note for step in steps for note in step.notes]
        sizes = ([astuple(size) for size in (step.before, step.after)] for step in steps)
        before, after = (map(sum, zip(*each, strict=True)) for each in zip(*sizes, strict=True))
        treated = sum(note.treated for note in notes)
        changes = (_change(*each) for each in zip(before, after, strict=True))
        table.add_row(name, str(treated), str(len(notes) - treated), *changes, _loss(name, notes))
        lossy += _lossy_lines(name, notes)
        left += _left_lines(name, notes)
    parts = [render(width, table), "\n".join([*lossy, *left])]
    if found is not None:
        parts.append(agreement_text(found))
    return "\n\n".join(part for part in parts if part)


def agreement_text(found: Agreement) -> str:
    """Return the agreement of both models' outputs."""
    count = f"{found.inputs} input" + "s" * (found.inputs != 1)
    head = f"both models by TFLite's {found.kernels} on {count}"
    if found.equal == found.inputs:
        return f"{head}: all outputs are bit-equal"
    unit = "quanta" if found.is_in_quanta else "in the outputs' unit"
    parts = [
        f"bit-equal on {found.equal}",
        *([] if found.same_top is None else [f"the same top-1 on {found.same_top}"]),
        f"greatest difference {found.greatest:g} {unit}",
        *([] if found.sqnr_db is None else [f"SQNR {found.sqnr_db:.1f} dB"]),
    ]
    return f"{head}: {', '.join(parts)}"


def document(made: RewrittenModel, found: Agreement | None) -> dict[str, Any]:
    """Return the facts for JSON."""
    return {
        "bytes": len(made.content),
        "subgraphs": [[_step(step) for step in steps] for steps in made.steps],
        "check": None if found is None else _finite(asdict(found)),
    }


def _step(step: PassStep) -> dict[str, Any]:
    return {
        "pass": step.name,
        "is_exact": graph_passes()[step.name].is_exact,
        "before": asdict(step.before),
        "after": asdict(step.after),
        "notes": [_finite(asdict(note)) for note in step.notes],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with null for infinity, which JSON lacks."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def _kind(name: str) -> str:
    return "exact" if graph_passes()[name].is_exact else "lossy"


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _loss(name: str, notes: Sequence[Note]) -> str:
    worst = min((note.loss_db for note in notes if note.loss_db is not None), default=None)
    return _kind(name) if worst is None else f"lossy, worst layer {worst:.1f} dB"


def _lossy_lines(name: str, notes: Sequence[Note]) -> Iterator[str]:
    losses = [(note.loss_db, note) for note in notes if note.loss_db is not None]
    for loss_db, note in sorted(losses, key=lambda each: each[0])[:_MOST_LAYERS]:
        yield f"{name}: node {note.node_index} {note.op}: {loss_db:.1f} dB: {note.text}"


def _left_lines(name: str, notes: Sequence[Note]) -> Iterator[str]:
    left = Counter((note.op or "the graph", note.text) for note in notes if not note.treated)
    for (op, reason), count in left.most_common(_MOST_REASONS):
        yield f"{name}: left {count} x {op}: {reason}"
    if len(left) > _MOST_REASONS:
        yield f"{name}: left others for {len(left) - _MOST_REASONS} more reasons"
