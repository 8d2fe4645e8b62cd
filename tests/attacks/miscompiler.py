# SPDX-License-Identifier: Apache-2.0
"""A driver that miscompiles: builds miscompiler.c, and sets its variables."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.faults import compiler

SOURCE = Path(__file__).with_suffix(".c")
ABORT = "ABORT"  # in place of a text: the build aborts


@dataclass(frozen=True, slots=True)
class Miscompilation:
    """A text in kernels' sources, and what the driver compiles in its place."""

    text: str
    instead: str  # ABORT: the process aborts

    def environment(self, library: Path) -> dict[str, str]:
        """The variables of a process with this driver."""
        return {
            "LD_PRELOAD": str(library),
            "MISCOMPILE_FROM": self.text,
            "MISCOMPILE_TO": self.instead,
        }


def build_library(folder: Path) -> Path | None:
    """Compile the library into a folder; None without a C compiler."""
    command = compiler()
    if command is None:
        return None
    library = folder / "libmiscompiler.so"
    subprocess.run([*command, "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
    return library
