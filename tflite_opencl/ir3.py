# SPDX-License-Identifier: Apache-2.0
"""Adreno's assembly as Mesa's ir3 prints it: how many instructions a multiply-add costs."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LABEL = re.compile(r"^(l\d+):$")
_JUMP = re.compile(r"#(l\d+)$")
_INSTRUCTION = re.compile(r"^(?:\([^)]*\) *)*[a-z]")  # with its marks: (sy)(rpt2)mad.f32
_REPEATED = re.compile(r"\(rpt(\d+)\)")
# Each product counts, as a compiler may add it apart.
_PRODUCTS = (("mad.", 1), ("mul.f", 1), ("dp4acc", 4), ("dp2acc", 2))


def hot_loop(text: str) -> float | None:
    """Return the instructions a multiply-add of the innermost loop with most of them.

    None: no loop has any. An instruction that is repeated, (rpt3), counts once, and its products
    each.
    """
    best = None
    for body in _innermost(list(_lines(text))):
        products = sum(times * _products(name) for name, times in body)
        if products and (best is None or products > best[0]):
            best = products, len(body)
    return None if best is None else round(best[1] / best[0], 2)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        own = line.removeprefix("MESA: info: ").strip()
        if _LABEL.match(own) or _INSTRUCTION.match(own):
            yield own


def _innermost(lines: list[str]) -> Iterator[list[tuple[str, int]]]:
    """Yield the instructions, and how often each is done, of the loops that hold no other loop."""
    labels = {found[1]: place for place, line in enumerate(lines) if (found := _LABEL.match(line))}
    loops = []
    for place, line in enumerate(lines):
        jump = _JUMP.search(line)
        if jump and jump[1] in labels and labels[jump[1]] <= place:
            loops.append((labels[jump[1]], place))
    for first, last in loops:
        # A loop may jump back to its head from several places: its last one counts.
        others = [each for each in loops if each != (first, last)]
        if not any(first <= begin and end <= last and begin != first for begin, end in others):
            body = [line for line in lines[first : last + 1] if not _LABEL.match(line)]
            yield [(_name(line), _times(line)) for line in body]


def _name(line: str) -> str:
    return re.sub(r"^(?:\([^)]*\) *)+", "", line)


def _times(line: str) -> int:
    repeated = _REPEATED.search(line)
    return 1 + int(repeated[1]) if repeated else 1


def _products(name: str) -> int:
    return next((count for start, count in _PRODUCTS if name.startswith(start)), 0)
