# SPDX-License-Identifier: Apache-2.0
"""What a process holds after many openings: it does not grow."""

from __future__ import annotations

import gc
from pathlib import Path

from tflite_opencl.common.oracle import Oracle
from tflite_opencl.conformance.checks.job import Job, invoke_of, open_job
from tflite_opencl.conformance.checks.outputs import expect
from tflite_opencl.conformance.outcome import FAIL, PASS, Outcome

_OPENINGS, _SETTLED = 100, 40
# The C library and a driver's caches may keep so much of an opening, on average.
_LEAK_BYTES = 32 * 1024


def reopen_100(job: Job, known: Oracle) -> Outcome:
    """Memory, file handles and a GPU's memory do not grow over 100 reopenings."""
    seen = {}
    taken = 0
    for number in range(1, _OPENINGS + 1):
        opened, taken = open_job(job, known)
        outputs = invoke_of(opened, job.sets[0])
        del opened
        gc.collect()
        if number in (_SETTLED, (_SETTLED + _OPENINGS) // 2, _OPENINGS):
            seen[number] = _held()
            expect(job, known, 0, outputs, f"opening {number}")
    start, middle, end = seen.values()
    for name, unit, limit in (
        ("file handles", "", 0.05),
        ("memory", " bytes", _LEAK_BYTES),
        ("GPU memory", " bytes", _LEAK_BYTES),
    ):
        half = (_OPENINGS - _SETTLED) / 2
        growth = [(b[name] - a[name]) / half for a, b in ((start, middle), (middle, end))]
        if min(growth) > limit:
            grown = sum(growth) / 2
            return Outcome(FAIL, f"each opening leaks {grown:.4g}{unit} of {name}", 0, taken)
    return Outcome(PASS, taken=taken)


def _held() -> dict[str, int]:
    """Return what this process holds."""
    handles = list(Path("/proc/self/fd").iterdir())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"file handles": len(handles), "memory": pages * 4096, "GPU memory": _drm_bytes()}


def _drm_bytes() -> int:
    """Return the memory that kernel drivers say this process has; 0 without such a driver."""
    total = 0
    for info in Path("/proc/self/fdinfo").iterdir():
        try:
            lines = info.read_text().splitlines()
        except OSError:
            continue  # it was the handle of the folder itself
        for line in lines:
            # Source: the kernel's Documentation/gpu/drm-usage-stats.rst
            if line.startswith(("drm-memory-", "drm-total-")):
                value = line.split(":")[1].split()
                factor = {"KiB": 1024, "MiB": 1 << 20}.get(value[1] if len(value) > 1 else "", 1)
                total += int(value[0]) * factor
    return total
