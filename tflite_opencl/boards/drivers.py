# SPDX-License-Identifier: Apache-2.0
"""Queries OpenCL drivers, each in a child process, so that a crashing driver ends only its child.

`python -m tflite_opencl.boards.drivers` is the child.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegate import DelegateError, DeviceInfo, NoDeviceError, list_devices
from delegate.guard.children.channel import serve
from delegate.guard.children.child import ask_once
from delegate.inspect import (
    DeviceLimits,
    DeviceRates,
    Icd,
    PlatformInfo,
    ask_platforms,
    device_limits,
    device_rates,
    device_registers,
    examine,
)
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import NO_DEVICE
from tflite_opencl.console.records import from_json

TIMEOUT_SECONDS = 180


@dataclass(frozen=True, slots=True)
class LoadedIcd:
    """What the driver of one ICD file reports when loaded alone."""

    platforms: tuple[PlatformInfo, ...]
    failure: str | None  # how the child died, if it gave no answer
    left_out: str = ""  # why it was skipped
    library: str = ""  # as named in the file


@dataclass(frozen=True, slots=True)
class SurveyedDevice:
    """One device: what it reports, and the results of its self-tests."""

    info: DeviceInfo
    limits: DeviceLimits | None
    isa: tuple[str, ...]  # features beyond OpenCL C 1.2 that passed their self-tests
    rates: DeviceRates | None
    failure: str | None  # why it cannot be used


def ask_icd(icd: Icd) -> LoadedIcd:
    """Query the driver of one ICD file."""
    answer = LoadedIcd((), None, icd.left_out) if icd.left_out else ask_all([icd])
    return replace(answer, library=icd.library)


def ask_all(icds: Sequence[Icd] | None = None, other_loader: str | None = None) -> LoadedIcd:
    """Query all platforms that the loader finds, without excluding failing drivers.

    `icds`: only those of these files. `other_loader`: its path, instead of pyopencl's.
    """
    platforms, failure = ask_platforms(icds, other_loader)
    return LoadedIcd(from_json(tuple[PlatformInfo, ...], platforms), failure)


def ask_devices() -> tuple[tuple[DeviceInfo, ...], str | None]:
    """Return all devices, or why there are none."""
    answers, failure = _ask("devices")
    if answers and isinstance(answers[0], str):
        return (), answers[0]
    return from_json(tuple[DeviceInfo, ...], answers[0]) if answers else (), failure


def meant(selector: str | None, found: Sequence[DeviceInfo]) -> Sequence[DeviceInfo]:
    """Return the devices that --device selects; None: all.

    Raises: CommandError: none of them.
    """
    chosen = [info for info in found if selector is None or info.matches(selector)]
    if not chosen and selector is not None:
        names = "; ".join(f"{info.index}: {info.name} ({info.platform})" for info in found)
        raise CommandError(
            f"no device matches '{selector}'; there are {names or 'none'}", NO_DEVICE
        )
    return chosen


def ask_device(info: DeviceInfo, with_rates: bool = True) -> SurveyedDevice:
    """Return a device's limits and self-test results, and its rates, which take a second or two."""
    answers, failure = _ask("device" if with_rates else "proof", info.index)
    if not answers:
        return SurveyedDevice(info, None, (), None, failure)
    found, *registers = answers
    if found["limits"] is not None:
        found["limits"]["registers"] = registers[0] if registers else 0
    device: SurveyedDevice = from_json(SurveyedDevice, found)
    return device


def _ask(question: str, index: int = 0) -> tuple[list[Any], str | None]:
    """Return the child's answers, and how it ended if there are none."""
    child, seconds = "tflite_opencl.boards.drivers", TIMEOUT_SECONDS
    answers, ended = ask_once(child, seconds, question=question, index=index)
    return answers, None if answers else ended.sentence


def _answers(question: str, index: int) -> Iterator[Any]:
    try:
        devices = list_devices()
    except NoDeviceError as error:
        yield str(error)
        return
    if question == "devices":
        yield [asdict(info) for info in devices]
        return
    info = next(each for each in devices if each.index == index)
    found = SurveyedDevice(info, None, (), None, None)
    try:
        found = replace(found, limits=device_limits(info))
        proof = examine(info)
        found = replace(found, isa=tuple(sorted(proof.isa)), failure=proof.failure)
        if proof.failure is None and question == "device":
            found = replace(found, rates=device_rates(info))
    except DelegateError as error:
        found = replace(found, failure=str(error))
    yield asdict(found)
    yield device_registers(info)  # last: the compiler may crash the process


if __name__ == "__main__":
    sys.exit(serve(_answers))
