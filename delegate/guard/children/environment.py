# SPDX-License-Identifier: Apache-2.0
"""The environment that drivers depend on beside the device: variables and resource limits."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import resource
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from delegate.guard.children.cgroup import memory_limit_bytes

_VARIABLES = ("HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME")
_PREFIXES = ("CUDA_", "GALLIUM_", "LD_", "LIBGL_", "LP_", "MESA_", "POCL_", "RUSTICL_")
_IGNORED = ("POCL_AFFINITY",)  # thread placement: our commands set it, but bans are shared
# Set by delegate/run/calling_thread.py, in this process and so in its children, unless OFFERED is
# set already.
BOTH_THREADINGS, OFFERED = ("POCL_DEVICES", "pthread basic"), "TFLITE_OPENCL_POCL_OFFERED"
# Limits of `ulimit`: its letter, description, and a sufficient value; None: any limit is low.
_LIMITS: dict[int, tuple[str, str, int | None]] = {
    resource.RLIMIT_AS: ("v", "of address space", None),
    resource.RLIMIT_DATA: ("d", "of data", None),
    resource.RLIMIT_CPU: ("t", "seconds of processor time", None),
    resource.RLIMIT_FSIZE: ("f", "of a file", None),
    resource.RLIMIT_NOFILE: ("n", "open files", 256),
    resource.RLIMIT_NPROC: ("u", "processes and threads", 256),
    resource.RLIMIT_STACK: ("s", "of stack", 1 << 20),
}
_PAGE_BYTES = resource.getpagesize()


def offers_both() -> bool:
    """Whether BOTH_THREADINGS is set, and not by the user."""
    name, value = BOTH_THREADINGS
    return os.environ.get(name) == value and os.environ.get(OFFERED) == "1"


class ResourceUsage(NamedTuple):
    """Resources taken by a process that may be limited."""

    address_bytes: int
    files: int


_MARGIN = ResourceUsage(64 << 20, 4)  # what this process needs in addition to drivers


def digest() -> str:
    """Return a digest of the variables, limits and kernel version that drivers may depend on."""
    variables = [
        item
        for item in sorted(os.environ.items())
        if item[0] in _VARIABLES or (item[0].startswith(_PREFIXES) and item[0] not in _IGNORED)
    ]
    if offers_both():
        variables.remove(BOTH_THREADINGS)
    return _digest(tuple(variables), tuple(map(resource.getrlimit, _LIMITS)))


@lru_cache(maxsize=4)
def _digest(*facts: object) -> str:
    return hashlib.sha256(repr((os.uname().release, facts)).encode()).hexdigest()[:16]


_is_trusted = False


def trust() -> None:
    """Assume that this process's limits suffice: it may crash otherwise."""
    global _is_trusted
    _is_trusted = True


def shortages() -> str:
    """Return this process's limits that may be too low for drivers, for messages; "": none."""
    if _is_trusted:
        return ""
    found = []
    for limit, (letter, words, least) in _LIMITS.items():
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY and (least is None or soft < least):
            most = f"{soft >> 20} MiB" if words.startswith("of ") else f"{soft}"
            found.append(f"{most} {words} (ulimit -{letter})")
    return ", ".join(found)


def remedy(was_killed: bool = False) -> str:
    """Return how to fix a failed process, for the end of a sentence; "": unknown.

    `was_killed`: by another process.
    """
    if short := shortages():
        return f"; this process may have no more than {short}: raise that"
    if was_killed:
        if (most := memory_limit_bytes()) is not None:
            return (
                f"; if nobody ended it, {most >> 20} MiB of memory are too few, which are this "
                "cgroup's limit: raise that"
            )
        return "; if nobody ended it, the machine is short of memory: free some, and start again"
    return ""


def resource_usage() -> ResourceUsage:
    """Return this process's usage; zeros if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return ResourceUsage(pages * _PAGE_BYTES, len(os.listdir("/proc/self/fd")))
    except OSError:
        return ResourceUsage(0, 0)


@lru_cache(maxsize=1)
def initial_usage() -> ResourceUsage:
    """Return this process's usage at the first call, and a little more.

    It excludes the drivers, which a child loads as well.
    """
    return ResourceUsage(
        resource_usage().address_bytes + _MARGIN.address_bytes,
        resource_usage().files + _MARGIN.files,
    )


_reserved: list[mmap.mmap | int] = []


def reserve_as_much(other: ResourceUsage) -> None:
    """Restrict drivers in this process to what another process can give them."""
    own = resource_usage()
    if other.address_bytes > own.address_bytes:
        with contextlib.suppress(OSError, ValueError):
            size = other.address_bytes - own.address_bytes
            _reserved.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0))
    for _ in range(other.files - own.files):
        with contextlib.suppress(OSError):
            _reserved.append(os.dup(0))
