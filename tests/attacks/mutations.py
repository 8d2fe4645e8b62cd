# SPDX-License-Identifier: Apache-2.0
"""Mutations of a kernel: another operator, constant or bound.

Only of code: not of comments, includes, pragmas or preprocessor conditions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Operators between spaces are binary; a pointer's `*` touches its type.
_OPERATORS: Mapping[str, str] = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "&": "|",
    "|": "&",
    "^": "|",
    "<<": ">>",
    ">>": "<<",
    "+=": "-=",
    "-=": "+=",
}
_OPERATOR = re.compile(r"(?<= )(?:<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|[-+*/%<>&|^])(?= )")
# Not digits of a name, a vector component or a float.
_INTEGER = re.compile(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+)(?![\w.])")
_FLOAT = re.compile(r"(?<![\w.])\d+\.\d*(?:e[-+]?\d+)?f(?!\w)")
_MINIMUM = re.compile(r"\b(?:min|max)(?=\()")
# Strings are assembly; the argument of a work-item function is the only dimension.
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|\bget_\w+\(0\)", re.DOTALL)
_SKIPPED_LINE = re.compile(r"^\s*#\s*(?!define)|__attribute__|^\s*typedef\b")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of a kernel file."""

    file: str  # its name, with .cl or .clh
    line: int  # from 1
    column: int  # of the line, from 0
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}: `{self.old}` to `{self.new}`"


def mutations(file: str, text: str) -> Iterator[Mutation]:
    """Yield every change of a file's text, in its order."""
    code = _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    is_continued = False
    for number, line in enumerate(code.splitlines(), 1):
        # A backslash continues a directive; a macro's body is code.
        is_skipped = bool(_SKIPPED_LINE.search(line)) and not is_continued
        is_continued = line.endswith("\\")
        if is_skipped:
            continue
        begin = _body_of_define(line)
        for pattern, change in (
            (_OPERATOR, lambda old: _OPERATORS[old]),
            (_INTEGER, _another_integer),
            (_FLOAT, lambda old: f"({old} * 1.5f)"),
            (_MINIMUM, lambda old: "max" if old == "min" else "min"),
        ):
            for match in pattern.finditer(line, begin):
                yield Mutation(file, number, match.start(), match[0], change(match[0]))


def planted(mutation: Mutation, text: str) -> str:
    """Return the file's text with the change.

    Raises:
        ValueError: the text has another token there.
    """
    lines = text.splitlines(keepends=True)
    line = lines[mutation.line - 1]
    end = mutation.column + len(mutation.old)
    if line[mutation.column : end] != mutation.old:
        raise ValueError(f"{mutation}: the line is {line.strip()}")
    lines[mutation.line - 1] = line[: mutation.column] + mutation.new + line[end:]
    return "".join(lines)


def drawn(texts: Mapping[str, str], count: int, seed: int) -> list[Mutation]:
    """Return `count` random mutations, alternating between the files.

    `texts`: file name -> text.
    """
    rng = random.Random(seed)
    piles = [rng.sample(each, len(each)) for each in _by_file(texts) if each]
    rng.shuffle(piles)
    chosen: list[Mutation] = []
    while piles and len(chosen) < count:
        chosen += [pile.pop() for pile in piles][: count - len(chosen)]
        piles = [pile for pile in piles if pile]
    return chosen


def includers(texts: Mapping[str, str], file: str) -> frozenset[str]:
    """Return the .cl files that include this file, and itself."""
    reached = {file}
    while True:
        more = {
            name
            for name, text in texts.items()
            if name not in reached and any(f'#include "{other}"' in text for other in reached)
        }
        if not more:
            return frozenset(name for name in reached if name.endswith(".cl"))
        reached |= more


def _by_file(texts: Mapping[str, str]) -> Sequence[list[Mutation]]:
    return [list(mutations(name, text)) for name, text in sorted(texts.items())]


def _body_of_define(line: str) -> int:
    """Return the offset of a macro's body; 0 on other lines."""
    match = re.match(r"\s*#\s*define\s+\w+(?:\([^)]*\))?", line)
    return match.end() if match else 0


def _another_integer(old: str) -> str:
    value = int(old, 0)
    return hex(value + 1) if old[:2].lower() == "0x" else str(value + 1)
