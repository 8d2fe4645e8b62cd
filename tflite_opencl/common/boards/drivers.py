# SPDX-License-Identifier: Apache-2.0
"""What OpenCL drivers say and do, each asked in a child process: one that dies costs itself alone.

`python -m tflite_opencl.common.boards.drivers` is that child: a question in its arguments, and JSON
on stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from delegate import DelegateError, DeviceInfo, NoDeviceError, list_devices
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
from delegate.sandbox.child import answer, ask
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.exit_codes import NO_DEVICE

TIMEOUT_SECONDS = 180


@dataclass(frozen=True, slots=True)
class LoadedIcd:
    """What the driver of one ICD file says when it is the only one."""

    platforms: tuple[PlatformInfo, ...]
    failure: str | None  # how the process that asked ended, where it gave no answer
    left_out: str = ""  # why it was not asked


@dataclass(frozen=True, slots=True)
class SurveyedDevice:
    """One device: what it says of itself, and what it was found to do."""

    info: DeviceInfo
    limits: DeviceLimits | None
    isa: tuple[str, ...]  # what its self-tests proved beyond OpenCL C 1.2
    rates: DeviceRates | None
    failure: str | None  # why it cannot be used


def ask_icd(icd: Icd) -> LoadedIcd:
    """Return what one ICD file's driver says."""
    if icd.left_out:
        return LoadedIcd((), None, icd.left_out)
    return _loaded(*ask_platforms([icd]))


def ask_all() -> LoadedIcd:
    """Return all platforms, as the loader finds them; here a driver that fails is not left out."""
    return _loaded(*ask_platforms())


def ask_devices() -> tuple[tuple[DeviceInfo, ...], str | None]:
    """Return all devices, and why there are none."""
    answer, failure = _ask("devices")
    if answer is None:
        return (), failure
    if isinstance(answer, str):
        return (), answer
    return tuple(DeviceInfo(**each) for each in answer), None


def meant(selector: str | None, found: Sequence[DeviceInfo]) -> Sequence[DeviceInfo]:
    """Return which of the devices a user means by --device; None: all.

    Raises:
        CommandError: none of them.
    """
    chosen = [info for info in found if selector is None or info.matches(selector)]
    if not chosen and selector is not None:
        names = "; ".join(f"{info.index}: {info.name} ({info.platform})" for info in found)
        raise CommandError(
            f"no device matches '{selector}'; there are {names or 'none'}", NO_DEVICE
        )
    return chosen


def ask_device(info: DeviceInfo, with_rates: bool = True) -> SurveyedDevice:
    """Return one device's limits and proofs, and its rates, which take a second or two."""
    answer, failure = _ask("device" if with_rates else "proof", str(info.index))
    if answer is None:
        return SurveyedDevice(info, None, (), None, failure)
    limits, rates = answer["limits"], answer["rates"]
    if limits is not None:
        # Compilers are asked last: they may end the process.
        registers, _ = _ask("registers", str(info.index))
        limits["registers"] = registers if isinstance(registers, int) else 0
    return SurveyedDevice(
        info,
        None if limits is None else DeviceLimits(**_tuples(limits)),
        tuple(answer["isa"]),
        None if rates is None else DeviceRates(**rates),
        answer["failure"],
    )


def _loaded(platforms: list[dict[str, Any]], failure: str | None) -> LoadedIcd:
    return LoadedIcd(tuple(PlatformInfo(**_tuples(each)) for each in platforms), failure)


def _tuples(record: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(value) if isinstance(value, list) else value for k, value in record.items()}


def _ask(*question: str) -> tuple[Any, str | None]:
    """Return the child's answer, or None and how it ended."""
    child = ask("tflite_opencl.common.boards.drivers", *question, seconds=TIMEOUT_SECONDS)
    if child.texts:
        return json.loads(child.texts[0]), None
    return None, child.end(TIMEOUT_SECONDS)


def _found(question: str, *arguments: str) -> Any:
    try:
        devices = list_devices()
    except NoDeviceError as error:
        return str(error)
    if question == "devices":
        return [asdict(info) for info in devices]
    info = next(each for each in devices if each.index == int(arguments[0]))
    if question == "registers":
        return device_registers(info)
    answer: dict[str, Any] = {"limits": None, "isa": [], "rates": None, "failure": None}
    try:
        answer["limits"] = asdict(device_limits(info))
        proof = examine(info)
        answer["isa"], answer["failure"] = sorted(proof.isa), proof.failure
        if proof.failure is None and question == "device":
            answer["rates"] = asdict(device_rates(info))
    except DelegateError as error:
        answer["failure"] = str(error)
    return answer


def main() -> int:
    """Answer the question of the arguments."""
    answer(json.dumps(_found(*sys.argv[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
