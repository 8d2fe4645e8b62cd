# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.probe`: a device's first build and self-tests, in a child process.

A driver that crashes, hangs or computes wrongly shows it there and costs a warning here. So do
instructions the device lacks: what `Target.isa` holds was compiled, run and compared there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from delegate import cache
from delegate.errors import DelegateError, DeviceError, NoDeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Launch, Program, Step
from delegate.ops._numbers import fixed_point
from delegate.profiles import DeviceProfile, device_profile_of, device_profile_text
from delegate.runtime.command_buffer import PROVEN as COMMAND_BUFFER
from delegate.runtime.device import Device, DeviceInfo, allowed, identity_with, matching
from delegate.runtime.executor import PERSISTENT, RECORDED, Executor
from delegate.runtime.kernels import Kernels, defines_of, source_of

TIMEOUT_SECONDS = 120  # a cold start takes a second or two; a slow board's compiler far longer
ISA_TIMEOUT_SECONDS = 30  # for what a device can do without
_LANES16_SECONDS = 10  # of CPU time
# The child's line begins so: a driver may write to stdout, too.
_ANSWER = "self-test: "
_PASSED = "passed"
_DEVICE = "device"  # the name of the test without which a device is not used
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Proof:
    """What a device's self-tests found."""

    failure: str | None  # why it cannot be used
    isa: frozenset[str] = frozenset()  # what it can do beyond OpenCL C 1.2


def open_device(
    selector: str | int | None,
    profiling: bool = False,
    profile: DeviceProfile | None = None,
    own_context: bool = False,
) -> Device:
    """Open the first device meant that passes its self-test.

    Raises:
        NoDeviceError: none matches, or each that does fails; the text has each reason.
    """
    found = matching(selector)
    failures = []
    for info in found:
        proof = examine(info, profile)
        failure = proof.failure
        if failure is None:
            try:
                device = Device(info, profiling, proof.isa, profile, not own_context)
            except DeviceError as error:
                failure = str(error)
            else:
                if selector not in (None, "") and len(found) > 1:
                    _log.info("device '%s' is %d: %s", selector, info.index, info.name)
                return device
        failures.append(f"{info.name} ({info.platform_version}): {failure}")
        _log.warning("device %d is skipped: %s", info.index, failures[-1])
    raise NoDeviceError("no OpenCL device works: " + "; ".join(failures))


def examine(info: DeviceInfo, profile: DeviceProfile | None = None) -> Proof:
    """Return a device's proof; one that passed with this driver version is not asked again.

    `profile`: the tests keep its limits, and what it does not allow is not tested.
    """
    isas = allowed(_isas(info), profile)
    launches = [_launch()[0], *(_isa_program(isa).launches[0] for isa in isas)]
    sources = [source_of(launch.file, defines_of(launch)) for launch in launches]
    key = hashlib.sha256("\0".join((identity_with(info, profile), *sources)).encode()).hexdigest()[
        :40
    ]
    known = cache.load(f"devices/{key}")
    if known is not None:
        return Proof(None, frozenset(known.decode().split()))
    waiting, proven = [_DEVICE, *isas], set()
    while waiting:
        # A child that dies was at the first that has no answer; the others get a new one.
        failure, answers = _in_child(info, waiting, profile)
        passed = {name for name, answer in answers.items() if answer == _PASSED}
        if waiting[0] == _DEVICE and _DEVICE not in passed:
            return Proof(answers.get(_DEVICE, failure))
        proven |= passed - {_DEVICE}
        without = [name for name in waiting if name not in answers]
        for name, answer in (answers | dict.fromkeys(without[:1], failure)).items():
            _log.debug("device %d, %s: %s", info.index, name, answer)
        waiting = without[1:]
    cache.store(f"devices/{key}", " ".join(sorted(proven)).encode())
    return Proof(None, frozenset(proven))


def _isas(info: DeviceInfo) -> list[str]:
    """What is worth trying on a device of this type; order*: see runtime_persistent.cl."""
    own = ("avx2", "vnni", "order_x86") if info.type == "cpu" else ("dp4a", "mma", "order_ptx")
    dots = () if info.type == "cpu" else tuple(_DOTS)
    lanes = ("lanes16",) if info.type == "cpu" else ()  # the last: its limit stays
    return [*own, *dots, "nearest", "order", COMMAND_BUFFER, *lanes]


