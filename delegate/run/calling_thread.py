# SPDX-License-Identifier: Apache-2.0
"""PoCL's CPU driver without threads: kernels run in the calling thread, which wakes no other.

A run of 50 us takes twice as long where another thread has to wake up. PoCL offers this driver as
a device of its own, and only if POCL_DEVICES names it. It is hidden from listings: the planner uses
it for partitions that it was measured to run faster.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable

from delegate.guard.children import environment

# Where distributions install them; the second is Debian's.
_DRIVERS = ("/usr/lib*/pocl/libpocl-devices-*.so", "/usr/lib/*/pocl/libpocl-devices-*.so")
# Library versions of PoCL that were seen to offer both: 3.1.
_LIBRARIES = re.compile(r"libpocl\.so\.2\.10\b")
_POCL, _THREADS, _NO_THREADS = "Portable Computing Language", "pthread-", "basic-"


def offer(libraries: Iterable[str]) -> None:
    """Let PoCL list both drivers, unless the user chose; call before drivers are loaded.

    `libraries`: OpenCL's, as their .icd files name them. Nothing is set where PoCL may have other
    devices, which the variable would hide.
    """
    pocl = [each for each in libraries if "libpocl" in each]
    name, value = environment.BOTH_THREADINGS
    if not {name, environment.OFFERED}.isdisjoint(os.environ):
        return
    if not pocl or not all(map(_LIBRARIES.search, pocl)):
        return
    drivers = {os.path.basename(path) for place in _DRIVERS for path in glob.glob(place)}
    if drivers == {f"libpocl-devices-{each}.so" for each in ("basic", "pthread")}:
        os.environ.update({name: value, environment.OFFERED: "1"})


def is_hidden(platform: str, name: str) -> bool:
    """Whether a device is there because of `offer`, and not to be listed."""
    return environment.offers_both() and platform == _POCL and name.startswith(_NO_THREADS)


def are_twins(name: str, hidden: str) -> bool:
    """Whether a hidden device of the same platform is the same processor without threads."""
    return name.startswith(_THREADS) and hidden == name.replace(_THREADS, _NO_THREADS, 1)
