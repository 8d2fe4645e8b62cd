# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.runtime.listing`: the child process that lists some libraries' platforms."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.runtime.device_list import device_info
from delegate.runtime.survey import PlatformInfo, tried_platforms
from delegate.sandbox.channel import serve


def ask_all() -> tuple[PlatformInfo, ...]:
    """Return all platforms, after asking every device what `list_devices` asks."""
    platforms = tried_platforms()
    for platform in cl.get_platforms() if platforms else ():
        with contextlib.suppress(DeviceError, cl.Error):
            for device in platform.get_devices():
                device_info(device, "", "")
    return platforms


def _answers(**environment: str) -> Iterator[list[dict[str, Any]]]:
    """Yield all platforms."""
    os.environ.update(environment)
    yield [asdict(each) for each in ask_all()]


if __name__ == "__main__":
    sys.exit(serve(_answers))
