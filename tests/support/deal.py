# SPDX-License-Identifier: Apache-2.0
"""Deals the cases of forced ways out to the devices of a machine.

A way with vectors is at home on a device with vectors, each other way on a device without: there
lowering chooses it. At home a way runs every case. On the other devices it
runs one case in SHARE, each way others, so that each way and each case is compiled everywhere.
A device whose ways have no other home runs all of them. TEST_EVERYTHING=1: so does every device.
Stand-ins for instructions run one case in SHARE everywhere: devices with the instructions run all.

Tests marked `one_width` compile nearly every case anew, and their cases do not lie around a width:
at home, each of their cases runs one width of vectors, the widths in turns.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence

import pytest

from delegate import DeviceInfo
from tests.support.cases import Way
from tests.support.opencl import vector_width

SHARE = 5
one_width = pytest.mark.one_width


def dealt(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the items that their device leaves to another one."""
    if os.environ.get("TEST_EVERYTHING"):
        return set()
    # Test function -> its ways by name; with a way's name and a device -> its cases.
    ways: dict[str, dict[str, Way]] = defaultdict(dict)
    cases: dict[tuple[str, str, DeviceInfo], list[pytest.Item]] = defaultdict(list)
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        device, way = params.get("device"), params.get("way")
        if device is not None and isinstance(way, Way):
            test = item.nodeid.split("[")[0]
            ways[test][str(way)] = way
            cases[test, str(way), device].append(item)
    devices = {device for _, _, device in cases}
    left_out: set[pytest.Item] = set()
    for number, ((test, name, device), group) in enumerate(cases.items()):
        way = ways[test][name]
        if way.is_emulated or (
            not _is_home(device, way) and any(_is_home(other, way) for other in devices)
        ):
            kept = group[number % min(SHARE, len(group)) :: SHARE]
        elif way.lanes > 1 and group[0].get_closest_marker(one_width.name):
            widths = [other for other in ways[test] if ways[test][other].lanes > 1]
            kept = group[widths.index(name) :: len(widths)]
        else:
            continue
        left_out.update(set(group).difference(kept))
    return left_out


def _is_home(device: DeviceInfo, way: Way) -> bool:
    return (way.lanes > 1) == (vector_width(device) > 1)
