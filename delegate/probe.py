# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.probe`: a device's first build and self-test, in a child process.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from delegate import cache
from delegate.errors import DelegateError, DeviceError, NoDeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch, Program, Step
from delegate.ops import _quantize
from delegate.runtime.device import Device, DeviceInfo, matching
from delegate.runtime.executor import Executor
from delegate.runtime.kernels import Kernels, defines_of, source_of

TIMEOUT_SECONDS = 120  # a cold start takes a second or two; a slow board's compiler far longer
# The child's line begins so: a driver may write to stdout, too.
_ANSWER = "self-test: "
_PASSED = "passed"
_log = logging.getLogger("delegate")


def open_device(selector: str | int | None, profiling: bool) -> Device:
    """Open the first device meant that passes its self-test.

    Raises:
        NoDeviceError: none matches, or each that does fails; the text has each reason.
    """
    found = matching(selector)
    failures = []
    for info in found:
        failure = examine(info)
        if failure is None:
            try:
                device = Device(info, profiling)
            except DeviceError as error:
                failure = str(error)
            else:
                if selector not in (None, "") and len(found) > 1:
                    _log.info("device '%s' is %d: %s", selector, info.index, info.name)
                return device
        failures.append(f"{info.name} ({info.platform_version}): {failure}")
        _log.warning("device %d is skipped: %s", info.index, failures[-1])
    raise NoDeviceError("no OpenCL device works: " + "; ".join(failures))


def examine(info: DeviceInfo) -> str | None:
    """Return why a device cannot be used; one that passed with this driver version is not asked."""
    launch, _ = _launch()
    source = source_of(launch.file, defines_of(launch))
    key = hashlib.sha256("\0".join((info.identity, source)).encode()).hexdigest()[:40]
    if cache.load(f"devices/{key}") is not None:
        return None
    failure = _in_child(info)
    if failure is None:
        cache.store(f"devices/{key}", info.identity.encode())
    return failure


def _in_child(info: DeviceInfo) -> str | None:
    # From a checkout the package is on no path a child would have by itself.
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "delegate.probe", str(info.index), info.identity]
    try:
        child = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"its self-test did not end within {TIMEOUT_SECONDS} s"
    lines = [line.strip() for line in child.stderr.splitlines() if line.strip()]
    told = f": {lines[-1]}" if lines else ""
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return f"its self-test died with {name}{told}{_advice(info, child.stderr)}"
    for line in child.stdout.splitlines():
        if line.startswith(_ANSWER):
            answer = line.removeprefix(_ANSWER)
            return None if answer == _PASSED else answer
    return f"its self-test ended with {child.returncode} and no answer{told}"


def _advice(info: DeviceInfo, text: str) -> str:
    if "Portable Computing Language" not in info.platform:
        return ""
    if "unknown target CPU" in text:
        return (
            "; this PoCL's LLVM is older than the CPU: install a newer PoCL, on Debian "
            "pocl-opencl-icd"
        )
    return "; PoCL from PyPI links kernels with gcc: install gcc and libc6-dev"


# x, multiplier, shift, divisor
_CASES = np.array(
    [
        (x, multiplier, shift, divisor)
        for x in (0, 1, -1, 2, 255, -255, 65025, -65025, 8388607, 2**24 + 1, 2**30 - 3, -(2**30))
        for multiplier in (2**30, 2**30 + 12345, 1518500250, 2**31 - 1)
        for shift, divisor in ((0, 1), (-1, 3), (-7, 49), (-15, 1001), (-30, -7), (-31, 112 * 112))
    ],
    np.int32,
)


def _launch() -> tuple[Launch, Tensor]:
    answers = Tensor(0, "answers", _CASES.shape, "int32")
    launch = Launch(
        "runtime_self_test",
        "runtime_self_test",
        tiles=len(_CASES),
        group_items=1,
        params={"cases": Constant(_CASES.nbytes, lambda: _CASES), "answers": answers},
        reads=(),
        writes=(answers,),
    )
    return launch, answers


def _expected() -> NDArray[np.int32]:
    rows = []
    raw = _CASES.tobytes()
    for i, (x, multiplier, shift, divisor) in enumerate(_CASES.tolist()):
        twice = _quantize.multiply_by_quantized_multiplier(x, multiplier, shift)
        once = _quantize.multiply_by_quantized_multiplier_once(x, multiplier, shift)
        lanes = 4 * twice ^ int.from_bytes(raw[16 * i + 1 : 16 * i + 4], "little")
        quotient = abs(x) // abs(divisor) * (1 if (x < 0) == (divisor < 0) else -1)
        leading_zeros = 32 - (x & 0xFFFFFFFF).bit_length()
        rows.append((twice, once, lanes, quotient ^ (x - quotient * divisor) ^ leading_zeros))
    return _quantize.wrap_int32(np.array(rows, np.int64))


def self_test(device: Device) -> str | None:
    """Build and run the self-test kernel on an opened device; return what is wrong, or None."""
    launch, answers = _launch()
    program = Program((Step(0, "", Alternative("self-test", (launch,))),), (), (answers,))
    executor = Executor(device, Kernels(device), program)
    got = np.zeros(_CASES.shape, np.int32)
    executor.run([], [got.reshape(-1).view(np.uint8)])
    executor.close()
    expected = _expected()
    for column, what in enumerate(("two roundings", "one rounding", "vectors", "division")):
        wrong = np.flatnonzero(got[:, column] != expected[:, column])
        if wrong.size:
            case = wrong[0]
            return (
                f"its self-test is wrong ({what}): {_CASES[case].tolist()} gives "
                f"{got[case, column]}, not {expected[case, column]}"
            )
    return None


def _main() -> int:
    index, identity = int(sys.argv[1]), sys.argv[2]
    info = matching(index)[0]
    if info.identity != identity:
        raise DeviceError(f"device {index} is now {info.identity}")
    try:
        failure = self_test(Device(info))
    except DelegateError as error:
        failure = f"{error}{_advice(info, str(error))}"
    sys.stdout.write(f"\n{_ANSWER}{failure or _PASSED}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
