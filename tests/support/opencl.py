# SPDX-License-Identifier: Apache-2.0
"""Driver errors, contexts and devices that stay open between tests, and a device profile."""

from __future__ import annotations

import os
from copy import copy
from functools import cache
from typing import Any

import pyopencl as cl
import pytest
from pyopencl import _cl

from delegate import DeviceInfo, Options
from delegate.guard.probing.opening import open_device
from delegate.inspect import read_device_profile
from delegate.run.context import Context, shared_context
from delegate.run.device import Device


def opencl_error(kind: type[cl.Error], call: str, status: int) -> cl.Error:
    """Return pyopencl's exception for a call with this status."""
    return kind(_cl._ErrorRecord(call, status, ""))


# The device profile of all op tests: TEST_DEVICE_PROFILE=v3d
PROFILE = os.environ.get("TEST_DEVICE_PROFILE") or None
# PoCL needs 2 MB of memory for each.
MOST_PROGRAMS = 250
_held: dict[DeviceInfo, Context] = {}


def hold_context(device: DeviceInfo) -> None:
    """Keep the shared context of a device open between tests, with its programs.

    Otherwise each test's delegate would close it, and PoCL would compile the programs again.
    """
    opened = _opened(device)
    # A new context if an error ended the sharing of the last one.
    context = shared_context(opened.cl_device, opened.identity)
    if len(context.programs) > MOST_PROGRAMS:
        context.programs.clear()
    _held[device] = context


_FLAGS = "POCL_EXTRA_BUILD_FLAGS"
_last_flags = ""


def build_with(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """Add flags to PoCL's compiler; drop programs that were built with others."""
    global _last_flags
    if flags:
        monkeypatch.setenv(_FLAGS, flags)
    else:
        monkeypatch.delenv(_FLAGS, raising=False)
    if flags != _last_flags:
        _last_flags = flags
        for context in _held.values():
            context.programs.clear()


_cached: dict[tuple[Any, ...], Device] = {}


def open_cached(options: Options) -> Device:
    """Open a device as `open_device` does, or return a copy of one with equal options.

    Opening one takes milliseconds.
    """
    if options.own_context:
        return open_device(options)
    key = options.device, options.profiling, options.profile, frozenset(options.exclude_isa)
    device = _cached.get(key)
    if device is None or device.context is not shared_context(device.cl_device, device.identity):
        device = _cached[key] = open_device(options)
    return copy(device)  # because a delegate closes its device


def vector_width(device: DeviceInfo) -> int:
    """Return the device's native vector width for 32-bit integers."""
    return int(_opened(device).cl_device.native_vector_width_int)


@cache
def _opened(device: DeviceInfo) -> Device:
    profile = None if PROFILE is None else read_device_profile(PROFILE)
    return Device(device, profile=profile, shares_context=True)