def _in_child(
    info: DeviceInfo, names: Sequence[str], profile: DeviceProfile | None
) -> tuple[str, dict[str, str]]:
    """Return how the child that runs these tests ended, for people, and the answers it gave."""
    # From a checkout the package is on no path a child would have by itself.
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    timeout = TIMEOUT_SECONDS if names[0] == _DEVICE else ISA_TIMEOUT_SECONDS
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    limits = ["", ""] if profile is None else [profile.name, device_profile_text(profile, {})]
    command = [sys.executable, "-m", "delegate.probe", str(info.index), info.identity]
    command += [*limits, *names]
    try:
        child = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        ended = f"its self-test did not end within {timeout} s"
    else:
        output, ended = child.stdout, _ended(info, child)
    lines = [line.removeprefix(_ANSWER) for line in output.splitlines() if line.startswith(_ANSWER)]
    return ended, dict(line.split(" ", 1) for line in lines if " " in line)


def _ended(info: DeviceInfo, child: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in child.stderr.splitlines() if line.strip()]
    told = f": {lines[-1]}" if lines else ""
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return f"its self-test died with {name}{told}{_advice(info, child.stderr)}"
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
        twice = fixed_point.multiply_by_quantized_multiplier(x, multiplier, shift)
        once = fixed_point.multiply_by_quantized_multiplier_once(x, multiplier, shift)
        lanes = 4 * twice ^ int.from_bytes(raw[16 * i + 1 : 16 * i + 4], "little")
        quotient = abs(x) // abs(divisor) * (1 if (x < 0) == (divisor < 0) else -1)
        leading_zeros = 32 - (x & 0xFFFFFFFF).bit_length()
        rows.append((twice, once, lanes, quotient ^ (x - quotient * divisor) ^ leading_zeros))
    return fixed_point.wrap_int32(np.array(rows, np.int64))


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


_A = np.random.default_rng(1).integers(0, 256, (16, 32)).astype(np.uint8)
_B = np.random.default_rng(2).integers(-128, 128, (8, 32)).astype(np.int8)
# The ends of the range: the pairs' sums pass 16 bits, where some instructions saturate.
_A[0], _A[1], _B[0], _B[1] = 255, 255, -128, 127
# For "nearest": floats whose products and sums are rounded, and ties.
_X = (np.random.default_rng(3).integers(-(2**24), 2**24, 64) / np.float32(2**20)).astype(np.float32)
_Y = (np.random.default_rng(4).integers(-(2**24), 2**24, 64) / np.float32(2**21)).astype(np.float32)
_X[:8], _Y[:8], _Y[-8:] = np.arange(8) * 2 + 1, 1, 0  # halves, once halved
_ORDER_STEPS, _ORDER_RUNS = 40, 200
# What need not be proven where one of these was: the persistent launch uses one of the orders, and
# on a CPU recorded launches take as long as those one by one.
_INSTEAD = {"order": {"order_x86", "order_ptx"}, COMMAND_BUFFER: {"order_x86"}}
# Name -> kernels/dot.clh's macro, and whether it takes both sides as signed bytes.
_DOTS = {"dot": ("DOT_KHR", True), "arm_dot": ("DOT_ARM", True), "qcom_dot": ("DOT_QCOM", False)}


def _isa_program(isa: str) -> Program:
    if isa.startswith("order") or isa == COMMAND_BUFFER:
        return _order_program()
    answers = Tensor(0, "answers", (16, 8), "int32")
    a, b = (_X, _Y) if isa == "nearest" else (_A, _B)
    launch = Launch(
        "runtime_isa",
        f"runtime_isa_{'dot' if isa in _DOTS else isa}",
        tiles=1,
        group_items=1 if isa in ("avx2", "vnni", "lanes16") else 32,
        params={
            "a": Constant(a.nbytes, lambda: a),
            "b": Constant(b.nbytes, lambda: b),
            "answers": answers,
        },
        reads=(),
        writes=(answers,),
        defines={_DOTS[isa][0]: 1} if isa in _DOTS else {},
    )
    return Program((Step(0, "", Alternative(isa, (launch,))),), (), (answers,))


