# SPDX-License-Identifier: Apache-2.0
"""Errors as a driver's calls raise them, and devices with what engines do not ask them for."""

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
    """Return pyopencl's exception for a call that gave this status."""
    return kind(_cl._ErrorRecord(call, status, ""))


# A whole run of the tests may keep another device's limits: TEST_DEVICE_PROFILE=v3d
PROFILE = os.environ.get("TEST_DEVICE_PROFILE") or None
# PoCL takes 2 MB of memory for each.
MOST_PROGRAMS = 250
_held: dict[DeviceInfo, Context] = {}


def hold_context(device: DeviceInfo) -> None:
    """Keep the context that delegates share open between tests, with the programs built in it.

    Else it would go with each test's delegate, and PoCL would compile its programs again for the
    next one.
    """
    opened = _opened(device)
    # Another one than before where an error ended the sharing of that.
    context = shared_context(opened.cl_device, opened.identity)
    if len(context.programs) > MOST_PROGRAMS:
        context.programs.clear()
    _held[device] = context


_FLAGS = "POCL_EXTRA_BUILD_FLAGS"
_last_flags = ""


def build_with(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """Let PoCL compile with these flags, too; what the held contexts have of others goes."""
    global _last_flags
    if flags:
        monkeypatch.setenv(_FLAGS, flags)
    else:
        monkeypatch.delenv(_FLAGS, raising=False)
    if flags != _last_flags:
        _last_flags = flags
        for context in _held.values():
            context.programs.clear()


_kept: dict[tuple[Any, ...], Device] = {}


def open_kept(options: Options) -> Device:
    """Open a device as `open_device` does, or return a copy of what was opened so before.

    Opening one takes milliseconds: rusticl's queue, all devices' names, what is proven.
    """
    if options.own_context:
        return open_device(options)
    asked = options.device, options.profiling, options.profile, frozenset(options.exclude_isa)
    kept = _kept.get(asked)
    if kept is None or kept.context is not shared_context(kept.cl_device, kept.identity):
        kept = _kept[asked] = open_device(options)
    return copy(kept)  # a delegate closes its own


def vector_width(device: DeviceInfo) -> int:
    """Return the lanes of the device's own vectors of 32-bit integers; 1: it has none."""
    return int(_opened(device).cl_device.native_vector_width_int)


@cache
def _opened(device: DeviceInfo) -> Device:
    profile = None if PROFILE is None else read_device_profile(PROFILE)
    return Device(device, profile=profile, shares_context=True)
