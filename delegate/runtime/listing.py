# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.runtime.listing`: the child process that lists some libraries' platforms."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.runtime.device_list import device_info
from delegate.runtime.survey import PlatformInfo, tried_platforms
from delegate.sandbox import child


def ask_all() -> tuple[PlatformInfo, ...]:
    """Return all platforms, after asking every device what `list_devices` asks."""
    platforms = tried_platforms()
    for platform in cl.get_platforms() if platforms else ():
        with contextlib.suppress(DeviceError, cl.Error):
            for device in platform.get_devices():
                device_info(device, "", "")
    return platforms


def main() -> int:
    """Answer with all platforms, as JSON; the argument is another folder for pyopencl's drivers."""
    if len(sys.argv) > 1:
        os.environ["PYOPENCL_HOME"] = sys.argv[1]
    child.answer(json.dumps([asdict(each) for each in ask_all()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
