# SPDX-License-Identifier: Apache-2.0
"""A linker for PoCL's kernels that leaves out the libraries which they do not use.

PoCL links each kernel it compiles by `ld`, with libc and libgcc. Reading these two takes 15 ms of
the 25 that a link takes, and no kernel of ours calls them: its functions are PoCL's own and libm's.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# Its output has this name, beside which all others are linked as ever.
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
    """Let PoCL in this process and its children find that linker, which is written into a folder.

    Not where there is no `ld`, and where somebody chose another.
    """
    ld = shutil.which("ld")
    if ld is None or "COMPILER_PATH" in os.environ:
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = folder.resolve() / "ld"
    script.write_text(_SCRIPT.format(ld=ld))
    script.chmod(0o755)
    os.environ["COMPILER_PATH"] = str(script.parent)
