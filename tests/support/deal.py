# SPDX-License-Identifier: Apache-2.0
"""Deals tests out to the devices of a machine, so that none is run for its own sake twice.

What a kernel computes is tried on every device. Tests marked `any_driver` only need some device:
what they prove lies before or behind the driver, or they draw the same numbers for each. Where
several devices are found they take these cases in turns.

A way with vectors is at home on a device with vectors, each other way on a device without: there
lowering chooses it. At home a way runs every case. On the other devices, where lowering never does,
it runs one case in AWAY, each way others, so that each way is compiled everywhere.
A device whose ways have no other home runs all of them. TEST_EVERYTHING=1: so does every device.
Stand-ins for instructions run one case in SHARE everywhere: devices with the instructions run all.
TEST_ONE_CASE_IN=3: about a third of the cases that are left; 3:1 and 3:2: the other two.

Tests marked `slow` take seconds each and prove nothing of a kernel on a driver: whole commands in
processes of their own, drivers that die, attacks, Oclgrind, many pictures on the CPU.
They run where they are asked for: by `-m slow`, by the name of their file, by TEST_EVERYTHING=1.
`.ci/run` does.

Tests marked `one_width` compile nearly every case anew, and their cases do not lie around a width:
at home, each of their cases runs one width of vectors, the widths in turns.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate.tflite.library import installed_rules
from tests.support.cases import Way
from tests.support.opencl import vector_width

SHARE = 10
AWAY = 20
one_width = pytest.mark.one_width
any_driver = pytest.mark.any_driver
slow = pytest.mark.slow
_RULES = installed_rules()
# By what `delegate.ops._convolution.hybrid` requires.
where_rows_are_known = pytest.mark.skipif(
    _RULES.processor != "x86_64"
    and (_RULES.processor, _RULES.runtime) != ("aarch64", "ai-edge-litert"),
    reason="hybrid nodes stay on the CPU here",
)


def in_turns(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the items that need some device, and that their device leaves to another one."""
    if os.environ.get("TEST_EVERYTHING"):
        return set()
    # A test, and its case without the device -> that case on each device.
    cases: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "device" in _params(item) and _needs_any(item):
            case = {name: value for name, value in _params(item).items() if name != "device"}
            cases[item.nodeid.split("[")[0], repr(case)].append(item)
    left_out: set[pytest.Item] = set()
    for number, group in enumerate(cases.values()):
        kept = group[number % len(group)]
        left_out.update(item for item in group if item is not kept)
    return left_out


def unasked(config: pytest.Config, items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the slow items, where nobody asks for them."""
    names_a_file = any(Path(argument.split("::")[0]).is_file() for argument in config.args)
    if config.option.markexpr or names_a_file or os.environ.get("TEST_EVERYTHING"):
        return set()
    return {item for item in items if item.get_closest_marker(slow.name)}


def sampled(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the items that a run of one case in so many leaves out: TEST_ONE_CASE_IN."""
    one_in, _, first = os.environ.get("TEST_ONE_CASE_IN", "").partition(":")
    number = int(one_in or 1)
    share = int(first or 0) % number
    # By name: each second item would be those of one of two devices alone.
    return {item for item in items if zlib.crc32(item.nodeid.encode()) % number != share}


def _needs_any(item: pytest.Item) -> bool:
    # A file's mark gives way to one of the test itself.
    is_asked_for = item.get_closest_marker("every_driver") is not None
    return item.get_closest_marker(any_driver.name) is not None and not is_asked_for


def leave_out(config: pytest.Config, items: list[pytest.Item], others: set[pytest.Item]) -> None:
    """Take items from the run, and tell pytest how many."""
    if others:
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=list(others))


def _params(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def dealt(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the items of forced ways that their device leaves to another one."""
    if os.environ.get("TEST_EVERYTHING"):
        return set()
    # Test function -> its ways by name; with a way's name and a device -> its cases.
    ways: dict[str, dict[str, Way]] = defaultdict(dict)
    cases: dict[tuple[str, str, DeviceInfo], list[pytest.Item]] = defaultdict(list)
    for item in items:
        params = _params(item)
        device, way = params.get("device"), params.get("way")
        if device is not None and isinstance(way, Way):
            test = item.nodeid.split("[")[0]
            ways[test][str(way)] = way
            cases[test, str(way), device].append(item)
    devices = {device for _, _, device in cases}
    left_out: set[pytest.Item] = set()
    for number, ((test, name, device), group) in enumerate(cases.items()):
        way = ways[test][name]
        is_away = not _is_home(device, way) and any(_is_home(other, way) for other in devices)
        if way.is_emulated or is_away:
            share = SHARE if way.is_emulated else AWAY
            kept = group[number % min(share, len(group)) :: share]
        elif way.lanes > 1 and group[0].get_closest_marker(one_width.name):
            widths = [other for other in ways[test] if ways[test][other].lanes > 1]
            kept = group[widths.index(name) :: len(widths)]
        else:
            continue
        left_out.update(set(group).difference(kept))
    return left_out


def _is_home(device: DeviceInfo, way: Way) -> bool:
    return (way.lanes > 1) == (vector_width(device) > 1)
