# SPDX-License-Identifier: Apache-2.0
"""The tiers of the tests: the fast one, and `--full`.

The fast tier runs on one device, PoCL if available. It runs the first case of each test, or the
first case of each strategy, type, subcommand or faulty delegate. It omits tests marked `slow`,
which take half a second or more and are not the only guard of something.
`--full` runs all cases of all tests on every device. `--part 2/8` always runs the same eighth.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

from delegate import DeviceInfo
from delegate.host.tflite.library import installed_rules

slow = pytest.mark.slow
_RULES = installed_rules()
# Where `delegate.ops._convolution.hybrid` accepts nodes.
where_rows_are_known = pytest.mark.skipif(
    _RULES.processor != "x86_64"
    and (_RULES.processor, _RULES.runtime) != ("aarch64", "ai-edge-litert"),
    reason="hybrid nodes stay on the CPU here",
)
# Parameters of which the fast tier runs each value.
_EACH_VALUE = ("strategy", "dtype", "subcommand", "liar")


def add_options(parser: pytest.Parser) -> None:
    """Add --full and --part."""
    group = parser.getgroup("tiers", "tiers of the tests (tests/README.md)")
    group.addoption("--full", action="store_true", help="all cases of all tests on every device")
    group.addoption("--part", metavar="K/N", default="1/1", help="with --full: the K-th of N parts")


def devices_of(config: pytest.Config, working: Sequence[DeviceInfo]) -> Sequence[DeviceInfo]:
    """Return the devices that the tier runs on."""
    if config.option.full or not working:
        return working
    is_pocl = ["PoCL" in each.platform_version for each in working]
    return [working[is_pocl.index(True) if any(is_pocl) else 0]]


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the items that the tier does not run.

    Raises: pytest.UsageError: --part is invalid.
    """
    chosen = _part(config.option.part, items) if config.option.full else _fast(items)
    if len(chosen) < len(items):
        selected = {*chosen}
        config.hook.pytest_deselected(items=[item for item in items if item not in selected])
        items[:] = chosen


def _fast(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for item in items:
        values = item.callspec.params if hasattr(item, "callspec") else {}
        key = item.nodeid.partition("[")[0], *(str(values.get(name)) for name in _EACH_VALUE)
        if key not in seen and item.get_closest_marker(slow.name) is None:
            seen.add(key)
            chosen.append(item)
    return chosen


def _part(part: str, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    number, _, count = part.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--part {part}: K/N, with K from 1 to N")
    # By hashes of names: every second item would be all cases of one of two devices.
    remainder = int(number) - 1
    return [each for each in items if zlib.crc32(each.nodeid.encode()) % int(count) == remainder]
