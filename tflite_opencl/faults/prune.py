# SPDX-License-Identifier: Apache-2.0
"""Drops what a kernel does not use: other functions and types, and branches of literal conditions.

Each change keeps the program's meaning, so that a correct driver still passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflite_opencl.faults.preprocessor import LINE_END
from tflite_opencl.faults.tokens import Token, closing, integer

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
# A literal condition is the whole operand of ?: if one of these precedes it.
_BEFORE = ("(", "[", ",", "=", "+=", "-=", "*=", "return", "{", "}", ";", "?", ":")
_TYPES = ("typedef", "struct", "enum", "union")


@dataclass(frozen=True, slots=True)
class _Item:
    """A declaration or definition at the top level."""

    tokens: tuple[str, ...]
    names: frozenset[str]  # that it declares; none: it is always kept

    @property
    def words(self) -> frozenset[str]:
        """The identifiers in it."""
        return frozenset(text for text in self.tokens if Token(text).is_word)


def pruned(tokens: Sequence[str], kernels: Sequence[str]) -> list[str]:
    """Return the tokens of a program that has only what these kernels need."""
    items = _items(_without_dead_branches([*tokens]))
    used, before = {*kernels}, set[str]()
    while used != before:
        before = {*used}
        for item in items:
            if not item.names or item.names & used:
                used |= item.words
    return [text for item in items if not item.names or item.names & used for text in item.tokens]


def _items(tokens: Sequence[str]) -> list[_Item]:
    found: list[_Item] = []
    begin = at = 0
    while at < len(tokens):
        text = tokens[at]
        if text.startswith("#") and begin == at:
            at += 1 + (tokens[at + 1 : at + 2] == [LINE_END])
        elif text in _OPENING:
            is_body = text == "{" and tokens[begin] not in _TYPES and "=" not in tokens[begin:at]
            at = closing(tokens, at) + 1
            if not is_body:
                continue
        else:
            at += 1
            if text != ";":
                continue
        own = tuple(tokens[begin:at])
        if own != (";",):
            found.append(_Item(own, _names(own)))
        begin = at
    return found


def _names(own: Sequence[str]) -> frozenset[str]:
    """Return what an item declares."""
    if own[0].startswith("#"):
        return frozenset()
    names, at = set[str](), 0
    if own[0] in _TYPES:
        names = {own[at - 1] for at in range(1, len(own)) if own[at] in (";", "{")}
        if "enum" in own and "{" in own:
            names |= {text for text in own if Token(text).is_word}
    while at < len(own) and own[0] not in _TYPES:
        if own[at] == "__attribute__":
            at = closing(own, at + 1) + 1
        elif own[at] in ("(", "=", "[", ";", "{"):
            names.add(own[at - 1])
            break
        else:
            at += 1
    return frozenset(name for name in names if Token(name).is_word)


def _without_dead_branches(tokens: list[str]) -> list[str]:
    """Return the tokens without the branches of `if` and ?: that a literal condition excludes."""
    at = 0
    while at < len(tokens):
        if tokens[at] == "?" and (found := _conditional(tokens, at)) is not None:
            begin, end, chosen = found
            tokens[begin:end] = chosen
            at = begin
        elif tokens[at] == "if" and (found := _if(tokens, at)) is not None:
            begin, end, chosen = found
            tokens[begin:end] = chosen
        else:
            at += 1
    return tokens


def _literal(tokens: Sequence[str]) -> int | None:
    """Return the value of a literal, with brackets and ! around it; None: it is something else."""
    if len(tokens) == 1:
        return integer(tokens[0])
    if len(tokens) > 1 and tokens[0] == "!":
        found = _literal(tokens[1:])
        return None if found is None else int(not found)
    if len(tokens) > 2 and tokens[0] == "(" and closing(tokens, 0) == len(tokens) - 1:
        return _literal(tokens[1:-1])
    return None


def _conditional(tokens: list[str], mark: int) -> tuple[int, int, list[str]] | None:
    """Return begin and end of a conditional expression, and its branch; None: not a literal's."""
    begin = mark - 1
    if tokens[begin] == ")":
        depth = 0
        while True:
            depth += (tokens[begin] in _CLOSING) - (tokens[begin] in _OPENING)
            if depth == 0:
                break
            begin -= 1
    while begin and tokens[begin - 1] == "!":
        begin -= 1
    value = _literal(tokens[begin:mark])
    if value is None or begin == 0 or tokens[begin - 1] not in _BEFORE:
        return None
    colon = end = mark + 1
    is_open, nested = True, 0
    while tokens[end] not in _CLOSING and tokens[end] not in (",", ";"):
        if tokens[end] == "?":
            nested += 1
        elif tokens[end] == ":" and is_open and nested == 0:
            colon, is_open = end, False
        elif tokens[end] == ":":
            if nested == 0:
                break  # of an outer conditional
            nested -= 1
        end = closing(tokens, end) + 1 if tokens[end] in _OPENING else end + 1
    if is_open:
        return None
    chosen = tokens[mark + 1 : colon] if value else tokens[colon + 1 : end]
    return begin, end, ["(", *chosen, ")"] if "?" in chosen else chosen


def _if(tokens: list[str], at: int) -> tuple[int, int, list[str]] | None:
    """Return begin and end of an if statement, and its branch; None: not a literal's."""
    bracket = closing(tokens, at + 1)
    value = _literal(tokens[at + 2 : bracket])
    if value is None:
        return None
    middle = _statement_end(tokens, bracket + 1)
    end, other = middle, [";"]
    if tokens[middle : middle + 1] == ["else"]:
        end = _statement_end(tokens, middle + 1)
        other = tokens[middle + 1 : end]
    return at, end, tokens[bracket + 1 : middle] if value else other


def _statement_end(tokens: Sequence[str], at: int) -> int:
    """Return the index after the statement that begins at `at`."""
    if tokens[at].startswith("#"):
        return _statement_end(tokens, at + 2)
    if tokens[at] == "{":
        return closing(tokens, at) + 1
    if tokens[at] in ("for", "while", "if", "switch"):
        end = _statement_end(tokens, closing(tokens, at + 1) + 1)
        is_chained = tokens[at] == "if" and tokens[end : end + 1] == ["else"]
        return _statement_end(tokens, end + 1) if is_chained else end
    if tokens[at] == "do":
        end = _statement_end(tokens, at + 1)
        return tokens.index(";", end) + 1
    while tokens[at] != ";":
        at = closing(tokens, at) + 1 if tokens[at] in _OPENING else at + 1
    return at + 1
