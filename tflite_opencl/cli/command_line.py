# SPDX-License-Identifier: Apache-2.0
"""The argument parser of all commands: dashes in flags, spelling suggestions, and examples."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tflite_opencl.cli.messages import did_you_mean
from tflite_opencl.console.errors import UsageError

Examples = Sequence[tuple[str, str]]  # a command line, and its description
_HEADING = "examples:"
_DOCUMENTS = ("--csv", "--html", "--json", "--markdown")
_KEPT = "  "  # lines with this prefix are not wrapped


class HelpFormatter(argparse.HelpFormatter):
    """Wraps text, except for indented lines such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            line
            if line.startswith(_KEPT)
            else super(HelpFormatter, self)._fill_text(line, width, indent)
            for line in text.split("\n")
        )


class Parser(argparse.ArgumentParser):
    """A parser of a command or subcommand that raises UsageError."""

    def __init__(self, *, examples: Examples, notes: str = "", **settings: Any) -> None:
        """`notes`: help text after the flags, before the examples."""
        epilog = f"{notes}\n\n{examples_text(examples)}".strip()
        super().__init__(epilog=epilog, formatter_class=HelpFormatter, **settings)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the options; --help ends in SystemExit. Raises: UsageError."""
        options, unknown = self.parse_known_args(with_underscores(arguments))
        if unknown:
            chosen = subparsers(self).get(getattr(options, "subcommand", ""), self)
            known = chosen._option_string_actions
            flag = unknown[0].partition("=")[0]
            meant = did_you_mean(flag, known)
            if flag in _DOCUMENTS and (others := [each for each in _DOCUMENTS if each in known]):
                meant = f"; it writes {', '.join(f'{each} FILE' for each in others)}"
            chosen.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return options

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        word = re.search(r"argument SUBCOMMAND: invalid choice: '([^']*)'", message)
        meant = did_you_mean(word[1], subparsers(self)) if word else ""
        raise UsageError(f"{message}{meant} ({self.prog} --help shows all)")


def subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of each subcommand; nothing where a command has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def with_underscores(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--use-gpu` as `--use_gpu`; values and words after -- stay."""
    made: list[str] = []
    for number, word in enumerate(arguments):
        if word == "--":
            return [*made, *arguments[number:]]
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        made.append(f"{name}{equals}{value}")
    return made


def examples_text(examples: Examples) -> str:
    """Return examples for the end of a help text."""
    lines = [_HEADING]
    for command, what in examples:
        lines += [f"{_KEPT}{command}", f"{_KEPT * 3}{what}"]
    return "\n".join(lines)


def parts_of(parser: argparse.ArgumentParser) -> tuple[str, str]:
    """Return the end of a parser's help: the text, and the examples below it."""
    text, _, examples = (parser.epilog or "").partition(_HEADING)
    return text.strip(), examples.strip("\n")
