# SPDX-License-Identifier: Apache-2.0
"""Self-tests of a device, run in a child process for delegate.guard.probing.probe.

A test builds a small kernel, runs it and compares its output.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import DelegateError
from delegate.graph.ir import Tensor
from delegate.guard.children import process
from delegate.guard.children.trials import DEVICE, FRESH, PASSED
from delegate.guard.probing import ieee_tests
from delegate.guard.probing.remedies import advice
from delegate.isa import BY_NAME, LANES16, OWN_BUILTINS, PARAMS_ARGUMENT, Feature
from delegate.launch import Alternative, Constant, Launch, Params, Schedule, Step
from delegate.ops._numbers import fixed_point
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.record import PERSISTENT
from delegate.profiles import DeviceProfile
from delegate.run.device import Device
from delegate.run.device_list import DeviceInfo
from delegate.run.dot_products import is_accelerated
from delegate.run.executor import Executor

_WRONG = "other numbers than expected"
_LANES16_SECONDS = 10  # of CPU time
# PoCL unloads its built-in library with the last context: half a second for each test.
_open_devices: list[Device] = []


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


def device_launch() -> tuple[Launch, Tensor]:
    """Return the launch of the mandatory test, and its output tensor."""
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


def self_test(device: Device, is_fresh: bool = False) -> str | None:
    """Build and run the mandatory test; return the failure, or None. `is_fresh`: as FRESH."""
    launch, answers = device_launch()
    kernels = Kernels(device)
    if is_fresh:
        launch = replace(launch, defines={"FRESH": str(time.time_ns())})
        kernels = Kernels(device, has_binaries=False)
    schedule = Schedule((Step(0, "", Alternative("self-test", (launch,))),), (), (answers,))
    executor = planned_executor(device, kernels, schedule)
    got, expected = _results(executor, _CASES.shape), _expected()
    executor.close()
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
# Extremes: sums of pairs exceed 16 bits, where some instructions saturate.
_A[0], _A[1], _B[0], _B[1] = 255, 255, -128, 127
# For "nearest": floats whose products and sums need rounding, and ties.
_X = (np.random.default_rng(3).integers(-(2**24), 2**24, 64) / np.float32(2**20)).astype(np.float32)
_Y = (np.random.default_rng(4).integers(-(2**24), 2**24, 64) / np.float32(2**21)).astype(np.float32)
_X[:8], _Y[:8], _Y[-8:] = np.arange(8) * 2 + 1, 1, 0  # ties once halved
# For "fp16": numbers whose products and sums are exact in fp16.
_WHOLE = np.random.default_rng(7).integers(-16, 17, 64).astype(np.float16)
_INPUTS: Mapping[str, tuple[NDArray[Any], NDArray[Any]]] = {
    **dict.fromkeys(("nearest", "stored_halves"), (_X, _Y)),
    "fp16": (_WHOLE, _WHOLE[::-1].copy()),
    **ieee_tests.INPUTS,
}
_ORDER_STEPS, _ORDER_RUNS, _ORDER_VALUES = 40, 100, 64 * 16
# For "params_argument": together about as many as the longest block of a kernel has.
_VALUES = {
    f"value_{i}": int(value)
    for i, value in enumerate(np.random.default_rng(6).integers(-(2**31), 2**31, 32))
}


def schedule_of(feature: Feature) -> Schedule:
    """Return the self-test of a feature."""
    if feature.is_order:
        return _order_schedule(feature, feature.group_items)
    answers = Tensor(0, "answers", (16, 8), "int32")
    a, b = _INPUTS.get(feature.name, (_A, _B))
    params: Params = {
        "a": Constant(a.nbytes, lambda: a),
        "b": Constant(b.nbytes, lambda: b),
        "answers": answers,
    }
    if feature.name == PARAMS_ARGUMENT:
        params |= _VALUES
    launch = Launch(
        "runtime_isa",
        feature.kernel,
        tiles=1,
        group_items=feature.group_items,
        params=params,
        reads=(),
        writes=(answers,),
        defines={feature.macro: int(feature.takes_int8)} if feature.macro else {},
    )
    return Schedule((Step(0, "", Alternative(feature.name, (launch,))),), (), (answers,))


def _order_schedule(feature: Feature, group_items: int) -> Schedule:
    values = [Tensor(i, "", (_ORDER_VALUES,), "int32") for i in range(_ORDER_STEPS + 1)]
    launches = tuple(
        Launch(
            "runtime_isa",
            feature.kernel,
            tiles=64,
            group_items=group_items,
            params={"from": source, "to": result},
            reads=(source,),
            writes=(result,),
        )
        for source, result in pairwise(values)
    )
    return Schedule((Step(0, "", Alternative("order", launches)),), (values[0],), (values[-1],))


def feature_test(device: Device, feature: Feature) -> str:
    """Build and run the self-test of a feature; return PASSED, or the failure."""
    if feature.must_be_accelerated and not is_accelerated(device.cl_device, feature.takes_int8):
        return "the device does not say that it is accelerated"
    if feature.uses_tile_registers and (why := process.tile_registers_refused()):
        return why
    if feature.is_order:
        # Groups of one item and of several use different kernels.
        ends = (_order_test(device, _order_schedule(feature, n)) for n in (1, 64))
        return next((end for end in ends if end != PASSED), PASSED)
    executor = planned_executor(device, Kernels(device), schedule_of(feature))
    is_right = np.array_equal(_results(executor, (16, 8)), _answers(feature))
    return PASSED if is_right else _WRONG


def _results(
    executor: Executor, shape: tuple[int, ...], *inputs: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Run a schedule and return its output."""
    got = np.zeros(shape, np.int32)
    executor.run([each.view(np.uint8) for each in inputs], [got.reshape(-1).view(np.uint8)])
    return got


