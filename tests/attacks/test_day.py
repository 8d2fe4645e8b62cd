# SPDX-License-Identifier: Apache-2.0
"""Twenty minutes of a service's day, and the detection of what is lost in one."""

from __future__ import annotations

import re

import pytest

from delegate import DeviceInfo
from tests.attacks import day
from tests.support.tiers import slow

_SCALE = 60.0  # twenty minutes in as many seconds
_UNSCALED = "from tflite_opencl.__main__ import main; raise SystemExit(main())"


@slow
def test_day_loses_no_answer(device: DeviceInfo) -> None:
    seen = day.day(1 / 3, 7, str(device.index), _SCALE)
    deaths, reloads = re.findall(r"(\d+) (?:deaths|reloads)", seen)
    assert int(deaths) >= 5
    assert int(reloads) == 2


@slow
def test_device_given_up_is_detected(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose minute stays a minute gives its device up, as three deaths come sooner."""
    monkeypatch.setattr(day, "_SCALED", _UNSCALED)
    with pytest.raises(AssertionError, match="some had to wait"):
        day.day(1 / 3, 7, str(device.index), 2 * _SCALE)
