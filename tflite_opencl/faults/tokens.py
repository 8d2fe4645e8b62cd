# SPDX-License-Identifier: Apache-2.0
"""OpenCL C as tokens, and its conditions of #if."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<word>[A-Za-z_]\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
    | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<mark>\.\.\.|<<=|>>=|\#\#|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s\w])
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*\Z")
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: a << b, ">>": lambda a, b: a >> b},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {
        "*": lambda a, b: a * b,
        "/": lambda a, b: int(a / b) if b else 0,
        "%": lambda a, b: a - b * int(a / b) if b else 0,
    },
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token, and the macros that do not expand in it again."""

    text: str
    hidden: frozenset[str] = frozenset()

    @property
    def is_word(self) -> bool:
        """Whether it is an identifier or a keyword."""
        return _WORD.match(self.text) is not None


def without_comments(text: str) -> str:
    """Return a source without comments; line ends stay."""
    return _COMMENT.sub(lambda found: found[1] or re.sub(r"[^\n]+", " ", found[0]), text)


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text without comments."""
    return [Token(found[0]) for found in _TOKEN.finditer(text)]


def closing(tokens: Sequence[str], start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(tokens)):
        if tokens[place] in ("(", "[", "{"):
            depth += 1
        elif tokens[place] in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return place
    raise ValueError("a bracket is not closed")


def integer(text: str) -> int | None:
    """Return the value of an integer literal; None: it is none."""
    digits = text.rstrip("uUlL")
    try:
        is_octal = digits.isdigit() and len(digits) > 1 and digits[0] == "0"
        return int(digits, 8 if is_octal else 0)
    except ValueError:
        return None


def value_of(tokens: Sequence[str]) -> int:
    """Return the value of a condition of integers. Raises: ValueError: it is none."""
    value, end = _operation(tokens, 0, 0)
    if end != len(tokens):
        raise ValueError(f"{' '.join(tokens)} is no condition")
    return value


def _operation(tokens: Sequence[str], at: int, level: int) -> tuple[int, int]:
    if level == len(_LEVELS):
        return _operand(tokens, at)
    value, at = _operation(tokens, at, level + 1)
    while at < len(tokens) and (apply := _LEVELS[level].get(tokens[at])):
        other, at = _operation(tokens, at + 1, level + 1)
        value = apply(value, other)
    return value, at


def _operand(tokens: Sequence[str], at: int) -> tuple[int, int]:
    if at >= len(tokens):
        raise ValueError("a condition ends early")
    if tokens[at] == "(":
        end = closing(tokens, at)
        return value_of(tokens[at + 1 : end]), end + 1
    if tokens[at] in ("!", "-", "~", "+"):
        value, end = _operand(tokens, at + 1)
        return {"!": int(not value), "-": -value, "~": ~value}.get(tokens[at], value), end
    found = integer(tokens[at])
    if found is None:
        raise ValueError(f"{tokens[at]} is no integer")
    return found, at + 1
