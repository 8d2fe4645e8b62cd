# SPDX-License-Identifier: Apache-2.0
"""PyPI's PoCL links kernels on a machine without a compiler.

It runs `ld ... -lgcc -lgcc_s -lc` for each kernel. Packages of compilers install files of these
names; the libraries themselves, libc.so.6 and libgcc_s.so.1, are on every system. So binutils
(30 MB) is all that a kernel needs, in place of gcc and libc6-dev (another 180 MB on Debian 13).
"""

from __future__ import annotations

import contextlib
import os
import shutil

from delegate.errors import CacheError
from delegate.run import driver_caches

_LIBRARIES = {"c": "libc.so.6", "gcc": "libgcc_s.so.1", "gcc_s": "libgcc_s.so.1", "m": "libm.so.6"}


def prepare() -> None:
    """Set LIBRARY_PATH to linker scripts with these names if there is no gcc.

    PoCL's linker searches it last, so a compiler's own files take precedence. Without a writable
    cache nothing is set: the device's self-test then fails, and says what to install.
    """
    if "LIBRARY_PATH" in os.environ or shutil.which("gcc") is not None:
        return
    scripts = {f"lib{name}.so": f"INPUT({file})\n".encode() for name, file in _LIBRARIES.items()}
    with contextlib.suppress(CacheError):
        os.environ["LIBRARY_PATH"] = str(driver_caches.cached_folder("linker", scripts))
