# SPDX-License-Identifier: Apache-2.0
"""An OpenCL library that kills or hangs the process that opens it: builds fatal.c."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.faults import compiler

SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True)
class Fatal:
    """A folder of .icd files, one of which names such a library."""

    vendors: Path
    icd: Path
    library: Path
    log: Path  # of the processes that opened it

    def environment(self, kind: str) -> dict[str, str]:
        """Return the environment in which the loader finds it; `kind`: as in fatal.c."""
        return {
            "OCL_ICD_VENDORS": str(self.vendors),
            "FATAL": kind,
            "FATAL_TOLD": str(self.log),
            "TFLITE_OPENCL_CACHE": str(self.vendors.parent / "cache"),
        }

    @property
    def openings(self) -> list[int]:
        """The processes that opened it."""
        return [int(line) for line in self.log.read_text().split()]


def build_fatal(folder: Path) -> Fatal | None:
    """Compile it and list it with PoCL or the system's drivers; None without a C compiler."""
    command = compiler()
    if command is None:
        return None
    library = folder / "libfatal.so"
    subprocess.run([*command, "-o", library, SOURCE], check=True, timeout=60)
    vendors = folder / "vendors"
    vendors.mkdir()
    system = Path("/etc/OpenCL/vendors")
    # One is enough, and each takes time to open.
    for each in [*system.glob("pocl*.icd")] or [*system.glob("*.icd")]:
        (vendors / each.name).write_text(each.read_text())
    icd = vendors / "a_fatal.icd"
    icd.write_text(f"{library}\n")
    return Fatal(vendors, icd, library, folder / "log")
