# SPDX-License-Identifier: Apache-2.0
"""The files that flags name: inputs are kept, outputs checked before the work."""

from __future__ import annotations

import argparse
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tflite_opencl.cli.flag_values import OutputFolder, OutputPath
from tflite_opencl.cli.messages import stamped
from tflite_opencl.console.errors import CommandError, UsageError, require_writable, write
from tflite_opencl.console.exit_codes import USAGE
from tflite_opencl.console.files import keep

DOCUMENTS = ("json", "csv", "html", "markdown")  # their "-" is stdout


def keep_inputs(given: Mapping[str, Any], *more: str) -> None:
    """Protect the input files from being overwritten; `more`: inputs not given by flags.

    Raises: UsageError: two flags name the same output file.
    """
    written: dict[str, str] = {}
    for name, value in sorted(given.items()):
        if not isinstance(value, OutputPath) or value == "-" or os.path.isdir(value):
            continue
        other = written.setdefault(os.path.realpath(value), name)
        if other != name and stat.S_ISREG(_mode_of(value)):
            raise UsageError(f"--{other} and --{name} are the same file: {value}")
    keep([*_texts([*given.values()]), *more])


def _mode_of(path: str) -> int:
    """Return the file's type; a missing one counts as a regular file."""
    try:
        return os.stat(path).st_mode
    except OSError:
        return stat.S_IFREG


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in the flags' values, except outputs."""
    if isinstance(value, OutputPath):
        return
    if isinstance(value, (str, os.PathLike)):
        yield os.fspath(value)
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)


def require_outputs(given: Mapping[str, Any]) -> None:
    """Check the requested files and folders before the work starts.

    Raises: CommandError: two go to stdout, or one cannot be written.
    """
    on_stdout = [name for name in DOCUMENTS if given.get(name) == "-"]
    if len(on_stdout) > 1:
        raise CommandError(
            f"--{on_stdout[0]} and --{on_stdout[1]}: stdout takes one of them", USAGE
        )
    for name, value in given.items():
        if isinstance(value, OutputPath) and name not in on_stdout:
            require_writable(value, is_folder=isinstance(value, OutputFolder))


def shown(given: argparse.Namespace, text: str, **documents: Callable[[], str]) -> str:
    """Write the requested documents; return the text for stdout: one of them, or `text`.

    Raises: CommandError: a file cannot be written.
    """
    for name, make in documents.items():
        if (target := getattr(given, name)) == "-":
            text = make()
        elif target is not None:
            write(target, make().rstrip("\n") + "\n")
    return text


def as_json(facts: dict[str, Any]) -> str:
    """Return facts as a JSON document."""
    return json.dumps(stamped(facts), indent=2)
