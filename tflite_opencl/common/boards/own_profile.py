# SPDX-License-Identifier: Apache-2.0
"""A device that is here -> a device profile, to keep its limits elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from delegate.inspect import DeviceLimits, device_profile_text, profile_of
from tflite_opencl.common.boards.drivers import SurveyedDevice
from tflite_opencl.common.errors import CommandError, write
from tflite_opencl.common.text import printable


def write_profile(path: str, devices: Sequence[SurveyedDevice]) -> str:
    """Write the limits of the first device that works, else of the first that tells any.

    Returns:
        What to do with it, for people.
    Raises:
        CommandError: no device tells its limits, or the file cannot be written.
    """
    telling = [each for each in devices if each.limits is not None]
    chosen = min(telling, key=lambda each: each.failure is not None, default=None)
    if chosen is None or chosen.limits is None:
        raise CommandError("--write_profile: no device here tells its limits")
    profile = profile_of(chosen.info, chosen.limits, frozenset(chosen.isa), Path(path).stem)
    said = f"{chosen.info.name}, {chosen.info.driver}, by clGetDeviceInfo"
    asked = {field.name for field in fields(profile)} & {
        field.name for field in fields(DeviceLimits)
    }
    sources = dict.fromkeys(asked, said)
    sources["registers"] = "kept by a small kernel, by clGetKernelWorkGroupInfo"
    sources["isa"] = (
        "proven by self-tests"
        if chosen.failure is None
        else f"nothing is proven: {printable(chosen.failure)}"
    )
    write(path, device_profile_text(profile, sources))
    return f"elsewhere, keep this device's limits: label_image --device_profile {path}"
