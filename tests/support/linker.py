# SPDX-License-Identifier: Apache-2.0
"""A faster linker for PoCL's kernels, which omits unused libraries.

PoCL links each kernel with libc and libgcc. Reading these two takes 15 ms of a link's 25, and our
kernels call only functions of PoCL and libm.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# PoCL's outputs have this name; other links are unchanged.
_SCRIPT = """#!/bin/sh
case "$*" in
*/tempfile_*.so.o\\ -lm\\ *)
    for each; do
        shift
        case $each in -lc | -lgcc | -lgcc_s) ;; *) set -- "$@" "$each" ;; esac
    done ;;
esac
exec {ld} "$@"
"""


def use_small_links(folder: Path) -> None:
    """Write the linker into a folder, for PoCL in this process and its children.

    Does nothing without `ld`, or if COMPILER_PATH is set.
    """
    ld = shutil.which("ld")
    if ld is None or "COMPILER_PATH" in os.environ:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder.resolve() / "ld"
    script.write_text(_SCRIPT.format(ld=ld))
    script.chmod(0o755)
    os.environ["COMPILER_PATH"] = str(script.parent)
