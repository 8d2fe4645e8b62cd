# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl man COMMAND`: a command's manual page, by argparse-manpage."""

from __future__ import annotations

import argparse
from functools import partial

from tflite_opencl import __version__
from tflite_opencl.cli.command_line import HelpFormatter, parts_of
from tflite_opencl.console.errors import CommandError
from tflite_opencl.shell.parsers import COMMANDS, OPENCL, all_parsers, parser_of

HELP = "print the manual page of a command in roff, which man reads"
EXAMPLES = (
    ("tflite-opencl man label_image | man -l -", "read it"),
    ("tflite-opencl man > ~/.local/share/man/man1/tflite-opencl.1", "keep it: man tflite-opencl"),
)
_ONE_LINE = 100_000  # columns, so that roff folds the texts and not argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    parser.add_argument(
        "command", nargs="?", default=OPENCL, choices=[*COMMANDS],
        help=f"whose page (default: {OPENCL})",
    )  # fmt: skip


def run(options: argparse.Namespace) -> str:
    """Return the page. Raises: CommandError: argparse-manpage is not installed."""
    try:
        from argparse_manpage.manpage import Manpage
    except ImportError:
        raise CommandError(
            "man needs argparse-manpage (pip install tflite-opencl[shell])"
        ) from None
    command, parser = options.command, parser_of(options.command)
    for each in all_parsers(parser):
        each.formatter_class = partial(HelpFormatter, width=_ONE_LINE)
    parts = [parts_of(each) for each in all_parsers(parser)]
    parser.epilog = None  # it has sections of its own here
    facts = {
        "project_name": "tflite-opencl",
        "version": __version__,
        "manual_title": "User Commands",
        "description": COMMANDS[command],
    }
    page = Manpage(parser, facts)
    notes = [_escaped(text) for text, _ in parts if text]
    if notes:
        page.add_section("notes", "=", "\n.PP\n".join(notes))
    examples = "\n.PP\n".join(f".nf\n{_escaped(text)}\n.fi" for _, text in parts if text)
    page.add_section("examples", "=", examples)
    others = ",\n".join(f"\\fB{_escaped(name)}\\fR(1)" for name in COMMANDS if name != command)
    page.add_section("see also", "=", others)
    # Flags and paths are long words: lines are neither filled with spaces nor hyphenated.
    return str(page).replace("\n.SH NAME", "\n.ad l\n.nh\n.SH NAME", 1).rstrip("\n")


def _escaped(text: str) -> str:
    """Return text that roff shows as it is."""
    lines = text.replace("\\", r"\e").replace("-", r"\-").split("\n")
    return "\n".join(rf"\&{line}" if line.startswith((".", "'")) else line for line in lines)
