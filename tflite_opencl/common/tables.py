# SPDX-License-Identifier: Apache-2.0
"""rich's tables as plain text of a width."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def render(width: int, *parts: RenderableType) -> str:
    """Return tables as plain text."""
    console = Console(
        file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False,
        emoji=False, legacy_windows=False, force_terminal=False,
    )  # fmt: skip
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines())
