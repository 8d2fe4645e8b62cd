# SPDX-License-Identifier: Apache-2.0
"""Energy from fake sysfs files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tflite_opencl.timing.machine import Meter


def put(root: Path, file: str, value: object) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def test_rapl_packages_are_added_without_subdomains(tmp_path: Path) -> None:
    for zone, value in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 900), ("intel-rapl:0:0", 7)):
        put(tmp_path, f"class/powercap/{zone}/energy_uj", value)
        put(tmp_path, f"class/powercap/{zone}/max_energy_range_uj", 1000)
    put(tmp_path, "class/hwmon/hwmon0/energy1_input", 5)
    meter = Meter(tmp_path)
    assert meter.source == "RAPL"
    with meter.measured():
        put(tmp_path, "class/powercap/intel-rapl:0/energy_uj", 7_000_000)
        put(tmp_path, "class/powercap/intel-rapl:1/energy_uj", 100)  # wrapped around after 1000
        put(tmp_path, "class/powercap/intel-rapl:0:0/energy_uj", 9_000_000)
    assert meter.joules == pytest.approx(2 + 200e-6)


def test_hwmon_energy_counters(tmp_path: Path) -> None:
    put(tmp_path, "class/hwmon/hwmon0/energy1_input", 1_000_000)
    put(tmp_path, "class/hwmon/hwmon1/power1_input", 9)
    meter = Meter(tmp_path)
    assert meter.source == "hwmon's energy"
    for value in (1_500_000, 4_000_000):
        with meter.measured():
            put(tmp_path, "class/hwmon/hwmon0/energy1_input", value)
    assert meter.joules == pytest.approx(3)


def test_power_sensors_are_sampled(tmp_path: Path) -> None:
    put(tmp_path, "class/hwmon/hwmon0/power1_input", 2_000_000)
    put(tmp_path, "class/hwmon/hwmon1/power1_input", "off")
    meter = Meter(tmp_path)
    assert meter.source == "hwmon's power"
    begin_s = time.monotonic()
    with meter.measured():
        time.sleep(0.12)
    longest_s = time.monotonic() - begin_s
    assert 0.2 < meter.joules <= 2 * longest_s


def test_machine_without_sensors(tmp_path: Path) -> None:
    meter = Meter(tmp_path)
    with meter.measured():
        pass
    assert (meter.source, meter.joules) == ("", 0.0)
