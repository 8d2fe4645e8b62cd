# SPDX-License-Identifier: Apache-2.0
"""GPU statistics of this process from DRM drivers: its memory and its engines' busy time.

freedreno, panfrost, v3d, etnaviv, amdgpu and i915 report both; panfrost reports times only if its
`profiling` in sysfs is on. Source: the kernel's Documentation/gpu/drm-usage-stats.rst
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FDINFO = Path("/proc/self/fdinfo")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


@dataclass(frozen=True, slots=True)
class Usage:
    """This process's use of all GPUs."""

    memory: int = 0  # bytes
    busy_s: float | None = None  # sum over all engines; None: no driver reports it


def usage() -> Usage:
    """Return this process's use of GPUs so far."""
    clients: dict[tuple[str, ...], dict[str, str]] = {}
    for path in FDINFO.iterdir():
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue  # the descriptor of the folder itself
        facts = {name: value for name, _, value in (each.partition(":") for each in lines)}
        if "drm-client-id" in facts or "drm-driver" in facts:
            # Duplicated descriptors belong to one client.
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
