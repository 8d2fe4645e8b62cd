# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine: its CPU, this process's memory, and energy consumption.

Energy is measured for the whole machine, or its processors, not for one process.
Source: Linux, Documentation/power/powercap/powercap.rst and hwmon/sysfs-interface.rst
"""

from __future__ import annotations

import contextlib
import platform
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


def peak_bytes() -> int:
    """Return this process's peak resident memory.

    Raises: OSError, RuntimeError: the system does not report it.
    """
    # NOTE: getrusage may report the peak of the parent process before exec.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def cpu_name() -> str:
    """Return the CPU's model and its relevant vector extensions."""
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


_SYS = Path("/sys")
_SAMPLE_S = 0.05
# The first readable one counts. Only the packages of RAPL: their subdomains would count twice.
_POWER = "hwmon's power"
_SOURCES = {
    "RAPL": "class/powercap/intel-rapl:[0-9]/energy_uj",
    "hwmon's energy": "class/hwmon/hwmon*/energy*_input",
    _POWER: "class/hwmon/hwmon*/power*_input",
}


class Meter:
    """Accumulates the energy consumed inside `measured`.

    Attributes:
        source: the sensor; "" if this user can read none.
        joules: the sum.
    """

    def __init__(self, root: Path = _SYS) -> None:
        """`root`: of the system's files."""
        self.source, self._files, self.joules = "", list[Path](), 0.0
        for name, pattern in _SOURCES.items():
            files = [file for file in sorted(root.glob(pattern)) if _number(file) is not None]
            if files and not self.source:
                self.source, self._files = name, files

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Add the energy consumed inside the context to `joules`."""
        with self._watched() if self.source == _POWER else self._counted():
            yield

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        before = [_number(file) for file in self._files]
        try:
            yield
        finally:
            for file, old in zip(self._files, before, strict=True):
                new = _number(file)
                if old is not None and new is not None:
                    # Counters wrap to 0 at their maximum.
                    most = _number(file.with_name("max_energy_range_uj")) or 0
                    self.joules += (new - old + (most if new < old else 0)) / 1e6

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        ended = threading.Event()

        def watch() -> None:
            last_s, is_over = time.monotonic(), False
            while not is_over:
                is_over = ended.wait(_SAMPLE_S)
                now_s = time.monotonic()
                watts = sum((_number(file) or 0) / 1e6 for file in self._files)
                self.joules += watts * (now_s - last_s)
                last_s = now_s

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # readable by root only, or a sensor that is off
        return None
