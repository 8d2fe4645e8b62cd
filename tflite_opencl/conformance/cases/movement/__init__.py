# SPDX-License-Identifier: Apache-2.0
"""Ops that only move values, of every type; a family of ops a file, and each yields its rows."""

from __future__ import annotations

from collections.abc import Iterator

from tflite_opencl.common.build import Case
from tflite_opencl.conformance.cases.movement import (
    blocks,
    fills,
    gathers,
    joins,
    orders,
    pads,
    slices,
    views,
)
from tflite_opencl.conformance.cases.movement.row import ALL, Row

# The order is kept: which cases a sample takes depends on it.
_FAMILIES = (
    views.rows,
    joins.rows,
    slices.rows,
    pads.rows,
    orders.rows,
    gathers.rows,
    fills.rows,
    blocks.rows,
)


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    rows: list[Row] = [row for family in _FAMILIES for row in family()]
    for kind in ALL:
        for row in rows:
            if kind in row.kinds:
                yield row.case(kind)
