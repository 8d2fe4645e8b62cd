# SPDX-License-Identifier: Apache-2.0
"""An OpenCL that fails at a chosen call: builds faults.c, and reads its counts of calls."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
COMMAND, CHILDREN = "command", "children"  # processes to which a fault may be restricted
NO_COMPILER = "no C compiler: apt-get install gcc libc6-dev"
# Errors of drivers: a lost device, no memory, an undocumented number, and others.
STATUSES = (-5, -2, -4, -6, -36, -14, -9999)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Attributes:
        call: an OpenCL function; nth: its call in a process, from 1; kind: "error" (with `status`),
            "skip", "flip", "abort", "crash", "hang", "kill", "stop" or "thread", which faults.c
            explains; lasts: whether later calls fail, too; place: COMMAND, CHILDREN or "" for all
            processes; once: a file that the fault creates, so that it occurs in one process only;
            until: a file: no fault occurs before it exists;
            kernel: of clCreateKernel, only calls for kernels with this in their names count.
    """

    call: str
    nth: int
    kind: str
    lasts: bool = False
    place: str = COMMAND
    status: int = STATUSES[0]
    once: str = ""
    until: str = ""
    kernel: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind} {self.status}" if self.kind == "error" else self.kind
        later = " and later" if self.lasts else ""
        return f"{kind} at {self.call} {self.nth}{later} in {self.place or 'every process'}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that configure the library."""
        return {
            "FAULT_CALL": self.call,
            "FAULT_NTH": str(self.nth),
            "FAULT_KIND": self.kind,
            "FAULT_STATUS": str(self.status),
            "FAULT_IN": self.place,
            **({"FAULT_LASTS": "1"} if self.lasts else {}),
            **({"FAULT_ONCE": self.once} if self.once else {}),
            **({"FAULT_WHILE": self.until} if self.until else {}),
            **({"FAULT_KERNEL": self.kernel} if self.kernel else {}),
        }


def compiler() -> list[str] | None:
    """Return the command that compiles C to a shared library; None without a compiler."""
    path = shutil.which("cc") or shutil.which("gcc")
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    return None if path is None else [path, *flags]


def build_library(folder: Path) -> Path | None:
    """Compile the library into a folder; None without a C compiler."""
    command = compiler()
    if command is None:
        return None
    library = folder / "libfaults.so"
    subprocess.run([*command, "-o", library, SOURCE, "-ldl", "-pthread"], check=True, timeout=60)
    return library


def calls_of(counts: Path) -> dict[str, Counter[str]]:
    """Return the number of calls of each function, in COMMAND and in CHILDREN.

    For children it is the maximum, because the library counts calls in each process.
    """
    most: dict[str, Counter[str]] = {COMMAND: Counter(), CHILDREN: Counter()}
    for line in counts.read_text().splitlines():
        depth, _, function, calls = line.split()
        place = most[COMMAND if depth == "0" else CHILDREN]
        place[function] = max(place[function], int(calls))
    return most
