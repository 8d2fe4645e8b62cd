# SPDX-License-Identifier: Apache-2.0
"""Where kept values begin an arena that the executors of several programs have. Only plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from delegate.graph.ir import Tensor
from delegate.launch import Program


class Region(NamedTuple):
    """The begin of an arena, in which each value has its place."""

    offsets: Mapping[str, int]  # by name, in bytes
    size_bytes: int


NOWHERE = Region({}, 0)


def places_in(program: Program, region: Region) -> Mapping[Tensor, int]:
    """Return where values lie that a program finds, and new ones of which it finds no old one."""
    root, offsets = program.roots(), region.offsets
    found = {tensor.kept: tensor for tensor in program.inputs if tensor.kept in offsets}
    new = {t.kept: root.get(t, t) for t in program.outputs if t.kept in offsets}
    made = {tensor: name for name, tensor in new.items() if name not in found}
    places = {tensor: offsets[name] for tensor, name in made.items() if tensor.data is None}
    return places | {tensor: offsets[name] for name, tensor in found.items()}
