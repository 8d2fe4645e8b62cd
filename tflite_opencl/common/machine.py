# SPDX-License-Identifier: Apache-2.0
"""What is known of this machine: its CPU, and the memory of this process."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory this process had resident.

    Raises: OSError, RuntimeError: the system does not tell.
    """
    # NOTE: getrusage's figure may be that of the process this one was started from.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def cpu_name() -> str:
    """Return the CPU's model, and what of its vector units matters here."""
    values = _cpu_facts()
    name = values.get("model name", platform.machine())
    if "cpu family" in values:
        name += f" (family {values['cpu family']}, model {values.get('model', '?')})"
    flags = values.get("flags", "").split() or values.get("Features", "").split()
    known = {
        "avx2": "AVX2",
        "avx512f": "AVX-512",
        "avx512_vnni": "VNNI",
        "amx_int8": "AMX",
        "asimddp": "dot product",
    }
    units = [label for flag, label in known.items() if flag in flags]
    return f"{name} with {', '.join(units)}" if units else name


def has_vnni() -> bool:
    """Return whether this CPU has AVX-512 VNNI."""
    return "avx512_vnni" in _cpu_facts().get("flags", "").split()


def _cpu_facts() -> Mapping[str, str]:
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    return facts
