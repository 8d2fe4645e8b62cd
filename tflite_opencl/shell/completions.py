# SPDX-License-Identifier: Apache-2.0
"""Completion of the commands' words in bash, zsh and fish, by the package shtab."""

from __future__ import annotations

import argparse
import re
from typing import Any

from delegate.inspect import device_profile_names
from tflite_opencl.common.errors import CommandError
from tflite_opencl.shell.parsers import LABEL_IMAGE, all_parsers, parser_of

SHELLS = ("bash", "zsh", "fish")
_FILES = re.compile(r"FILE|MODEL|OLD\.json|PATH\.so")  # in a word that stands for a value
_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")  # a value itself


def completion(shell: str, command: str) -> str:
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
