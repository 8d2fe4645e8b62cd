# SPDX-License-Identifier: Apache-2.0
"""Selects and opens a device with its proven features, and describes it for lowering."""

from __future__ import annotations

import logging

from delegate.errors import DeviceError, NoDeviceError
from delegate.guard.children import process
from delegate.guard.isolation.backend import AnyDevice
from delegate.guard.probing.probe import examine
from delegate.isa import TILE_REGISTERS, most_lanes
from delegate.options import Options
from delegate.run.device import Device
from delegate.run.device_list import matching
from delegate.target import Rules, Target

_log = logging.getLogger("delegate")


def usable_isa(proven: frozenset[str]) -> frozenset[str]:
    """Return the features that the operating system lets this process use."""
    tiled = proven & TILE_REGISTERS
    if tiled and (why := process.tile_registers_refused()):
        _log.info("%s: %s is not used", why, " or ".join(sorted(tiled)))
        return proven - tiled
    return proven


def open_device(options: Options) -> Device:
    """Open the first matching device that passes its self-test.

    Raises:
        NoDeviceError: none matches, or all fail; the message has each reason.
    """
    selector, profile, excluded = options.device, options.profile, {*options.exclude_isa}
    found = matching(selector)
    failures = []
    for info in found:
        proof = examine(info, profile, options.is_ieee)
        failure = proof.failure
        if failure is None:
            try:
                isa = frozenset() if "all" in excluded else usable_isa(proof.isa - excluded)
                device = Device(info, options.profiling, isa, profile, not options.own_context)
            except DeviceError as error:
                failure = str(error)
            else:
                if selector not in (None, "") and len(found) > 1:
                    _log.info("device '%s' is %d: %s", selector, info.index, info.name)
                return device
        failures.append(f"{info.name} ({info.platform_version}): {failure}")
        _log.warning("device %d is skipped: %s", info.index, failures[-1])
    raise NoDeviceError("no OpenCL device works: " + "; ".join(failures))


def target_of(device: AnyDevice, rules: Rules, registers: int = 0, is_ieee: bool = False) -> Target:
    """Return the description of a device for lowering; `is_ieee`: with precision "ieee"."""
    return Target(
        device_type=device.type,
        vector_width=min(device.vector_width, most_lanes(device.proven)),
        compute_units=device.compute_units,
        registers=registers,
        isa=device.proven,
        rules=rules,
        is_ieee=is_ieee,
    )
