# SPDX-License-Identifier: Apache-2.0
"""The energy that a machine took, where its system tells: RAPL's counters, hwmon's sensors.

It is the whole machine's, or its processors', and not one process's.
Source: Linux, Documentation/power/powercap/powercap.rst and hwmon/sysfs-interface.rst
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_SYS = Path("/sys")
_SAMPLE_S = 0.05


class Meter:
    """Sums the energy of what runs inside `measured`."""

    def __init__(self, root: Path = _SYS) -> None:
        """`root`: where the system's files are."""
        # The packages of RAPL alone: their parts would count twice.
        zones = sorted((root / "class/powercap").glob("intel-rapl:[0-9]"))
        self._counters = [
            (zone / "energy_uj", _number(zone / "max_energy_range_uj") or 0)
            for zone in zones
            if _number(zone / "energy_uj") is not None
        ]
        self._sensors: list[Path] = []
        if not self._counters:
            hwmon = root / "class/hwmon"
            self._counters = [
                (file, 0) for file in sorted(hwmon.glob("hwmon*/energy*_input")) if _is_read(file)
            ]
        if not self._counters:
            self._sensors = [
                file for file in sorted(hwmon.glob("hwmon*/power*_input")) if _is_read(file)
            ]
        self.joules = 0.0

    @property
    def source(self) -> str:
        """Return what is read; "" where the machine tells nothing that this user may read."""
        if self._counters:
            file = self._counters[0][0]
            return "RAPL" if file.name == "energy_uj" else "hwmon's energy"
        return "hwmon's power" if self._sensors else ""

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Add what is taken until the end to `joules`."""
        before = [_number(file) for file, _ in self._counters]
        watching = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(watching,), daemon=True)
        if self._sensors:
            watcher.start()
        try:
            yield
        finally:
            watching.set()
            if self._sensors:
                watcher.join()
            for (file, most), old in zip(self._counters, before, strict=True):
                new = _number(file)
                if old is not None and new is not None:
                    # A counter begins again from 0 after its greatest value.
                    self.joules += (new - old + (most if new < old else 0)) / 1e6

    def _watch(self, ended: threading.Event) -> None:
        last_s = time.monotonic()
        is_over = False
        while not is_over:
            is_over = ended.wait(_SAMPLE_S)
            now_s = time.monotonic()
            watts = sum((_number(file) or 0) / 1e6 for file in self._sensors)
            self.joules += watts * (now_s - last_s)
            last_s = now_s


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # root's alone, or a sensor that is off
        return None


def _is_read(file: Path) -> bool:
    return _number(file) is not None
