# SPDX-License-Identifier: Apache-2.0
"""What to install or set where a device fails its first test."""

from __future__ import annotations

import os

from delegate.run.device_list import PERMISSION_HINT, DeviceInfo
from delegate.run.driver_caches import obstacles


def advice(info: DeviceInfo, text: str) -> str:
    """Return what to install if a driver fails with this text; "" if unknown."""
    if "Portable Computing Language" not in info.platform:
        return ""
    if not os.environ.get("PATH"):
        return "; PATH is not set: PoCL looks there for the linker of its kernels"
    if "unknown target CPU" in text:
        return (
            "; this PoCL's LLVM is older than the CPU: install a newer PoCL, on Debian "
            "pocl-opencl-icd"
        )
    if "clCreateContext" in text or "clCreateCommandQueue" in text:  # nothing was compiled yet
        return f"; {PERMISSION_HINT}" if "OUT_OF_HOST_MEMORY" in text else ""
    install = "PoCL from PyPI links kernels with ld: install binutils"
    return f"; {obstacles().removesuffix('; ') or install}"
