# SPDX-License-Identifier: Apache-2.0
"""Kernels as files for the authors of drivers: each whole in one .cl file, and a README."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from delegate import DeviceInfo
from delegate.inspect import KernelUse
from tflite_opencl.common.errors import CommandError
from tflite_opencl.compilers.builds import Built


def dump(folder: str, info: DeviceInfo, uses: Sequence[KernelUse], built: Sequence[Built]) -> None:
    """Write every kernel into a folder, which is made where it is not there.

    Raises:
        CommandError: the folder cannot be written.
    """
    lines = [
        "# OpenCL C kernels of tflite-opencl",
        "",
        f"As {info.name} ({info.platform}, {info.driver}) is given them. Each file is whole: it",
        "includes no other, and its macros are its first lines. Licence: Apache-2.0.",
        "",
        "Arguments: `global uchar* arena, global const uchar* constants`, and then a structure of",
        "2 + FIELDS ints; where a file defines no FIELDS, `global const int* params, int first`.",
        "No argument is an image, and local memory is declared in the kernel.",
        "",
        "| file | kernel | work-items a work-group | build options | launches a run |",
        "|---|---|---|---|---|",
    ]
    try:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for use, each in zip(uses, built, strict=True):
            name = _name(use)
            options = " ".join(each.options)
            head = (
                f"// {use.kernel} ({' / '.join(use.variants)}): build options {options}; "
                f"{use.group_items} work-items a work-group.\n"
            )
            (path / name).write_text(head + use.source, encoding="utf-8")
            lines.append(
                f"| {name} | {use.kernel} | {use.group_items} | `{options}` | {use.launches} |"
            )
        (path / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror or error}") from error


def _name(use: KernelUse) -> str:
    """Return a file name that is the same whatever the model."""
    variant = re.sub(r"\W+", "_", use.variants[0])
    mark = hashlib.sha256(use.source.encode()).hexdigest()[:8]
    return f"{use.kernel}-{variant}-{mark}.cl"
