# SPDX-License-Identifier: Apache-2.0
"""Expands the macros of a kernel's source and drops the branches of #if that are not compiled.

A condition may depend on macros that only the driver knows, such as FP_FAST_FMAF: the caller asks
the driver and gives the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tflite_opencl.faults.tokens import Token, closing, tokens_of, value_of, without_comments

LINE_END = "\n"  # the token after a directive that stays in the source


@dataclass(frozen=True, slots=True)
class _Macro:
    parameters: tuple[str, ...] | None  # None: it takes none, not even brackets
    body: tuple[Token, ...]


class MacroExpander:
    """One pass over a source.

    Attributes:
        unknown: the conditions that `answers` lacks, as text for #if.
    """

    def __init__(self, answers: Mapping[str, bool]) -> None:
        self._answers = answers
        self.unknown: dict[str, None] = {}
        self._macros: dict[str, _Macro] = {}
        self._done: list[str] = []
        self._waiting: list[Token] = []
        # Of each open #if: whether this branch is compiled, and whether one of it was.
        self._branches: list[tuple[bool, bool]] = []

    def run(self, source: str) -> list[str]:
        """Return the tokens that the compiler sees. Raises: ValueError: a malformed source."""
        for line in without_comments(source).replace("\\\n", " ").splitlines():
            text = line.strip()
            if text.startswith("#"):
                self._flush()
                self._directive(text[1:].strip())
            elif self._is_on():
                self._waiting += tokens_of(text)
        self._flush()
        if self._branches:
            raise ValueError("an #if is not closed")
        return self._done

    def _is_on(self) -> bool:
        return all(is_on for is_on, _ in self._branches)

    def _flush(self) -> None:
        self._done += _with_pragmas([token.text for token in self._expanded(self._waiting)])
        self._waiting = []

    def _directive(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word.startswith("if("):
            word, rest = "if", text[2:]
        rest = rest.strip()
        if word in ("if", "ifdef", "ifndef"):
            condition = rest if word == "if" else f"{'!' * (word == 'ifndef')}defined({rest})"
            is_on = self._is_on() and self._holds(condition)
            self._branches.append((is_on, is_on or not self._is_on()))
        elif word == "elif":
            _, was_on = self._branches.pop()
            is_on = not was_on and self._is_on() and self._holds(rest)
            self._branches.append((is_on, was_on or is_on))
        elif word == "else":
            _, was_on = self._branches.pop()
            self._branches.append((not was_on and self._is_on(), True))
        elif word == "endif":
            self._branches.pop()
        elif self._is_on():
            self._statement(word, rest, text)

    def _statement(self, word: str, rest: str, text: str) -> None:
        if word == "define":
            tokens = tokens_of(rest)
            name, after = tokens[0].text, rest[len(tokens[0].text) :]
            if after.startswith("("):
                end = after.index(")")
                names = [part.strip() for part in after[1:end].split(",")]
                parameters = tuple(filter(None, names))
                self._macros[name] = _Macro(parameters, tuple(tokens_of(after[end + 1 :])))
            else:
                self._macros[name] = _Macro(None, tuple(tokens[1:]))
        elif word == "undef":
            self._macros.pop(rest, None)
        elif word == "error":
            raise ValueError(f"#error {rest}")
        elif word in ("pragma", "include"):
            self._done += [f"#{text}", LINE_END]

    def _holds(self, condition: str) -> bool:
        """Whether a condition is true; asked of `answers` if only the driver knows."""
        tokens, plain = tokens_of(condition), list[Token]()
        while tokens:
            token = tokens.pop(0)
            if token.text != "defined":
                plain.append(token)
                continue
            has_brackets = tokens[0].text == "("
            name = tokens[has_brackets].text
            del tokens[: 3 if has_brackets else 1]
            if name in self._macros:
                plain.append(Token("1"))
            else:  # hidden: else it would be expanded
                plain += [Token(each, frozenset([name])) for each in ("defined", "(", name, ")")]
        texts = [token.text for token in self._expanded(plain)]
        if not any(Token(text).is_word for text in texts):
            return bool(value_of(texts))
        text = " ".join(texts)
        if text not in self._answers:
            self.unknown[text] = None
        return self._answers.get(text, _without_driver(texts))

    def _expanded(self, tokens: Iterable[Token]) -> list[Token]:
        left, done = deque(tokens), list[Token]()
        while left:
            token = left.popleft()
            macro = self._macros.get(token.text) if token.text not in token.hidden else None
            if macro is None:
                done.append(token)
            elif macro.parameters is None:
                hidden = token.hidden | {token.text}
                left.extendleft(reversed(_substituted(macro, {}, {}, hidden)))
            elif not left or left[0].text != "(":
                done.append(token)
            else:
                arguments, last = _arguments(left)
                hidden = (token.hidden & last.hidden) | {token.text}
                given = dict(zip(macro.parameters, arguments, strict=False))
                if len(given) < len(macro.parameters):
                    raise ValueError(f"{token.text} has too few arguments")
                full = {name: self._expanded(each) for name, each in given.items()}
                left.extendleft(reversed(_substituted(macro, given, full, hidden)))
        return done


def _without_driver(texts: Sequence[str]) -> bool:
    """Return a condition's value if no driver defines anything."""
    left, plain = [*texts], list[str]()
    while left:
        text = left.pop(0)
        if Token(text).is_word and left[:1] == ["("]:  # defined(NAME), __has_builtin(NAME)
            del left[: closing(left, 0) + 1]
        plain.append("0" if Token(text).is_word else text)
    return bool(value_of(plain))


def _arguments(left: deque[Token]) -> tuple[list[list[Token]], Token]:
    """Take a macro's arguments from the tokens; return them and the closing bracket."""
    left.popleft()
    found, depth = [list[Token]()], 0
    while left:
        token = left.popleft()
        if token.text == ")" and depth == 0:
            return found, token
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text == "," and depth == 0:
            found.append([])
        else:
            found[-1].append(token)
    raise ValueError("the arguments of a macro do not end")


def _substituted(
    macro: _Macro,
    given: Mapping[str, Sequence[Token]],
    full: Mapping[str, Sequence[Token]],
    hidden: frozenset[str],
) -> list[Token]:
    """Return a macro's body with its arguments: as given beside # and ##, else expanded."""
    done: list[Token] = []
    body, at, joins, has_left = macro.body, 0, False, False
    while at < len(body):
        text = body[at].text
        if text == "##":
            joins, at = True, at + 1
            continue
        if text == "#" and at + 1 < len(body) and body[at + 1].text in given:
            words = " ".join(token.text for token in given[body[at + 1].text])
            more = [Token('"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"')]
            at += 1
        elif text in given:
            is_beside = joins or (at + 1 < len(body) and body[at + 1].text == "##")
            more = [*(given if is_beside else full)[text]]
        else:
            more = [body[at]]
        if joins and has_left and more:
            done[-1:] = tokens_of(done[-1].text + more[0].text)
            more = more[1:]
        else:
            has_left = bool(more) or (joins and has_left)
        done += more
        joins, at = False, at + 1
    return [Token(token.text, token.hidden | hidden) for token in done]


def _with_pragmas(tokens: list[str]) -> list[str]:
    """Return the tokens with directives in place of _Pragma("...")."""
    done: list[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at] == "_Pragma" and tokens[at + 1 : at + 2] == ["("]:
            text = tokens[at + 2][1:-1].replace('\\"', '"').replace("\\\\", "\\")
            done += [f"#pragma {text}", LINE_END]
            at += 4
        else:
            done.append(tokens[at])
            at += 1
    return done
