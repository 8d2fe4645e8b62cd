# SPDX-License-Identifier: Apache-2.0
"""Formats tokens of OpenCL C as lines of at most 100 columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tflite_opencl.faults.preprocessor import LINE_END
from tflite_opencl.faults.tokens import Token

_COLUMNS = 100
_KEYWORDS = ("if", "for", "while", "switch", "return", "else", "do", "case")
_TYPE = re.compile(
    r"(?:(?:u?(?:char|short|int|long)|float|double|half)(?:2|3|4|8|16)?|void|bool|size_t|signed"
    r"|unsigned|const|volatile|restrict|\w+_t)\Z"
)
_BREAKS = (", ", "; ", " + ", " && ", " || ", " = ", " ? ")  # a line may end there
_UNARY = ("-", "+", "!", "~", "*", "&", "++", "--")


def formatted(tokens: Sequence[str]) -> str:
    """Return the tokens as text, with an indented line for each statement."""
    return "\n".join(_Layout(tokens).lines()) + "\n"


class _Layout:
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._lines: list[str] = []
        self._line: list[str] = []
        self._depth = self._brackets = 0
        self._nested = 0  # heads of statements without braces before this line
        self._outer: list[int] = []  # the same of each open brace
        self._inline: list[bool] = []  # of each open brace: whether it is an initialiser's

    def lines(self) -> list[str]:
        """Return all lines."""
        tokens = self._tokens
        for at, text in enumerate(tokens):
            after = tokens[at + 1] if at + 1 < len(tokens) else ""
            if text == LINE_END:
                continue
            if text.startswith("#") and after == LINE_END:
                self._end_line()
                self._lines.append(text)
            elif text == "{":
                self._open(at)
            elif text == "}":
                self._close(after)
            else:
                self._brackets += (text in ("(", "[")) - (text in (")", "]"))
                self._line.append(text)
                if self._brackets == 0 and not any(self._inline):
                    self._end_statement(text, after)
        self._end_line()
        return self._lines

    def _end_statement(self, text: str, after: str) -> None:
        """End the line after a statement, or after the head of one without braces."""
        is_head = self._line[0] in ("for", "while", "if") or self._line[:2] == ["else", "if"]
        if text == ";":
            self._end_line()
            self._nested = max(0, self._nested - 1) if after == "else" else 0
        elif text == ")" and is_head and after not in ("{", ";", "&&", "||"):
            self._end_line()
            self._nested += 1

    def _open(self, at: int) -> None:
        before = self._tokens[at - 1] if at else ";"
        is_inline = any(self._inline) or before in ("=", ",", "(") or self._brackets > 0
        self._inline.append(is_inline)
        self._line.append("{")
        if not is_inline:
            self._end_line()
            self._outer.append(self._nested)
            self._depth += 1 + self._nested
            self._nested = 0

    def _close(self, after: str) -> None:
        is_inline = self._inline.pop()
        if not is_inline:
            self._end_line()
            self._nested = self._outer.pop()
            self._depth -= 1 + self._nested
        self._line.append("}")
        if is_inline or after in (";", ",", "else", "while") or self._is_type(after):
            return
        self._end_line()
        self._nested = 0
        if self._depth == 0:
            self._lines.append("")

    def _is_type(self, after: str) -> bool:
        """Whether the brace ended a struct, whose name follows."""
        if self._depth or not Token(after).is_word:
            return False
        opened = next((line for line in reversed(self._lines) if line.endswith("{")), "")
        return opened.startswith(("typedef", "struct", "enum"))

    def _end_line(self) -> None:
        if self._line:
            indent = "  " * (self._depth + self._nested)
            self._lines += _wrapped(indent, _spaced(self._line))
            self._line = []


def _spaced(tokens: Sequence[str]) -> list[str]:
    """Return the tokens with the spaces before them."""
    done = [tokens[0]]
    for at in range(1, len(tokens)):
        done.append((" " if _has_space(tokens, at) else "") + tokens[at])
    return done


def _has_space(tokens: Sequence[str], at: int) -> bool:
    before, text = tokens[at - 1], tokens[at]
    if text in (")", "]", ",", ";", ".", "->") or before in ("(", "[", ".", "->"):
        return False
    if before in _UNARY and _is_unary(tokens, at - 1):
        return False
    if text == "(":
        return before in _KEYWORDS or not (Token(before).is_word or before in (")", "]"))
    if text == "[":
        return False
    if text in ("++", "--"):
        return not (Token(before).is_word or before in (")", "]"))
    if before == ")" and Token(text).is_word:
        return not _is_cast(tokens, at - 1)
    return True


def _is_unary(tokens: Sequence[str], at: int) -> bool:
    """Whether an operator has no left operand, or is a pointer's star."""
    if at == 0:
        return True
    before = tokens[at - 1]
    if tokens[at] == "*" and _TYPE.match(before):
        return True
    if before in (")", "]"):
        return before == ")" and tokens[at] not in ("++", "--") and _is_cast(tokens, at - 1)
    return before in _KEYWORDS or not (Token(before).is_word or before[0].isdigit())


def _is_cast(tokens: Sequence[str], end: int) -> bool:
    """Whether the brackets that close at `end` hold a type."""
    begin = end - 1
    while begin >= 0 and tokens[begin] not in ("(", ")"):
        begin -= 1
    inside = tokens[begin + 1 : end]
    before = tokens[begin - 1] if begin > 0 else ""
    is_call = Token(before).is_word and before not in _KEYWORDS
    return bool(inside) and not is_call and bool(_TYPE.match(inside[-1]) or inside[-1] == "*")


def _wrapped(indent: str, parts: Sequence[str]) -> list[str]:
    """Return one line, or several, broken after commas and operators."""
    lines, line = list[str](), indent
    for part in parts:
        if len(line) + len(part) > _COLUMNS and line.strip():
            cut = max(map(line.rfind, _BREAKS))
            if cut > len(indent) + 8:
                keep = line.find(" ", cut + 1) if line[cut] == " " else cut + 1
                lines.append(line[:keep].rstrip())
                line = f"{indent}    {line[keep:].lstrip()}"
        line += part
    return [*lines, line.rstrip()]