def _answers(feature: Feature) -> NDArray[np.int32]:
    if feature.name == "nearest":
        sums = _X * _Y + _Y[::-1]
        whole = np.rint(sums * np.float32(0.5)).astype(np.int32)
        return np.concatenate([sums.view(np.int32), whole]).reshape(16, 8)
    if feature.name == "stored_halves":
        halves = np.stack([_X, _Y]).astype(np.float16)
        return halves.astype(np.float32).view(np.int32).reshape(16, 8)
    if feature.name == "fp16":
        sums = _WHOLE * _WHOLE[::-1] + _WHOLE
        return np.stack([sums, -sums]).astype(np.int32).reshape(16, 8)
    if feature.name == PARAMS_ARGUMENT:
        values = np.array([*_VALUES.values()], np.int32)
        return np.bitwise_xor.outer(np.arange(4, dtype=np.int32), values).reshape(16, 8)
    if feature.is_of_ieee:
        return ieee_tests.answers(feature.name)
    if feature.name == OWN_BUILTINS:
        return _builtin_answers()
    left = _A.view(np.int8) if feature.takes_int8 else _A
    answers: NDArray[np.int32] = left.astype(np.int32) @ _B.T
    return answers


def _builtin_answers() -> NDArray[np.int32]:
    """Return a row for each built-in function, on 8 pairs of numbers; as runtime_isa.cl."""
    x = _A.reshape(-1)[:32].view(np.int32).astype(np.int64)
    y = _B.reshape(-1)[:32].view(np.int32).astype(np.int64)
    short, other = x >> 20, y >> 20
    fraction = (x >> 8).astype(np.float32) / np.float32(256)
    second = (y >> 8).astype(np.float32) / np.float32(256)
    leading_zeros = [32 - (int(value) & 0xFFFFFFFF).bit_length() for value in x]
    away = np.copysign(np.floor(np.abs(fraction) + np.float32(0.5)), fraction)
    whole = (np.rint(fraction), away, np.floor(fraction), np.ceil(fraction))
    bytes_ = _A.reshape(-1)[1:33].reshape(8, 4).astype(np.int64)
    rows = [
        np.minimum(x, y),
        np.maximum(x, y),
        np.clip(x, -1000, 1000),
        leading_zeros,
        x * y >> 32,
        short * other + x,
        np.abs(x),
        *whole,
        np.abs(short),
        (-np.abs(fraction)).view(np.int32),
        (np.minimum(fraction, second) - np.maximum(fraction, second)).view(np.int32),
        2 * (short * other + 7),
        bytes_ @ [1, 2, 3, 4],
    ]
    return fixed_point.wrap_int32(np.array(rows, np.int64))


def _order_test(device: Device, schedule: Schedule) -> str:
    executor = planned_executor(device, Kernels(device), schedule, dispatch_mode=PERSISTENT)
    if executor.dispatch_mode != PERSISTENT:
        return f"no {PERSISTENT} launches"
    for values, expected in zip(*_order_runs(), strict=True):
        if not np.array_equal(_results(executor, expected.shape, values), expected):
            return _WRONG
    return PASSED


@lru_cache(maxsize=1)
def _order_runs() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return inputs and outputs of the order schedule, each of shape (runs, values)."""
    first = np.random.default_rng(5).integers(0, 2**32, (_ORDER_RUNS, _ORDER_VALUES), np.uint32)
    tiles, items = np.divmod(np.arange(_ORDER_VALUES), 16)
    other = (tiles * 7 + 1) % 64 * 16 + (items * 5 + 3) % 16
    far, values = (tiles + 32) % 64 * 16 + 15 - items, first
    for _ in range(_ORDER_STEPS):
        values = values * 3 + values[:, other] * 5 + values[:, far] + tiles.astype(np.uint32)
    return first.view(np.int32), values.view(np.int32)


def run_self_test(info: DeviceInfo, proven: Sequence[str], profile: DeviceProfile | None) -> str:
    """Return the result of the first test; `proven`: it, and features its kernels may use."""
    name = proven[0]
    try:
        if name == LANES16:
            # NOTE: PoCL 3.0 may compile it forever, and exhaust memory before it crashes.
            signal.setitimer(signal.ITIMER_PROF, _LANES16_SECONDS)
        is_plain = name in (DEVICE, FRESH)
        device = Device(info, proven=() if is_plain else proven, profile=profile)
        _open_devices.append(device)
        if is_plain:
            return self_test(device, name == FRESH) or PASSED
        return feature_test(device, BY_NAME[name])
    except DelegateError as error:
        return f"{' '.join(str(error).split())}{advice(info, str(error))}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
