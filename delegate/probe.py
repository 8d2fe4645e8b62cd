# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.probe`: a device's first build and self-test, in a child process.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
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
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a self-test found: `failure` None means the device may be used."""

    failure: str | None
    exact_float: bool = False


def open_device(selector: str | int | None, profiling: bool) -> tuple[Device, bool]:
    """Open the first device meant that passes its self-test; also say if its floats are exact.

    Raises:
        NoDeviceError: none matches, or each that does fails; the text has each reason.
    """
    found = matching(selector)
    failures = []
    for info in found:
        finding = examine(info)
        if finding.failure is None:
            try:
                device = Device(info, profiling)
            except DeviceError as error:
                finding = Finding(str(error))
            else:
                if selector not in (None, "") and len(found) > 1:
                    _log.info("device '%s' is %d: %s", selector, info.index, info.name)
                return device, finding.exact_float
        failures.append(f"{info.name} ({info.platform_version}): {finding.failure}")
        _log.warning("device %d is skipped: %s", info.index, failures[-1])
    raise NoDeviceError("no OpenCL device works: " + "; ".join(failures))


def examine(info: DeviceInfo) -> Finding:
    """Return a device's self-test, from the cache if this driver version passed it before."""
    launch, _ = _launch()
    source = source_of(launch.file, defines_of(launch))
    key = hashlib.sha256("\0".join((info.identity, source)).encode()).hexdigest()[:40]
    kept = cache.load(f"devices/{key}.json")
    if kept is not None:
        return Finding(None, bool(json.loads(kept)["exact_float"]))
    finding = _in_child(info)
    if finding.failure is None:
        cache.store(
            f"devices/{key}.json", json.dumps({"exact_float": finding.exact_float}).encode()
        )
    return finding


def _in_child(info: DeviceInfo) -> Finding:
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
        return Finding(f"its self-test did not end within {TIMEOUT_SECONDS} s")
    lines = [line.strip() for line in child.stderr.splitlines() if line.strip()]
    told = f": {lines[-1]}" if lines else ""
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return Finding(f"its self-test died with {name}{told}{_advice(info, child.stderr)}")
    try:
        answer = json.loads(child.stdout)
        return Finding(answer["failure"], answer["exact_float"])
    except (ValueError, KeyError, TypeError):
        return Finding(f"its self-test ended with {child.returncode}{told}")


def _advice(info: DeviceInfo, text: str) -> str:
    if "Portable Computing Language" not in info.platform:
        return ""
    if "unknown target CPU" in text:
        return (
            "; this PoCL's LLVM is older than the CPU: install a newer PoCL, on Debian "
            "pocl-opencl-icd"
        )
    return "; PoCL from PyPI links kernels with gcc: install gcc and libc6-dev"


# x, multiplier, shift, and the bits of a float to add to x * multiplier taken as floats.
_CASES = np.array(
    [
        (x, multiplier, shift, addend)
        for x in (0, 1, -1, 2, 255, -255, 65025, -65025, 8388607, 2**24 + 1, 2**30 - 3, -(2**30))
        for multiplier in (2**30, 2**30 + 12345, 1518500250, 2**31 - 1)
        for shift, addend in (
            (0, 0),
            (-1, 0x3F800001),
            (-7, 0x40490FDB),
            (-15, 0x33800000),
            (-30, 0),
            (-31, 0),
        )
    ]
    # Floats whose exact product or sum needs rounding, so that toward-zero or fused shows.
    + [
        (a, b, -8, c)
        for a in (0x3F800001, 0x3FFFFFFF, 0x3F9DF3B6, 0x4B7FFFFF)
        for b in (0x3F800003, 0x3FC00001, 0x3EAAAAAB)
        for c in (0x00000000, 0x33800001, 0x3F7FFFFF, 0x4B000001, 0xBF800001 - 2**32)
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
    for i, (x, multiplier, shift, addend) in enumerate(_CASES.tolist()):
        twice = _quantize.multiply_by_quantized_multiplier(x, multiplier, shift)
        once = _quantize.multiply_by_quantized_multiplier_once(x, multiplier, shift)
        bytes_ = int.from_bytes(raw[16 * i + 1 : 16 * i + 4], "little")
        floats = np.array([x, multiplier, addend], np.int32).view(np.float32)
        with np.errstate(all="ignore"):
            total = np.float32(np.float32(floats[0] * floats[1]) + floats[2])
        rows.append((twice, once, 4 * twice ^ bytes_, int(total.view(np.int32))))
    return _quantize.wrap_int32(np.array(rows, np.int64))


def self_test(device: Device) -> Finding:
    """Build and run the self-test kernel on an opened device."""
    launch, answers = _launch()
    program = Program((Step(0, "", Alternative("self-test", (launch,))),), (), (answers,))
    executor = Executor(device, Kernels(device), program)
    got = np.zeros(_CASES.shape, np.int32)
    executor.run([], [got.reshape(-1).view(np.uint8)])
    executor.close()
    expected = _expected()
    for column, what in enumerate(("two roundings", "one rounding", "vectors")):
        wrong = np.flatnonzero(got[:, column] != expected[:, column])
        if wrong.size:
            case = wrong[0]
            return Finding(
                f"its self-test is wrong ({what}): {_CASES[case, :3].tolist()} gives "
                f"{got[case, column]}, not {expected[case, column]}"
            )
    # Numbers too small to be normal may be flushed to zero; no kernel depends on them.
    value = expected[:, 3].view(np.float32)
    normal = np.isfinite(value) & (np.abs(value) >= np.finfo(np.float32).tiny)
    return Finding(None, bool((got[normal, 3] == expected[normal, 3]).all()))


def _main() -> int:
    index, identity = int(sys.argv[1]), sys.argv[2]
    info = matching(index)[0]
    if info.identity != identity:
        raise DeviceError(f"device {index} is now {info.identity}")
    try:
        finding = self_test(Device(info))
    except DelegateError as error:
        finding = Finding(f"{error}{_advice(info, str(error))}")
    sys.stdout.write(json.dumps({"failure": finding.failure, "exact_float": finding.exact_float}))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