def _order_program() -> Program:
    values = [Tensor(i, "", (64,), "int32") for i in range(_ORDER_STEPS + 1)]
    launches = tuple(
        Launch(
            "runtime_isa",
            "runtime_isa_order",
            tiles=64,
            group_items=1,
            params={"from": source, "to": result},
            reads=(source,),
            writes=(result,),
        )
        for source, result in pairwise(values)
    )
    steps = tuple(Step(i, "", Alternative("order", (each,))) for i, each in enumerate(launches))
    return Program(steps, (values[0],), (values[-1],))


def _isa_test(device: Device, isa: str) -> str:
    """Return "passed", or what went wrong."""
    program = _isa_program(isa)
    if isa.startswith("order"):
        return _order_test(device, program, PERSISTENT)
    if isa == COMMAND_BUFFER:
        return _order_test(device, program, RECORDED)
    executor = Executor(device, Kernels(device), program)
    got = np.zeros((16, 8), np.int32)
    executor.run([], [got.reshape(-1).view(np.uint8)])
    return _PASSED if np.array_equal(got, _isa_answers(isa)) else "other numbers than expected"


def _isa_answers(isa: str) -> NDArray[np.int32]:
    if isa == "nearest":
        sums = _X * _Y + _Y[::-1]
        whole = np.rint(sums * np.float32(0.5)).astype(np.int32)
        return np.concatenate([sums.view(np.int32), whole]).reshape(16, 8)
    signed = isa in _DOTS and _DOTS[isa][1]
    answers: NDArray[np.int32] = (_A.view(np.int8) if signed else _A).astype(np.int32) @ _B.T
    return answers


def _order_test(device: Device, program: Program, form: str) -> str:
    executor = Executor(device, Kernels(device), program, form=form)
    if executor.form != form:
        return f"no {form} launches"
    for values, expected in zip(*_order_runs(), strict=True):
        got = np.zeros(64, np.int32)
        executor.run([values.view(np.uint8)], [got.view(np.uint8)])
        if not np.array_equal(got, expected):
            return "other numbers than expected"
    return _PASSED


@lru_cache(maxsize=1)
def _order_runs() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return inputs and outputs of the order program, (runs, 64) each."""
    first = np.random.default_rng(5).integers(0, 2**20, (_ORDER_RUNS, 64)).astype(np.int32)
    tiles, values = np.arange(64), first
    for _ in range(_ORDER_STEPS):
        mixed = values.astype(np.int64) * 3 + values[:, (tiles * 7 + 1) % 64].astype(np.int64) * 5
        values = fixed_point.wrap_int32(mixed + values[:, (tiles + 32) % 64] + tiles)
    return first, values


def _main() -> int:
    index, identity, profile_name, limits, *names = int(sys.argv[1]), *sys.argv[2:]
    info = matching(index)[0]
    profile = device_profile_of(profile_name, limits) if limits else None
    if info.identity != identity:
        raise DeviceError(f"device {index} is now {info.identity}")
    # PoCL forgets its library of built-ins with the last context: half a second for each test.
    kept: list[Device] = []
    passed: set[str] = set()
    for name in names:
        try:
            if _INSTEAD.get(name, set()) & passed:
                answer = "not needed"
            elif name == _DEVICE:
                kept.append(Device(info, profile=profile))
                answer = self_test(kept[-1]) or _PASSED
            else:
                if name == "lanes16":
                    # NOTE: PoCL 3.0 may compile it for ever and take all memory before it crashes.
                    used = int(time.process_time())
                    resource.setrlimit(resource.RLIMIT_CPU, (used + _LANES16_SECONDS,) * 2)
                kept.append(Device(info, proven=[name], profile=profile))
                answer = _isa_test(kept[-1], name)
        except DelegateError as error:
            answer = f"{' '.join(str(error).split())}{_advice(info, str(error))}"
        if answer == _PASSED:
            passed.add(name)
        sys.stdout.write(f"\n{_ANSWER}{name} {answer}\n")
        sys.stdout.flush()  # the next one may end the process
    return 0


if __name__ == "__main__":
    sys.exit(_main())
