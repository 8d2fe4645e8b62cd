# SPDX-License-Identifier: Apache-2.0
"""A compiler's listing of a kernel -> how often a work-item asks each unit of the GPU.

The hot loop is the innermost loop that has most multiply-adds. What is outside of it counts once:
no listing tells how often an outer loop is passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a listing."""

    units: tuple[str, ...]  # that do it; a name a unit of this GPU, see chips.py
    products: int = 0
    times: int = 1  # it is done, (rpt2) of Adreno for one
    target: int | None = None  # the place of the instruction that it may jump to


@dataclass(frozen=True, slots=True)
class Listing:
    """What one work-item executes."""

    once: Mapping[str, int] = field(default_factory=dict)  # unit -> instructions outside the loop
    loop: Mapping[str, int] = field(default_factory=dict)  # unit -> instructions of one pass
    products: int = 0  # multiply-adds of one pass; 0: there is no hot loop
    lines: int = 0  # of the loop: one that is repeated counts once

    @property
    def lines_a_product(self) -> float | None:
        """The loop's instructions a multiply-add; None: there is no hot loop."""
        return round(self.lines / self.products, 2) if self.products else None


def listing_of(instructions: Sequence[Instruction]) -> Listing:
    """Return how often each unit is asked."""
    hot, most = range(0), 0
    for loop in _innermost(instructions):
        products = sum(instructions[at].products * instructions[at].times for at in loop)
        if products > most:
            hot, most = loop, products
    once: Counter[str] = Counter()
    loop_units: Counter[str] = Counter()
    for at, each in enumerate(instructions):
        counted = loop_units if at in hot else once
        for unit in each.units:
            counted[unit] += each.times
    return Listing(dict(once), dict(loop_units), most, len(hot))


def _innermost(instructions: Sequence[Instruction]) -> Iterator[range]:
    """Yield the places of the loops that hold no other loop."""
    loops = [
        (each.target, place)
        for place, each in enumerate(instructions)
        if each.target is not None and each.target <= place
    ]
    for first, last in loops:
        # A loop may jump back to its head from several places: its last one counts.
        others = [each for each in loops if each != (first, last)]
        if not any(first <= begin and end <= last and begin != first for begin, end in others):
            yield range(first, last + 1)
