# SPDX-License-Identifier: Apache-2.0
"""Messages shared by all commands: suggestions, versions, the JSON schema, terminal-safe text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from delegate import NoDeviceError, list_devices
from delegate.inspect import Graph, builtin_op_numbers
from tflite_opencl import __version__
from tflite_opencl.console.errors import UsageError
from tflite_opencl.interpreters.runtime import RuntimeMissing, find_runtime

# Schema of the commands' JSON: incremented when a key is removed or changes its meaning.
JSON_SCHEMA = 1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" if the word is a prefix of or similar to a known one, else "".

    Of several words with this prefix the shortest: CONV is CONV_2D rather than CONV_3D_TRANSPOSE.
    """
    names = sorted(known, key=lambda name: (len(name), name))
    begun = [name for name in names if len(word.strip("-")) > 1 and name.startswith(word)]
    close = begun or difflib.get_close_matches(word, names, 1)
    return f"; did you mean {close[0]}?" if close else ""


def known_ops(names: Sequence[str], graphs: Iterable[Graph]) -> list[str]:
    """Return the ops of --exclude_ops: TFLite's in any case, and custom ops of these graphs.

    Raises: UsageError: there is no such op; a misspelt one would silently exclude nothing.
    """
    if not names:
        return []
    own = {node.op for graph in graphs for node in graph.nodes}
    known = {*builtin_op_numbers(), *own}
    ops = [name if name in known else name.upper() for name in names]
    for op in ops:
        if op not in known:
            meant = did_you_mean(op, own) or did_you_mean(op, known)
            meant = meant or f"; the model has {', '.join(sorted(own))}"
            raise UsageError(f"--exclude_ops: there is no op {op}{meant}")
    return ops


def version_lines(command: str) -> list[str]:
    """Return the versions of a command, TFLite and the OpenCL drivers, for a bug report."""
    lines = [f"{command} (tflite-opencl) {__version__}"]
    try:
        runtime = find_runtime()
        lines.append(f"TFLite runtime: {runtime.text}")
    except RuntimeMissing as error:
        lines.append(f"TFLite runtime: none ({error})")
    try:
        for info in list_devices():
            lines.append(f"OpenCL driver: {info.platform} {info.driver} ({info.name})")
    except NoDeviceError as error:
        lines.append(f"OpenCL driver: none ({error})")
    return lines


def stamped(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document for JSON with its schema number and this project's version."""
    return {"schema": JSON_SCHEMA, "tflite_opencl": __version__, **document}


# Control characters, Unicode line ends, and bidirectional controls.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str, kept: str = "") -> str:
    r"""Return the text with control characters as Python escapes, such as "\x1b".

    `kept`: characters to leave unchanged, such as line ends in a table.
    """
    return _UNPRINTABLE.sub(
        lambda found: found[0] if found[0] in kept else found[0].encode("unicode_escape").decode(),
        text,
    )
