# SPDX-License-Identifier: Apache-2.0
"""Environment variables: those that every command sets, and the one that names a device."""

from __future__ import annotations

import os


def prepare_environment() -> None:
    """Set what drivers read when they are loaded, where the user has not set it.

    So all commands measure alike.
    """
    # PoCL pins its threads to cores only if told so before it is loaded.
    os.environ.setdefault("POCL_AFFINITY", "1")


def device_asked(flag: str | None) -> str | None:
    """Return the device of --device, else of TFLITE_OPENCL_DEVICE; None: the first that works."""
    return flag or os.environ.get("TFLITE_OPENCL_DEVICE") or None
