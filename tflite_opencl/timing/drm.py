# SPDX-License-Identifier: Apache-2.0
"""What kernel drivers of GPUs tell of this process: its memory there, and how long they computed.

freedreno, panfrost, v3d, etnaviv, amdgpu and i915 tell both; panfrost tells times only where its
`profiling` in sysfs is on. Source: the kernel's Documentation/gpu/drm-usage-stats.rst
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FDINFO = Path("/proc/self/fdinfo")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


@dataclass(frozen=True, slots=True)
class Usage:
    """What all GPUs did for this process."""

    memory: int = 0  # bytes
    busy_s: float | None = None  # of all their engines together; None: no driver tells it


def usage() -> Usage:
    """Return what this process used of GPUs until now."""
    clients: dict[tuple[str, ...], dict[str, str]] = {}
    for path in FDINFO.iterdir():
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue  # it was the handle of the folder itself
        facts = {name: value for name, _, value in (each.partition(":") for each in lines)}
        if "drm-client-id" in facts or "drm-driver" in facts:
            # Handles that were duplicated are one client.
            client = tuple(facts.get(f"drm-{of}", "") for of in ("driver", "pdev", "client-id"))
            clients[client] = facts
    memory, busy = 0, None
    for facts in clients.values():
        for name, value in facts.items():
            number, *unit = value.split() or ["0"]
            if name.startswith(("drm-memory-", "drm-total-")):
                memory += int(number) * _UNITS.get("".join(unit), 1)
            elif name.startswith("drm-engine-") and unit == ["ns"]:
                busy = (busy or 0.0) + int(number) / 1e9
    return Usage(memory, busy)
