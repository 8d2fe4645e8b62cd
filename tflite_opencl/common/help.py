# SPDX-License-Identifier: Apache-2.0
"""Help texts of all commands: examples, which stand below the flags and are kept as they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

Examples = Sequence[tuple[str, str]]  # a command line, and what it does
_HEADING = "examples:"
_KEPT = "  "  # a line that begins so is not folded


class HelpFormatter(argparse.HelpFormatter):
    """Folds texts, but for lines that are indented, as examples are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            line
            if line.startswith(_KEPT)
            else super(HelpFormatter, self)._fill_text(line, width, indent)
            for line in text.split("\n")
        )


def examples_text(examples: Examples) -> str:
    """Return examples for the end of a help text."""
    lines = [_HEADING]
    for command, what in examples:
        lines += [f"{_KEPT}{command}", f"{_KEPT * 3}{what}"]
    return "\n".join(lines)


def parts_of(parser: argparse.ArgumentParser) -> tuple[str, str]:
    """Return what a parser's help ends with: the text, and the examples below it."""
    text, _, examples = (parser.epilog or "").partition(_HEADING)
    return text.strip(), examples.strip("\n")
