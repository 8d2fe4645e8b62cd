# SPDX-License-Identifier: Apache-2.0
"""The paths that --paths names: what runs a model, and with which choices."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tflite_opencl.common.flag_values import delegate_options

CPU, BUILTIN, REFERENCE, OPENCL, EXTERNAL = "cpu", "builtin", "reference", "opencl", "external"
# A path's word -> the CPU kernels of TFLite that run what no delegate takes.
KERNELS = {
    CPU: "auto",
    BUILTIN: "builtin",
    REFERENCE: "reference",
    OPENCL: "auto",
    EXTERNAL: "auto",
}
_EXTERNAL = re.compile(r"(?P<library>.+?\.so(?:\.\d+)*)(?::(?P<options>.+))?")


@dataclass(frozen=True, slots=True)
class RunPath:
    """One way to run a model."""

    text: str  # as --paths has it
    kind: str  # a word of KERNELS
    device: str | None = None  # opencl's; None: the first that works
    library: str = ""  # external's
    options: Mapping[str, str] = field(default_factory=dict)  # external's

    @property
    def has_delegate(self) -> bool:
        """Whether a delegate that is asked for by name runs nodes of the model."""
        return self.kind in (OPENCL, EXTERNAL)


def paths_of(text: str) -> list[RunPath]:
    """Return the paths of a list with commas.

    Raises: argparse.ArgumentTypeError: a word is no path, or stands there twice.
    """
    found = [_path(word.strip()) for word in text.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError("no path is named")
    words = [path.text for path in found]
    for word in words:
        if words.count(word) > 1:
            raise argparse.ArgumentTypeError(f"'{word}' is named twice")
    return found


def _path(word: str) -> RunPath:
    kind, colon, rest = word.partition(":")
    if kind == OPENCL and (rest or not colon):
        return RunPath(word, kind, device=rest or None)
    if kind == EXTERNAL:
        match = _EXTERNAL.fullmatch(rest)
        if match is None:
            raise argparse.ArgumentTypeError(f"'{word}' is not external:PATH.so or PATH.so:K:V;K:V")
        return RunPath(
            word, kind, library=match["library"], options=delegate_options(match["options"] or "")
        )
    if word not in KERNELS:
        raise argparse.ArgumentTypeError(
            f"'{word}' is no path: there are {CPU}, {BUILTIN}, {REFERENCE}, {OPENCL}, "
            f"{OPENCL}:DEVICE and {EXTERNAL}:PATH.so:OPTIONS"
        )
    return RunPath(word, kind)
