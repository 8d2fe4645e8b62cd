# SPDX-License-Identifier: Apache-2.0
"""Compares what OpenCL's loaders and drivers' bare libraries find, to name what hides a driver."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from delegate.inspect import Icd, icd_loader
from tflite_opencl.boards import drivers
from tflite_opencl.boards.board import LIBRARY_FOLDERS, Board
from tflite_opencl.boards.drivers import LoadedIcd
from tflite_opencl.boards.files import matching
from tflite_opencl.boards.steps import NextStep, preload, register

_ENTRY = b"clIcdGetPlatformIDsKHR"  # of a driver, asked for by loaders
_LOADERS_VARIABLE = b"OCL_ICD_"  # ocl-icd and Khronos' loader read such variables
_MACHINES = {3: "x86", 40: "32-bit Arm", 62: "x86-64", 183: "aarch64", 243: "RISC-V"}  # of ELF


def other_loaders(board: Board) -> dict[str, LoadedIcd]:
    """Return what the system's other loaders find, by path."""
    used = icd_loader()
    files: dict[str, str] = {}  # a loader may have several names
    for path in board.loaders:
        files.setdefault(os.path.realpath(path), path)
    if used is not None:
        files.pop(os.path.realpath(used), None)
    return {path: drivers.ask_all(other_loader=path) for path in files.values()}


def bare_libraries(board: Board) -> dict[str, LoadedIcd]:
    """Return what drivers' libraries without an .icd file report, by path."""
    return {
        path: drivers.ask_icd(Icd(path, path))
        if _has_entry(path)
        else drivers.ask_all(other_loader=path)
        for path in board.bare
        if not foreign(path)
    }


def hidden_steps(
    others: Mapping[str, LoadedIcd],
    bare: Mapping[str, LoadedIcd],
    together: LoadedIcd,
    has_gpu: bool,
) -> Iterator[NextStep]:
    """Yield how to use platforms that pyopencl's loader does not find.

    `others`: of other loaders. `bare`: of libraries without an .icd file. `has_gpu`: the kernel
    has a driver for one, which a platform without devices may show with a variable.
    """
    known = {each.name for each in together.platforms}
    for path, seen in (*bare.items(), *others.items()):
        useful = (each for each in seen.platforms if each.devices or has_gpu)
        gives = [each.name for each in useful if each.name not in known]
        if not gives:
            continue
        known |= {*gives}
        is_loader = path in others and _has(path, _LOADERS_VARIABLE)
        if is_loader:
            yield preload(path, gives, "which pyopencl's loader does not find")
        elif _has_entry(path):
            yield register(path, gives)
        else:
            yield preload(path, gives, "which has no clIcdGetPlatformIDsKHR for a loader")


def why_dropped(library: str) -> str:
    """Return why a loader rejects a library, if its file shows that; else ""."""
    path = _found(library)
    if machine := foreign(path):
        return f": it is for {machine}, and this Python for {_MACHINES[_machine(sys.executable)]}"
    if _has_entry(path) or not _has(path, b"clGetPlatformIDs"):
        return ""
    return (
        ": it has no clIcdGetPlatformIDsKHR, which a loader asks for; LD_PRELOAD=" + library
        + " uses it without a loader"
    )  # fmt: skip


def foreign(path: str) -> str:
    """Return the architecture that a library is for, if it is not this process's; else ""."""
    other, own = _machine(path), _machine(sys.executable)
    return _MACHINES[other] if other != own and {other, own} <= {*_MACHINES} else ""


def userland_steps(machine: str = "") -> list[NextStep]:
    """Return what to do about a 32-bit Python on a 64-bit Arm kernel.

    `machine`: the kernel's; "": ask.
    """
    kernel = machine or platform.machine()
    if kernel == "aarch64" and sys.maxsize < 1 << 32:
        return [
            NextStep(
                "use a 64-bit userland: the kernel is aarch64, and this Python has 32 bits, for "
                "which there are no wheels of TFLite"
            )
        ]
    return []


def _found(library: str) -> str:
    """Return the path of a library that is named without one, if a usual folder has it."""
    if "/" in library or not library:
        return library
    found = matching(Path("/"), [f"{folder}/{library}" for folder in LIBRARY_FOLDERS])
    # A library of this architecture is loaded, wherever one of another lies.
    ours = [str(each) for each in found if not foreign(str(each))]
    return [*ours, *map(str, found), library][0]


def _machine(path: str) -> int:
    """Return an ELF file's machine; 0: it is none, or cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except (OSError, ValueError):
        return 0
    if head[:4] != b"\x7fELF":
        return 0
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")


def _has_entry(path: str) -> bool:
    return _has(path, _ENTRY)


def _has(path: str, word: bytes) -> bool:
    try:
        return word in Path(path).read_bytes()
    except (OSError, ValueError):
        return False
