# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl completion SHELL`: what a shell needs to complete the words of the commands."""

from __future__ import annotations

import argparse

from tflite_opencl.shell.completions import SHELLS, completion
from tflite_opencl.shell.parsers import COMMANDS

HELP = "print what bash, zsh or fish needs to complete the commands' words"
EXAMPLES = (
    ('eval "$(tflite-opencl completion bash)"', "in ~/.bashrc; zsh is the same in ~/.zshrc"),
    ("tflite-opencl completion fish | source", "in ~/.config/fish/config.fish"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads it")
    parser.add_argument(
        "--command",
        choices=[*COMMANDS],
        metavar="COMMAND",
        help=f"of this one alone: {', '.join(COMMANDS)} (default: of all three)",
    )


def run(options: argparse.Namespace) -> str:
    """Return the script. Raises: CommandError: what it needs is not installed."""
    commands = [options.command] if options.command else COMMANDS
    return "\n".join(completion(options.shell, command) for command in commands)
