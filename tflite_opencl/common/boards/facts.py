# SPDX-License-Identifier: Apache-2.0
"""All that can be known of this machine and its OpenCL drivers, which are asked in children."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from delegate import DeviceInfo
from delegate.inspect import Icd, list_icds
from tflite_opencl.common import bars
from tflite_opencl.common.boards import drivers
from tflite_opencl.common.boards.advice import library_steps, next_steps
from tflite_opencl.common.boards.board import Board
from tflite_opencl.common.boards.drivers import LoadedIcd, SurveyedDevice

Choose = Callable[[Sequence[DeviceInfo]], Sequence[DeviceInfo]]
_ENVIRONMENT = ("RUSTICL_ENABLE", "RUSTICL_FEATURES", "OCL_ICD_VENDORS", "POCL_AFFINITY")


@dataclass(frozen=True, slots=True)
class Info:
    """All that `info` shows."""

    board: Board
    environment: dict[str, str]  # variables that drivers look at
    icds: dict[str, LoadedIcd]  # an ICD file's path -> what its driver says
    platforms: LoadedIcd
    devices: tuple[SurveyedDevice, ...]
    no_devices: str | None  # why there are none
    next_steps: tuple[str, ...]


def facts_here(board: Board, choose: Choose) -> Info:
    """Return all facts of this machine; `choose`: which devices are asked, which takes seconds.

    Raises: what `choose` raises.
    """
    # The loader's variables may name other files than the board's, and it cannot read all of those.
    entries = {icd.path: icd for icd in list_icds()}
    for file in board.icds:
        entries.setdefault(file.path, Icd(file.path, file.library))
    with bars.parts() as tell:
        tell(0.0, "asking the drivers")
        icds = {path: drivers.ask_icd(icd) for path, icd in entries.items()}
        platforms = drivers.ask_all()
        found, why_none = drivers.ask_devices()
        surveyed = []
        asked = choose(found)
        for number, info in enumerate(asked, 1):
            tell(number / (len(asked) + 1), f"asking {info.name}")
            surveyed.append(drivers.ask_device(info))
    libraries = {path: icd.library for path, icd in entries.items()}
    steps = library_steps(libraries, {path: loaded.failure for path, loaded in icds.items()})
    steps += next_steps(
        board,
        platforms.platforms,
        [each.info for each in surveyed if each.failure is None],
        [f"{each.info.name}: {each.failure}" for each in surveyed if each.failure],
        os.environ.get("RUSTICL_ENABLE", ""),
    )
    if not found and (vendors := os.environ.get("OCL_ICD_VENDORS")):
        there = "" if Path(vendors).exists() else ", which is not there"
        steps = [f"OCL_ICD_VENDORS names {vendors}{there}: unset it, and look again", *steps]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return Info(board, environment, icds, platforms, tuple(surveyed), why_none, tuple(steps))
