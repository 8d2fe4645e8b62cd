# SPDX-License-Identifier: Apache-2.0
"""What to install or to set where a driver fails."""

from __future__ import annotations

import os

from delegate.runtime.device_list import DeviceInfo


def advice(info: DeviceInfo, text: str) -> str:
    """Return what to install where a driver fails with this text; "" if that is not known."""
    if "Portable Computing Language" not in info.platform:
        return ""
    if not os.environ.get("PATH"):
        return "; PATH is not set: PoCL looks there for the linker of its kernels"
    if "unknown target CPU" in text:
        return (
            "; this PoCL's LLVM is older than the CPU: install a newer PoCL, on Debian "
            "pocl-opencl-icd"
        )
    return "; PoCL from PyPI links kernels with gcc: install gcc and libc6-dev"
