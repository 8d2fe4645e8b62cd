# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl man COMMAND`: a command's manual page."""

from __future__ import annotations

import argparse

from tflite_opencl.shell.man_pages import man_page
from tflite_opencl.shell.parsers import COMMANDS, OPENCL

HELP = "print the manual page of a command in roff, which man reads"
EXAMPLES = (
    ("tflite-opencl man label_image | man -l -", "read it"),
    ("tflite-opencl man > ~/.local/share/man/man1/tflite-opencl.1", "keep it: man tflite-opencl"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    parser.add_argument(
        "command", nargs="?", default=OPENCL, choices=[*COMMANDS],
        help=f"whose page (default: {OPENCL})",
    )  # fmt: skip


def run(options: argparse.Namespace) -> str:
    """Return the page. Raises: CommandError: what it needs is not installed."""
    return man_page(options.command).rstrip("\n")
