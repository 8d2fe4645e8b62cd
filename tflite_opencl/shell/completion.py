# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl completion SHELL`: what a shell needs to complete commands' words, by shtab."""

from __future__ import annotations

import argparse
import re
from typing import Any

from delegate.inspect import device_profile_names
from tflite_opencl.console.errors import CommandError
from tflite_opencl.shell.parsers import COMMANDS, LABEL_IMAGE, all_parsers, parser_of

HELP = "print what bash, zsh or fish needs to complete the commands' words"
EXAMPLES = (
    ('eval "$(tflite-opencl completion bash)"', "in ~/.bashrc; zsh is the same in ~/.zshrc"),
    ("tflite-opencl completion fish | source", "in ~/.config/fish/config.fish"),
)
SHELLS = ("bash", "zsh", "fish")
_FILES = re.compile(r"FILE|MODEL|OLD\.json|PATH\.so")  # in a word that stands for a value
_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")  # a value itself


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
    return "\n".join(_script(options.shell, command) for command in commands)


def _script(shell: str, command: str) -> str:
    """Return a script for a shell. Raises: CommandError: shtab is not installed."""
    try:
        import shtab
    except ImportError:
        raise CommandError("completion needs shtab (pip install tflite-opencl[shell])") from None
    parser = parser_of(command)
    for each in all_parsers(parser):
        for action in each._actions:
            _describe(action, shtab.FILE, shtab.DIRECTORY)
    if command == LABEL_IMAGE:  # whose pictures no parser sees
        _describe(parser.add_argument("pictures", nargs="*", metavar="FILE"), shtab.FILE, None)
    return str(shtab.complete(parser, shell=shell))


def _describe(action: Any, files: object, folders: object) -> None:
    """Add to an action of a parser what may stand for its value; the parser then parses no more."""
    if action.nargs == 0 or isinstance(action, argparse._SubParsersAction) or action.choices:
        return
    metavar = action.metavar or ""
    words = [word for word in metavar.split("|") if _WORD.fullmatch(word)]
    if metavar == "BOOL":
        action.choices, action.nargs = ["true", "false"], "?"
    elif action.dest == "device_profile":
        action.choices = device_profile_names()
    elif words:
        action.choices = words
    elif _FILES.search(metavar):
        action.complete = files
    elif metavar == "DIR":
        action.complete = folders
