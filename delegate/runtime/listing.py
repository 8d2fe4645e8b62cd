# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.runtime.listing`: the child process of delegate.runtime.icds.

It asks every OpenCL library for all that is asked of platforms and devices when they are listed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict

import pyopencl as cl

from delegate import child
from delegate.errors import DeviceError
from delegate.runtime.device_list import device_info
from delegate.runtime.survey import tried_platforms


def main() -> int:
    """Answer with all platforms, as JSON; the argument is another folder for pyopencl's drivers."""
    if len(sys.argv) > 1:
        os.environ["PYOPENCL_HOME"] = sys.argv[1]
    platforms = tried_platforms()
    for platform in cl.get_platforms() if platforms else ():
        with contextlib.suppress(DeviceError, cl.Error):
            for device in platform.get_devices():
                device_info(device, "", "")
    child.answer(json.dumps([asdict(each) for each in platforms]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
